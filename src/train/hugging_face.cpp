#include "train/hugging_face.h"

#include <algorithm>
#include <array>
#include <map>

#include "config/validate.h"
#include "models/language_model.h"

namespace trifold {

namespace {

using nlohmann::json;

bool is_llama(const ModelConfig& model) { return model.normalization == "RMSNorm"; }

// The names of one family. Those in a block come after "block.<n>." and "h.<n>."; those of a head have no
// prefix.
struct Names {
  struct Entry {
    std::string_view ours;
    std::vector<std::string_view> theirs;
    bool transposed = false;
  };
  std::string prefix, block;
  std::vector<Entry> in_block, outside, head = {};
};

const Names& gpt2_names() {
  static const Names kNames{"transformer.",
                            "h.",
                            {{"norm1.gain", {"ln_1.weight"}},
                             {"norm1.bias", {"ln_1.bias"}},
                             {"attention.qkv.weight", {"attn.c_attn.weight"}, true},
                             {"attention.qkv.bias", {"attn.c_attn.bias"}},
                             {"attention.out.weight", {"attn.c_proj.weight"}, true},
                             {"attention.out.bias", {"attn.c_proj.bias"}},
                             {"norm2.gain", {"ln_2.weight"}},
                             {"norm2.bias", {"ln_2.bias"}},
                             {"mlp.up.weight", {"mlp.c_fc.weight"}, true},
                             {"mlp.up.bias", {"mlp.c_fc.bias"}},
                             {"mlp.down.weight", {"mlp.c_proj.weight"}, true},
                             {"mlp.down.bias", {"mlp.c_proj.bias"}}},
                            {{"embedding.tokens.weight", {"wte.weight"}},
                             {"embedding.positions.weight", {"wpe.weight"}},
                             {"final_norm.gain", {"ln_f.weight"}},
                             {"final_norm.bias", {"ln_f.bias"}}}};
  return kNames;
}

const Names& llama_names() {
  static const Names kNames{
      "model.",
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
      {{"embedding.tokens.weight", {"embed_tokens.weight"}}, {"final_norm.gain", {"norm.weight"}}}};
  return kNames;
}

const Names& bert_names() {
  static const Names kNames{
      "bert.",
      "encoder.layer.",
      {{"attention.qkv.weight",
        {"attention.self.query.weight", "attention.self.key.weight", "attention.self.value.weight"}},
       {"attention.qkv.bias",
        {"attention.self.query.bias", "attention.self.key.bias", "attention.self.value.bias"}},
       {"attention.out.weight", {"attention.output.dense.weight"}},
       {"attention.out.bias", {"attention.output.dense.bias"}},
       {"norm1.gain", {"attention.output.LayerNorm.weight"}},
       {"norm1.bias", {"attention.output.LayerNorm.bias"}},
       {"mlp.up.weight", {"intermediate.dense.weight"}},
       {"mlp.up.bias", {"intermediate.dense.bias"}},
       {"mlp.down.weight", {"output.dense.weight"}},
       {"mlp.down.bias", {"output.dense.bias"}},
       {"norm2.gain", {"output.LayerNorm.weight"}},
       {"norm2.bias", {"output.LayerNorm.bias"}}},
      {{"embedding.tokens.weight", {"embeddings.word_embeddings.weight"}},
       {"embedding.positions.weight", {"embeddings.position_embeddings.weight"}},
       {"embedding.types.weight", {"embeddings.token_type_embeddings.weight"}},
       {"embedding.norm.gain", {"embeddings.LayerNorm.weight"}},
       {"embedding.norm.bias", {"embeddings.LayerNorm.bias"}},
       {"pooler.weight", {"pooler.dense.weight"}},
       {"pooler.bias", {"pooler.dense.bias"}}},
      {{"head.dense.weight", {"cls.predictions.transform.dense.weight"}},
       {"head.dense.bias", {"cls.predictions.transform.dense.bias"}},
       {"head.norm.gain", {"cls.predictions.transform.LayerNorm.weight"}},
       {"head.norm.bias", {"cls.predictions.transform.LayerNorm.bias"}},
       {"head.bias", {"cls.predictions.bias"}},
       {"pair.weight", {kPairTensor}},
       {"pair.bias", {"cls.seq_relationship.bias"}},
       {"classes.weight", {"classifier.weight"}},
       {"classes.bias", {"classifier.bias"}},
       {"answer.weight", {"qa_outputs.weight"}}}};
  return kNames;
}

const Names& names_of(const ModelConfig& model) {
  if (is_bert(model)) return bert_names();
  return is_llama(model) ? llama_names() : gpt2_names();
}

WeightMap map_of(const std::string& ours, const Shape& shape, const Names& names) {
  WeightMap map{ours, shape, {}, false, ours.ends_with(".bias") || ours.ends_with(".gain")};
  if (ours == "head.weight") {
    map.theirs = {"lm_head.weight"};
    return map;
  }
  std::string_view rest = ours;
  std::string before = names.prefix;
  const bool in_block = ours.starts_with("block.");
  if (in_block) {
    rest.remove_prefix(std::string_view("block.").size());
    const size_t dot = rest.find('.');
    before += names.block + std::string(rest.substr(0, dot + 1));
    rest.remove_prefix(dot + 1);
  }
  const auto take = [&](const std::vector<Names::Entry>& entries, const std::string& prefix) {
    for (const Names::Entry& entry : entries) {
      if (entry.ours != rest) continue;
      for (const std::string_view theirs : entry.theirs) map.theirs.push_back(prefix + std::string(theirs));
      map.transposed = entry.transposed;
    }
  };
  take(in_block ? names.in_block : names.outside, before);
  if (!in_block) take(names.head, "");
  if (!map.theirs.empty()) return map;
  fail("the parameter {} has no name in transformers", ours);
}

// Problems are collected, so that one look shows all of them.
class ConfigReader {
 public:
  explicit ConfigReader(const json& config) : config_(config) {}

  bool has(const char* key) const { return config_.contains(key) && !config_[key].is_null(); }

  int64_t size(const char* key, std::optional<int64_t> absent = {}) {
    if (!has(key) && absent) return *absent;
    if (has(key) && config_[key].is_number_integer()) return config_[key].get<int64_t>();
    problems_.push_back(fmt::format("'{}' {}", key, has(key) ? "is no whole number" : "is missing"));
    return 0;
  }
  double number(const char* key, double absent) {
    if (!has(key)) return absent;
    if (config_[key].is_number()) return config_[key].get<double>();
    problems_.push_back(fmt::format("'{}' is no number", key));
    return absent;
  }
  bool flag(const char* key, bool absent) {
    if (!has(key)) return absent;
    if (config_[key].is_boolean()) return config_[key].get<bool>();
    problems_.push_back(fmt::format("'{}' is neither true nor false", key));
    return absent;
  }
  // Where only some values can be computed here.
  void must_be(const char* key, const std::vector<json>& supported, const json& absent) {
    const json value = has(key) ? config_[key] : absent;
    if (std::find(supported.begin(), supported.end(), value) == supported.end())
      problems_.push_back(
          fmt::format("'{}' is {}; only {} is supported", key, text(value), text(supported[0])));
  }
  void problem(std::string text) { problems_.push_back(std::move(text)); }
  const json& at(const char* key) const { return config_[key]; }
  void finish(const std::string& where) const {
    if (!problems_.empty())
      bad_input("{} is of a model that cannot be taken over:\n  {}", where, fmt::join(problems_, "\n  "));
  }

 private:
  static std::string text(const json& value) {
    return value.dump(-1, ' ', false, json::error_handler_t::replace);
  }

  const json& config_;
  std::vector<std::string> problems_;
};

// "gelu" is erf's form there.
void read_gelu(ConfigReader& from, const char* key, const char* absent, ModelConfig& model) {
  from.must_be(key, {"gelu_new", "gelu_pytorch_tanh", "gelu"}, absent);
  if ((from.has(key) ? from.at(key) : json(absent)) == "gelu") model.gelu = "erf";
}

const char* gelu_name(const ModelConfig& model) { return model.gelu == "erf" ? "gelu" : "gelu_new"; }

ModelConfig read_gpt2(ConfigReader& from) {
  ModelConfig model;
  model.num_layers = from.size("n_layer");
  model.hidden_size = from.size("n_embd");
  model.num_attention_heads = from.size("n_head");
  model.ffn_hidden_size = from.size("n_inner", 4 * model.hidden_size);
  model.max_position_embeddings = from.size("n_positions");
  model.vocab_size = from.size("vocab_size");
  model.norm_epsilon = from.number("layer_norm_epsilon", 1e-5);
  model.init_method_std = from.number("initializer_range", 0.02);
  // One number here for the embedding and for what is added to the residual stream.
  model.hidden_dropout = from.number("resid_pdrop", 0.1);
  if (from.number("embd_pdrop", 0.1) != model.hidden_dropout)
    from.problem("'embd_pdrop' and 'resid_pdrop' differ; give both the same value");
  model.attention_dropout = from.number("attn_pdrop", 0.1);
  model.untie_embeddings_and_output_weights = !from.flag("tie_word_embeddings", true);
  read_gelu(from, "activation_function", "gelu_new", model);
  from.must_be("scale_attn_weights", {true}, true);
  from.must_be("scale_attn_by_inverse_layer_idx", {false}, false);
  from.must_be("add_cross_attention", {false}, false);
  return model;
}

constexpr double kLowTurns = 1, kHighTurns = 4, kScaledPositions = 8192;  // as in models/gpt.cpp

// Newer versions of the library keep all of it in 'rope_parameters', older ones in two fields.
void read_rotary(ConfigReader& from, ModelConfig& model) {
  model.rotary_base = from.number("rope_theta", 10000);
  const char* key = from.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!from.has(key)) return;
  ConfigReader rope(from.at(key));
  const auto report = [&](const char* what) { from.problem(fmt::format("'{}': {}", key, what)); };
  if (!from.at(key).is_object()) return report("it is no object");
  model.rotary_base = rope.number("rope_theta", model.rotary_base);
  const char* name = rope.has("rope_type") ? "rope_type" : "type";
  const json type = rope.has(name) ? rope.at(name) : json("default");
  if (type == "default") return;
  if (type != "llama3") return report("only the types default and llama3 are supported");
  model.use_rope_scaling = true;
  model.rope_scaling_factor = rope.number("factor", 0);
  if (rope.number("low_freq_factor", 0) != kLowTurns || rope.number("high_freq_factor", 0) != kHighTurns ||
      rope.number("original_max_position_embeddings", 0) != kScaledPositions)
    report(
        "only low_freq_factor 1, high_freq_factor 4 and original_max_position_embeddings 8192 are supported");
}

ModelConfig read_llama(ConfigReader& from) {
  ModelConfig model;
  model.normalization = "RMSNorm";
  model.position_embedding_type = "rope";
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
  read_rotary(from, model);
  return model;
}

// A model that was tuned for a task says so, and what its classes are called; two without names are usual.
void read_task(ConfigReader& from, ModelConfig& model) {
  const json kind = from.has("architectures") ? from.at("architectures") : json::array();
  if (kind == json({"BertForQuestionAnswering"})) model.bert_head = "span";
  if (kind != json({"BertForSequenceClassification"})) return;
  model.bert_head = "classes";
  const json names = from.has("id2label") ? from.at("id2label") : json{{"0", "LABEL_0"}, {"1", "LABEL_1"}};
  for (size_t id = 0; names.is_object() && id < names.size(); ++id) {
    const json name = names.value(std::to_string(id), json());
    if (!name.is_string()) return from.problem(fmt::format("'id2label' gives class {} no name", id));
    model.class_names.push_back(name.get<std::string>());
  }
  if (model.class_names.size() < 2) from.problem("one label is a regression, which there is no head for");
  from.must_be("problem_type", {"single_label_classification"}, "single_label_classification");
}

ModelConfig read_bert(ConfigReader& from) {
  ModelConfig model;
  model.model_type = "bert";
  model.num_layers = from.size("num_hidden_layers", 12);
  model.hidden_size = from.size("hidden_size", 768);
  model.num_attention_heads = from.size("num_attention_heads", 12);
  model.ffn_hidden_size = from.size("intermediate_size", 3072);
  model.max_position_embeddings = from.size("max_position_embeddings", 512);
  model.vocab_size = from.size("vocab_size", 30522);
  model.norm_epsilon = from.number("layer_norm_eps", 1e-12);
  model.init_method_std = from.number("initializer_range", 0.02);
  model.hidden_dropout = from.number("hidden_dropout_prob", 0.1);
  model.attention_dropout = from.number("attention_probs_dropout_prob", 0.1);
  read_gelu(from, "hidden_act", "gelu", model);
  read_task(from, model);
  from.must_be("type_vocab_size", {2}, 2);
  from.must_be("position_embedding_type", {"absolute"}, "absolute");
  from.must_be("tie_word_embeddings", {true}, true);
  from.must_be("is_decoder", {false}, false);
  from.must_be("add_cross_attention", {false}, false);
  return model;
}

json gpt2_json(const ModelConfig& model) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"activation_function", gelu_name(model)},
          {"n_layer", model.num_layers},
          {"n_embd", model.hidden_size},
          {"n_head", model.num_attention_heads},
          {"n_inner", *model.ffn_hidden_size},
          {"n_positions", *model.max_position_embeddings},
          {"n_ctx", *model.max_position_embeddings},
          {"layer_norm_epsilon", model.norm_epsilon},
          {"resid_pdrop", model.hidden_dropout},
          {"embd_pdrop", model.hidden_dropout},
          {"attn_pdrop", model.attention_dropout}};
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
  return config;
}

const char* bert_architecture(const ModelConfig& model) {
  if (model.bert_head == "classes") return "BertForSequenceClassification";
  if (model.bert_head == "span") return "BertForQuestionAnswering";
  return model.bert_no_binary_head ? "BertForMaskedLM" : "BertForPreTraining";
}

json bert_json(const ModelConfig& model) {
  json config{{"architectures", {bert_architecture(model)}},
              {"model_type", "bert"},
              {"hidden_act", gelu_name(model)},
              {"num_hidden_layers", model.num_layers},
              {"hidden_size", model.hidden_size},
              {"num_attention_heads", model.num_attention_heads},
              {"intermediate_size", *model.ffn_hidden_size},
              {"max_position_embeddings", *model.max_position_embeddings},
              {"type_vocab_size", 2},
              {"position_embedding_type", "absolute"},
              {"layer_norm_eps", model.norm_epsilon},
              {"hidden_dropout_prob", model.hidden_dropout},
              {"attention_probs_dropout_prob", model.attention_dropout}};
  for (size_t id = 0; id < model.class_names.size(); ++id) {
    config["id2label"][std::to_string(id)] = model.class_names[id];
    config["label2id"][model.class_names[id]] = id;
  }
  return config;
}

// Which fields keep a model from being one of a family. A BERT has no such fields but one.
std::vector<std::string> foreign_fields(const ModelConfig& model) {
  std::vector<std::string> problems;
  const bool llama = is_llama(model);
  const char* family = llama ? "Llama" : is_bert(model) ? "BERT" : "GPT-2";
  const auto need = [&](bool fits, const char* what) {
    if (!fits) problems.push_back(fmt::format("{} has {}", family, what));
  };
  if (is_bert(model)) {
    need(head_width(model) * model.num_attention_heads == model.hidden_size, "no other --kv-channels");
    return problems;
  }
  need(!model.qk_layernorm, "no --qk-layernorm");
  if (llama) {
    need(model.position_embedding_type == "rope", "--position-embedding-type rope");
    need(model.rotary_percent == 1, "--rotary-percent 1");
    need(model.swiglu, "--swiglu");
    need(model.hidden_dropout == 0, "--hidden-dropout 0");
  } else {
    need(model.position_embedding_type == "learned_absolute", "--position-embedding-type learned_absolute");
    need(!model.swiglu, "no --swiglu");
    need(!model.disable_bias_linear, "no --disable-bias-linear");
    need(key_heads(model) == model.num_attention_heads, "as many key heads as query heads");
    need(head_width(model) * model.num_attention_heads == model.hidden_size, "no other --kv-channels");
  }
  return problems;
}

// All rules of a training run hold for the model, whatever mesh.
ModelConfig resolved(ModelConfig model) {
  PlanConfig plan;
  plan.run.model = std::move(model);
  plan.run.batch.micro_batch_size = 1;
  return resolve(std::move(plan)).run.model;
}

}  // namespace

std::vector<int64_t> WeightMap::their_shape() const {
  if (vector) return {rows_each()};
  if (transposed) return {columns(), rows_each()};
  return {rows_each(), columns()};
}

std::vector<WeightMap> weight_map(const ModelConfig& model) {
  const Model made = make_model(model, Mesh(MeshSizes{}, MeshCoords{}), 0);
  std::vector<WeightMap> maps;
  for (const ParamSpec& param : made.params.specs()) {
    if (param.tied_to) continue;
    Shape shape = param.shard.global;
    if (param.rows) shape[0] = *param.rows;
    maps.push_back(map_of(param.shard.name, shape, names_of(model)));
  }
  return maps;
}

std::string name_prefix(const ModelConfig& model) { return names_of(model).prefix; }

bool is_no_parameter(const std::string& theirs, const ModelConfig& model) {
  if (is_bert(model)) {  // the decoder is the embedding once more; older files hold poolers that nothing uses
    const bool pools = model.bert_head == "classes" || (!has_task_head(model) && !model.bert_no_binary_head);
    return theirs.starts_with("cls.predictions.decoder.") || theirs.ends_with("embeddings.position_ids") ||
           theirs == "qa_outputs.bias" ||  // it would shift all places alike
           (!pools && theirs.find("pooler.dense.") != std::string::npos);
  }
  if (theirs == "lm_head.weight") return !model.untie_embeddings_and_output_weights;
  for (const char* ending : {".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"})
    if (theirs.ends_with(ending)) return true;
  return false;
}

json to_hugging_face(const ModelConfig& model) {
  if (const auto problems = foreign_fields(model); !problems.empty())
    bad_input("transformers has no model like this one:\n  {}", fmt::join(problems, "\n  "));
  json config = is_bert(model) ? bert_json(model) : is_llama(model) ? llama_json(model) : gpt2_json(model);
  config["vocab_size"] = *model.vocab_size;
  config["initializer_range"] = model.init_method_std;
  config["tie_word_embeddings"] = !model.untie_embeddings_and_output_weights;
  config["use_cache"] = true;
  return config;
}

ModelConfig from_hugging_face(const json& config, const std::string& where) {
  if (!config.is_object()) bad_input("{} is no JSON object", where);
  ConfigReader from(config);
  const json type = from.has("model_type") ? config["model_type"] : json();
  ModelConfig model;
  if (type == "gpt2")
    model = read_gpt2(from);
  else if (type == "llama")
    model = read_llama(from);
  else if (type == "bert")
    model = read_bert(from);
  else
    bad_input("{}: its 'model_type' is {}; gpt2, llama and bert are supported", where,
              type.dump(-1, ' ', false, json::error_handler_t::replace));
  from.finish(where);
  model.seq_length = *model.max_position_embeddings;
  try {
    return resolved(std::move(model));
  } catch (Error& error) {
    error.add_context(where);
    throw;
  }
}

}  // namespace trifold
