#include "models/hugging_face/hugging_face_family.h"

#include <algorithm>
#include <cmath>

#include "models/rotary_frequencies.h"

namespace trifold {

namespace {

using nlohmann::json;

constexpr double kLowTurns = 1, kHighTurns = 4, kScaledPositions = 8192;  // those of Llama 3.1

// Without 'mscale' and 'mscale_all_dim', both not 0, queries and keys grow by m(1), or by 'attention_factor'.
template <class Report>
void read_yarn(ConfigReader& rope, double original_positions, ModelConfig& model, const Report& report) {
  constexpr double kRounding = 1e-9;
  constexpr double kMostPositions = 1e9;
  if (!(original_positions >= 1 && original_positions <= kMostPositions))
    bad_input("original_max_position_embeddings is {}; from 1 to {} are possible", original_positions,
              kMostPositions);
  model.rope_type = RopeType::Yarn;
  model.rotary_scaling_factor = rope.number("factor", 0);
  model.original_max_position_embeddings = static_cast<int64_t>(original_positions);
  model.beta_fast = rope.number("beta_fast", 32);
  model.beta_slow = rope.number("beta_slow", 1);
  const double mscale = rope.number("mscale", 0), all = rope.number("mscale_all_dim", 0);
  if (mscale != 0 && all != 0) {
    model.mscale = mscale;
    model.mscale_all_dim = all;
  }
  const double follows = std::sqrt(rotary_score_scale(model));
  const double growth = rope.number("attention_factor", follows);
  if (std::abs(growth - follows) > kRounding * follows) {
    model.mscale = (growth - 1) / (0.1 * std::log(model.rotary_scaling_factor));
    model.mscale_all_dim = 0;
    if (!(model.mscale >= 0 && std::isfinite(model.mscale)))
      report("an 'attention_factor' below 1, or another than 1 with a 'factor' of 1, is not supported");
  }
  if (!rope.flag("truncate", true)) report("only a true 'truncate' is supported");
}

// Newer versions of the library keep everything in 'rope_parameters', older ones in two fields.
void read_rotary(ConfigReader& from, ModelConfig& model) {
  model.rotary_base = from.number("rope_theta", 10000);
  const char* key = from.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!from.has(key)) return;
  ConfigReader rope(from.at(key));
  const auto report = [&](const char* what) { from.problem(fmt::format("'{}': {}", key, what)); };
  if (!from.at(key).is_object()) return report("it is not an object");
  model.rotary_base = rope.number("rope_theta", model.rotary_base);
  const char* name = rope.has("rope_type") ? "rope_type" : "type";
  const json type = rope.has(name) ? rope.at(name) : json("default");
  if (type == "default") return;
  if (type == "linear") {
    model.rotary_seq_len_interpolation_factor = rope.number("factor", 0);
    return;
  }
  if (type == "yarn") {
    const auto positions = static_cast<double>(model.max_position_embeddings.value_or(0));
    const double original = from.number("original_max_position_embeddings", positions);
    return read_yarn(rope, rope.number("original_max_position_embeddings", original), model, report);
  }
  if (type != "llama3") return report("only the types default, linear, yarn and llama3 are supported");
  model.use_rope_scaling = true;
  model.rope_scaling_factor = rope.number("factor", 0);
  if (rope.number("low_freq_factor", 0) != kLowTurns || rope.number("high_freq_factor", 0) != kHighTurns ||
      rope.number("original_max_position_embeddings", 0) != kScaledPositions)
    report(
        "only low_freq_factor 1, high_freq_factor 4 and original_max_position_embeddings 8192 are supported");
}

}  // namespace

ModelConfig read_llama(ConfigReader& from) {
  ModelConfig model;
  model.normalization = Normalization::RmsNorm;
  model.position_embedding_type = PositionEmbedding::Rope;
  model.swiglu = true;
  model.num_layers = from.size("num_hidden_layers");
  model.hidden_size = from.size("hidden_size");
  model.num_attention_heads = from.size("num_attention_heads");
  const int64_t groups = from.size("num_key_value_heads", model.num_attention_heads);
  model.group_query_attention = groups != model.num_attention_heads;
  if (model.group_query_attention) model.num_query_groups = groups;
  const int64_t heads = std::max<int64_t>(1, model.num_attention_heads);
  const int64_t width = from.size("head_dim", model.hidden_size / heads);
  if (width * heads != model.hidden_size) model.kv_channels = width;
  model.ffn_hidden_size = from.size("intermediate_size");
  model.max_position_embeddings = from.size("max_position_embeddings");
  model.vocab_size = from.size("vocab_size");
  model.norm_epsilon = from.number("rms_norm_eps", 1e-6);
  model.init_method_std = from.number("initializer_range", 0.02);
  model.attention_dropout = from.number("attention_dropout", 0);
  model.untie_embeddings_and_output_weights = !from.flag("tie_word_embeddings", false);
  model.disable_bias_linear = !from.flag("attention_bias", false);
  if (from.flag("mlp_bias", false) == model.disable_bias_linear)
    from.problem("'attention_bias' and 'mlp_bias' differ; biases are everywhere or nowhere here");
  from.must_be("hidden_act", {"silu"}, "silu");
  from.must_be("pretraining_tp", {1}, 1);
  from.must_be("partial_rotary_factor", {1}, 1);
  read_rotary(from, model);
  return model;
}

json llama_json(const ModelConfig& model) {
  json config{{"architectures", {"LlamaForCausalLM"}},
              {"model_type", "llama"},
              {"hidden_act", "silu"},
              {"num_hidden_layers", model.num_layers},
              {"hidden_size", model.hidden_size},
              {"num_attention_heads", model.num_attention_heads},
              {"num_key_value_heads", key_heads(model)},
              {"head_dim", head_width(model)},
              {"intermediate_size", *model.ffn_hidden_size},
              {"max_position_embeddings", *model.max_position_embeddings},
              {"rms_norm_eps", model.norm_epsilon},
              {"attention_bias", !model.disable_bias_linear},
              {"mlp_bias", !model.disable_bias_linear},
              {"attention_dropout", model.attention_dropout},
              {"rope_theta", model.rotary_base}};
  if (model.use_rope_scaling)
    config["rope_scaling"] = {{"rope_type", "llama3"},
                              {"factor", model.rope_scaling_factor},
                              {"low_freq_factor", kLowTurns},
                              {"high_freq_factor", kHighTurns},
                              {"original_max_position_embeddings", static_cast<int64_t>(kScaledPositions)}};
  if (model.rotary_seq_len_interpolation_factor != 1)
    config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", model.rotary_seq_len_interpolation_factor}};
  if (model.rope_type == RopeType::Yarn)
    config["rope_scaling"] = {{"rope_type", "yarn"},
                              {"factor", model.rotary_scaling_factor},
                              {"original_max_position_embeddings", model.original_max_position_embeddings},
                              {"beta_fast", model.beta_fast},
                              {"beta_slow", model.beta_slow},
                              {"attention_factor", std::sqrt(rotary_score_scale(model))}};
  return config;
}

namespace {

std::vector<std::string> llama_misses(const ModelConfig& model) {
  return not_met(
      {{!model.qk_layernorm, "no --qk-layernorm"},
       {!model.add_qkv_bias, "no --add-qkv-bias"},
       {!model.multi_latent_attention, "no --multi-latent-attention"},
       {model.position_embedding_type == PositionEmbedding::Rope, "--position-embedding-type rope"},
       {model.rotary_percent == 1, "--rotary-percent 1"},
       {model.swiglu, "--swiglu"},
       {model.hidden_dropout == 0, "--hidden-dropout 0"}});
}

// Tables of angles, and a tied head.
bool llama_ignores(const std::string& theirs, const ModelConfig& model) {
  if (theirs == "lm_head.weight") return !model.untie_embeddings_and_output_weights;
  return theirs.ends_with(".rotary_emb.inv_freq");
}

}  // namespace

const HuggingFaceFamily& llama_family() {
  static const HuggingFaceFamily kFamily{
      "Llama",
      "llama",
      {"model.",
       "layers.",
       {{"norm1.gain", {"input_layernorm.weight"}},
        {"attention.qkv.weight",
         {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"}},
        {"attention.qkv.bias", {"self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"}},
        {"attention.query.weight", {"self_attn.q_proj.weight"}},
        {"attention.query.bias", {"self_attn.q_proj.bias"}},
        {"attention.key_value.weight", {"self_attn.k_proj.weight", "self_attn.v_proj.weight"}},
        {"attention.key_value.bias", {"self_attn.k_proj.bias", "self_attn.v_proj.bias"}},
        {"attention.out.weight", {"self_attn.o_proj.weight"}},
        {"attention.out.bias", {"self_attn.o_proj.bias"}},
        {"norm2.gain", {"post_attention_layernorm.weight"}},
        {"mlp.up.weight", {"mlp.gate_proj.weight", "mlp.up_proj.weight"}},
        {"mlp.up.bias", {"mlp.gate_proj.bias", "mlp.up_proj.bias"}},
        {"mlp.down.weight", {"mlp.down_proj.weight"}},
        {"mlp.down.bias", {"mlp.down_proj.bias"}}},
       {{"embedding.tokens.weight", {"embed_tokens.weight"}}, {"final_norm.gain", {"norm.weight"}}}},
      read_llama,
      llama_json,
      llama_misses,
      llama_ignores,
      [](const ModelConfig&) { return "CausalLM"; }};
  return kFamily;
}

}  // namespace trifold
