// gpt-oss: mixtures of experts with biases and bounded gates, windows in every other layer, and sinks. The files hold
// one tensor for all experts of a layer, in which rows of gates and of what they multiply alternate; published ones are
// quantised (MXFP4).
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/read_json.h"
#include "models/hugging_face/hugging_face_family.h"

namespace trifold {

namespace {

using nlohmann::json;

json standard_rope() {
  return {{"rope_type", "yarn"}, {"factor", 32.0},    {"beta_fast", 32.0},
          {"beta_slow", 1.0},    {"truncate", false}, {"original_max_position_embeddings", 4096}};
}

constexpr RopeStyle kGptOssRope{.base = 150000, .absent = standard_rope};
constexpr double kGateSlope = 1.702;  // the slope of --quick-geglu

ConfigFields gpt_oss_fields() {
  return joined({{field({"num_hidden_layers"}, 36),
                  field({"num_experts", "num_local_experts"}, 128),
                  field({"vocab_size"}, 201088),
                  field({"hidden_size"}, 2880),
                  field({"intermediate_size"}, 2880),
                  field({"head_dim"}, 64).or_null(),
                  field({"num_attention_heads"}, 64),
                  field({"num_key_value_heads"}, 8).or_null(),
                  field({"sliding_window"}, 128).or_null(),
                  field({"tie_word_embeddings"}, false),
                  fixed("hidden_act", "silu", {"swish"}),
                  field({"initializer_range"}, 0.02),
                  field({"max_position_embeddings"}, 131072),
                  field({"rms_norm_eps"}, 1e-5),
                  field({"attention_dropout"}, 0.0),
                  field({"num_experts_per_tok"}, 4),
                  field({"swiglu_alpha"}, kGateSlope),
                  field({"swiglu_limit"}, 7.0),
                  field({"router_aux_loss_coef"}, 0.001),
                  field({"output_router_logits"}, false),
                  unused({"use_cache"}, true),
                  field({"layer_types"}, nullptr),
                  unused({"pad_token_id"}),
                  unused({"bos_token_id"}),
                  unused({"eos_token_id"}),
                  field({"attention_bias"}, true),
                  field({"experts_per_token"}, nullptr).beyond_class(),
                  field({"initial_context_length"}, nullptr).beyond_class()},
                 rope_fields(kGptOssRope)});
}

// Other programs read these instead of the fields of transformers.
void compare_second_names(ConfigReader& from, const ModelConfig& model) {
  const auto expect = [&](const char* name, const char* other, int64_t value) {
    if (const json& given = from.value(name); !given.is_null() && given != value)
      from.problem(fmt::format("'{}' is {}, but '{}' is {}; give them one value", name, printable_json(given),
                               other, value));
  };
  expect("experts_per_token", "num_experts_per_tok", model.moe_router_topk);
  if (model.rope_type == RopeType::Yarn)
    expect("initial_context_length", "original_max_position_embeddings",
           model.original_max_position_embeddings);
}

void read_gates(ConfigReader& from, ModelConfig& model) {
  const double slope = from.number("swiglu_alpha"), limit = from.number("swiglu_limit");
  if (slope != 1 && slope != kGateSlope)
    from.problem(fmt::format("'swiglu_alpha' is {}; only {} and 1 are supported", slope, kGateSlope));
  if (!(limit > 0)) from.problem(fmt::format("'swiglu_limit' is {}; a number above 0 is needed", limit));
  model.quick_geglu = slope != 1;
  model.swiglu = slope == 1;
  model.activation_func_clamp_value = limit;
  model.glu_linear_offset = 1;
}

ModelConfig read_gpt_oss(ConfigReader& from) {
  ModelConfig model = read_sizes(from);
  model.normalization = Normalization::RmsNorm;
  model.position_embedding_type = PositionEmbedding::Rope;
  model.softmax_type = SoftmaxType::Learnable;
  read_groups(from, model);
  read_head_width(from, model);
  model.norm_epsilon = from.number("rms_norm_eps");
  model.attention_dropout = from.number("attention_dropout");
  model.untie_embeddings_and_output_weights = !from.flag("tie_word_embeddings");
  model.disable_bias_linear = model.add_mlp_bias = !from.flag("attention_bias");
  model.num_experts = from.size("num_experts");
  model.moe_router_topk = read_choices(from, "num_experts", *model.num_experts);
  read_gates(from, model);
  read_rope(from, model, kGptOssRope);
  compare_second_names(from, model);
  // Without a list of types, every other layer has a window, from the first one on.
  constexpr int64_t kMostLayers = 1 << 20;
  std::vector<bool> windows;
  for (int64_t layer = 0; layer < std::min(model.num_layers, kMostLayers); ++layer)
    windows.push_back(layer % 2 == 0);
  read_windows(from, model, from.size_or_null("sliding_window"), std::move(windows));
  read_balance_loss(from, model);
  return model;
}

json gpt_oss_json(const ModelConfig& model) {
  json config = llama_json(model);
  config.erase("mlp_bias");
  config.update({{"architectures", {"GptOssForCausalLM"}},
                 {"model_type", "gpt_oss"},
                 {"intermediate_size", expert_width(model)},
                 {"num_local_experts", *model.num_experts},
                 {"num_experts_per_tok", model.moe_router_topk},
                 {"experts_per_token", model.moe_router_topk},
                 {"swiglu_alpha", model.quick_geglu ? kGateSlope : 1.0},
                 {"swiglu_limit", model.activation_func_clamp_value.value_or(0)},
                 {"sliding_window", window_json(model)},
                 {"layer_types", layer_types_json(model)}});
  // transformers computes no gpt-oss without a window, and scales rope in its own way unless a file says how.
  if (config["sliding_window"].is_null()) config["sliding_window"] = *model.max_position_embeddings;
  if (!config.contains("rope_scaling")) config["rope_scaling"] = {{"rope_type", "default"}};
  if (model.rope_type == RopeType::Yarn) {
    const bool standard = !model.rotary_attention_factor && model.mscale == 1 && model.mscale_all_dim == 0;
    if (standard) config["rope_scaling"].erase("attention_factor");
    config["initial_context_length"] = model.original_max_position_embeddings;
  }
  write_balance_loss(config, model);
  return config;
}

std::vector<std::string> gpt_oss_misses(const ModelConfig& model) {
  return not_met(
      {{model.num_experts.has_value(), "--num-experts"},
       {model.num_experts.has_value() && count_expert_layers(model) == model.num_layers,
        "--moe-layer-freq 1"},
       {!model.moe_shared_expert_intermediate_size, "no --moe-shared-expert-intermediate-size"},
       {model.moe_router_score_function == RouterScore::Softmax, "--moe-router-score-function softmax"},
       {!model.moe_router_pre_softmax, "no --moe-router-pre-softmax"},
       {!model.moe_router_enable_expert_bias, "no --moe-router-enable-expert-bias"},
       {!model.moe_router_num_groups, "no --moe-router-num-groups"},
       {model.moe_router_topk_scaling_factor == 1, "--moe-router-topk-scaling-factor 1"},
       {!model.disable_bias_linear || model.add_mlp_bias, "--add-mlp-bias, or no --disable-bias-linear"},
       {model.normalization == Normalization::RmsNorm, "--normalization RMSNorm"},
       {!model.multi_latent_attention, "no --multi-latent-attention"},
       {model.position_embedding_type == PositionEmbedding::Rope, "--position-embedding-type rope"},
       {model.rotary_percent == 1, "--rotary-percent 1"},
       {model.swiglu || model.quick_geglu, "--quick-geglu"},
       {model.activation_func_clamp_value.has_value(), "--activation-func-clamp-value"},
       {model.softmax_type == SoftmaxType::Learnable, "--softmax-type learnable"},
       {!model.qk_layernorm, "no --qk-layernorm"},
       {model.hidden_dropout == 0, "--hidden-dropout 0"}});
}

TensorNames gpt_oss_names() {
  const auto each_row = [](const ModelConfig& model) { return expert_width(model); };
  constexpr int64_t kGateAndUp = 2;
  TensorNames names = llama_family().names;
  std::erase_if(names.in_block,
                [](const TensorNames::Entry& entry) { return entry.ours.starts_with("mlp."); });
  const std::vector<TensorNames::Entry> own{
      {"attention.sinks", {"self_attn.sinks"}},
      {"mlp.router.weight", {"mlp.router.weight"}},
      {"mlp.router.logits.bias", {"mlp.router.bias"}},
      {"mlp.experts.up.weight",
       {"mlp.experts.gate_up_proj"},
       true,
       {},
       each_row,
       kGateAndUp,
       true,
       "mlp.experts.gate_up_proj"},
      {"mlp.experts.up.bias", {"mlp.experts.gate_up_proj_bias"}, false, {}, each_row, kGateAndUp, true},
      {"mlp.experts.down.weight",
       {"mlp.experts.down_proj"},
       true,
       {},
       nullptr,
       1,
       true,
       "mlp.experts.down_proj"},
      {"mlp.experts.down.bias", {"mlp.experts.down_proj_bias"}, false, {}, nullptr, 1, true}};
  names.in_block.insert(names.in_block.end(), own.begin(), own.end());
  return names;
}

}  // namespace

const HuggingFaceFamily& gpt_oss_family() {
  static const HuggingFaceFamily kFamily{.name = "gpt-oss",
                                         .type = "gpt_oss",
                                         .fields = gpt_oss_fields(),
                                         .names = gpt_oss_names(),
                                         .read = read_gpt_oss,
                                         .write = gpt_oss_json,
                                         .missing = gpt_oss_misses,
                                         .ignores = llama_family().ignores,
                                         .tied = tied_head,
                                         .auto_class = llama_family().auto_class,
                                         .quantization = "mxfp4"};
  return kFamily;
}

}  // namespace trifold
