// DistilBERT: BERT without pairs and types of tokens. Its norms have one epsilon, which no field says.
#include "models/hugging_face/hugging_face_family.h"

namespace trifold {

namespace {

using nlohmann::json;

constexpr double kDistilBertEpsilon = 1e-12;

ConfigFields distilbert_fields() {
  return {field({"vocab_size"}, 30522),
          field({"max_position_embeddings"}, 512),
          fixed("sinusoidal_pos_embds", false),  // with true, positions are not trained
          field({"num_hidden_layers", "n_layers"}, 6),
          field({"num_attention_heads", "n_heads"}, 12),
          field({"hidden_size", "dim"}, 768),
          field({"hidden_dim"}, 3072),
          field({"dropout"}, 0.1),
          field({"attention_dropout"}, 0.1),
          field({"activation"}, "gelu"),
          field({"initializer_range"}, 0.02),
          unused({"qa_dropout"}, 0.1),
          unused({"seq_classif_dropout"}, 0.2),
          unused({"pad_token_id"}, 0),
          unused({"eos_token_id"}),
          unused({"bos_token_id"}),
          fixed("tie_word_embeddings", true),
          field({"architectures"}, nullptr),  // the base class has it
          unused({"use_cache"}).beyond_class(),
          unused({"tie_weights_"}).beyond_class()};
}

// Trifold also drops the output of attention at the rate of 'dropout', which transformers does not.
ModelConfig read_distilbert(ConfigReader& from) {
  ModelConfig model;
  model.model_type = ModelType::Bert;
  model.num_layers = from.size("n_layers");
  model.hidden_size = from.size("dim");
  model.num_attention_heads = from.size("n_heads");
  model.ffn_hidden_size = from.size("hidden_dim");
  model.max_position_embeddings = from.size("max_position_embeddings");
  model.vocab_size = from.size("vocab_size");
  model.init_method_std = from.number("initializer_range");
  model.norm_epsilon = kDistilBertEpsilon;
  model.hidden_dropout = from.number("dropout");
  model.attention_dropout = from.number("attention_dropout");
  model.num_tokentypes = 0;
  read_gelu(from, "activation", model);
  read_masked_words(from, model, "DistilBertForMaskedLM");
  return model;
}

json distilbert_json(const ModelConfig& model) {
  return {{"architectures", {"DistilBertForMaskedLM"}},
          {"model_type", "distilbert"},
          {"n_layers", model.num_layers},
          {"dim", model.hidden_size},
          {"n_heads", model.num_attention_heads},
          {"hidden_dim", *model.ffn_hidden_size},
          {"max_position_embeddings", *model.max_position_embeddings},
          {"activation", gelu_name(model)},
          {"sinusoidal_pos_embds", false},
          {"dropout", model.hidden_dropout},
          {"attention_dropout", model.attention_dropout}};
}

std::vector<std::string> distilbert_misses(const ModelConfig& model) {
  return not_met({{model.num_tokentypes == 0, "--num-tokentypes 0"}}, masked_words_miss(model));
}

// The head repeats the embedding, and older files hold computed positions.
bool distilbert_ignores(const std::string& theirs, const ModelConfig&) {
  return theirs == "vocab_projector.weight" || theirs.ends_with("embeddings.position_ids");
}

TensorNames distilbert_names() {
  return {"distilbert.",
          "transformer.layer.",
          {{"attention.qkv.weight",
            {"attention.q_lin.weight", "attention.k_lin.weight", "attention.v_lin.weight"}},
           {"attention.qkv.bias", {"attention.q_lin.bias", "attention.k_lin.bias", "attention.v_lin.bias"}},
           {"attention.out.weight", {"attention.out_lin.weight"}},
           {"attention.out.bias", {"attention.out_lin.bias"}},
           {"norm1.gain", {"sa_layer_norm.weight"}},
           {"norm1.bias", {"sa_layer_norm.bias"}},
           {"mlp.up.weight", {"ffn.lin1.weight"}},
           {"mlp.up.bias", {"ffn.lin1.bias"}},
           {"mlp.down.weight", {"ffn.lin2.weight"}},
           {"mlp.down.bias", {"ffn.lin2.bias"}},
           {"norm2.gain", {"output_layer_norm.weight"}},
           {"norm2.bias", {"output_layer_norm.bias"}}},
          {{"embedding.tokens.weight", {"embeddings.word_embeddings.weight"}},
           {"embedding.positions.weight", {"embeddings.position_embeddings.weight"}},
           {"embedding.norm.gain", {"embeddings.LayerNorm.weight"}},
           {"embedding.norm.bias", {"embeddings.LayerNorm.bias"}}},
          {{"head.dense.weight", {"vocab_transform.weight"}},
           {"head.dense.bias", {"vocab_transform.bias"}},
           {"head.norm.gain", {"vocab_layer_norm.weight"}},
           {"head.norm.bias", {"vocab_layer_norm.bias"}},
           {"head.bias", {"vocab_projector.bias"}}}};
}

}  // namespace

const HuggingFaceFamily& distilbert_family() {
  static const HuggingFaceFamily kFamily{
      .name = "DistilBERT",
      .type = "distilbert",
      .fields = distilbert_fields(),
      .names = distilbert_names(),
      .read = read_distilbert,
      .write = distilbert_json,
      .missing = distilbert_misses,
      .ignores = distilbert_ignores,
      .tied = [](const ModelConfig&) -> std::vector<TiedTensors> {
        return {{"vocab_projector.weight", "distilbert.embeddings.word_embeddings.weight"}};
      },
      .auto_class = [](const ModelConfig&) { return "MaskedLM"; },
      .may_untie = false,
      .model = ModelType::Bert};
  return kFamily;
}

}  // namespace trifold
