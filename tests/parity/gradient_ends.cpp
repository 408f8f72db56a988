// Embeddings, heads and losses of language models, for gradient_test.cpp.
#include "models/bert_tasks.h"
#include "models/gpt.h"
#include "parity/gradient_cases.h"

namespace trifold::test {
namespace {

ModelConfig tiny_model(double dropout) {
  ModelConfig config;
  config.num_layers = 1;
  config.hidden_size = kWidth;
  config.num_attention_heads = 4;
  config.ffn_hidden_size = 20;
  config.seq_length = kPositions;
  config.max_position_embeddings = kPositions + 2;
  config.vocab_size = kVocab;
  config.make_vocab_size_divisible_by = 16;
  config.hidden_dropout = dropout;
  config.attention_dropout = dropout;
  return config;
}

ModelConfig tiny_llama() {
  ModelConfig config = tiny_model(0.0);
  config.position_embedding_type = PositionEmbedding::Rope;
  config.normalization = Normalization::RmsNorm;
  return config;
}

ModelConfig with_multipliers(ModelConfig config) {
  config.embedding_multiplier = 3;
  config.logits_scaling = 0.25;
  config.final_logit_softcapping = 1.5;
  return config;
}

ModelConfig modern_model(double dropout) {
  ModelConfig config = tiny_model(dropout);
  config.model_type = ModelType::Bert;
  config.position_embedding_type = PositionEmbedding::Rope;
  config.num_tokentypes = 0;
  config.geglu = config.pre_norm = true;
  config.disable_bias_linear = config.disable_bias_norm = true;
  return config;
}

std::unique_ptr<NormedHead> normed(BlockBuilder& b, const ModelConfig& config, bool pairs) {
  Norm norm(b, "final_norm", kWidth, norm_form(config));
  return std::make_unique<NormedHead>(std::move(norm),
                                      std::make_unique<BertHead>(b, config, lone_table(b), 16, pairs));
}

ModelConfig tiny_classifier(double dropout) {
  ModelConfig config = tiny_model(dropout);
  config.class_names = {"one", "two", "three"};
  return config;
}

// Of one pair, whose margin is neither near 0 nor far from it.
ModelConfig with_pairs(ModelConfig config, PairLossKind loss, double label_smoothing = 0) {
  config.pair_loss = PairLossConfig{loss, 0.3, label_smoothing};
  return config;
}

std::unique_ptr<GptHead> head_of_pairs(BlockBuilder& b, const ModelConfig& config) {
  return std::make_unique<GptHead>(b, config, lone_table(b), 16, 4);
}

std::unique_ptr<GptHead> predicting_head(BlockBuilder& b, bool untied) {
  ModelConfig config = with_multipliers(tiny_llama());
  config.mtp_num_layers = 3;
  config.untie_embeddings_and_output_weights = untied;
  return std::make_unique<GptHead>(b, config, lone_table(b), 16, 4, FurtherLayers{llama_shape(2), untied});
}

// All parts of an output layer, one after the other. The vocabulary of 11 is padded to 16: the last part of 4 is
// padding.
class HeadInParts final : public Layer {
 public:
  HeadInParts(BlockBuilder& builder, ModelConfig config, int parts) {
    config.untie_embeddings_and_output_weights = true;
    for (int part = 0; part < parts; ++part)
      parts_.push_back(make_gpt_head_part(builder, config, {}, 16, {part, parts}));
  }
  Tensor forward(Run& run, Tensor x, Saved& saved) const override {
    for (const auto& part : parts_) x = part->forward(run, x, saved);
    return x;
  }
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override {
    for (size_t part = parts_.size(); part-- > 0;) dy = parts_[part]->backward_input(run, dy, saved);
    return dy;
  }
  void backward_weight(Run& run, Saved& saved) const override {
    for (size_t part = parts_.size(); part-- > 0;) parts_[part]->backward_weight(run, saved);
  }

 private:
  std::vector<std::unique_ptr<Layer>> parts_;
};

std::vector<GradientCase> gpt_end_cases() {
  const Placed none;
  const Placed rows = stream(kWidth);
  using B = BlockBuilder;
  return {
      {"VocabEmbedding",
       [](B& b) {
         return std::make_unique<VocabEmbedding>(b, "e", 16, AddedTables{kPositions}, kWidth, kNormal);
       },
       none, rows},
      {"VocabEmbedding",
       [](B& b) {
         return std::make_unique<VocabEmbedding>(b, "e", 16, AddedTables{kPositions}, kWidth, kNormal,
                                                 TokenParts{{0, 1, 2, 3}, 4});
       },
       none, rows},
      {"VocabEmbedding",  // adds the tokens of two parts, or positions alone, to what others found
       [](B& b) {
         return std::make_unique<VocabEmbedding>(b, "e", 16, AddedTables{}, kWidth, kNormal,
                                                 TokenParts{{1, 3}, 4});
       },
       rows, rows},
      {"VocabEmbedding",
       [](B& b) {
         return std::make_unique<VocabEmbedding>(b, "e", 16, AddedTables{kPositions}, kWidth, kNormal,
                                                 TokenParts{{}, 4});
       },
       rows, rows},
      {"VocabEmbedding",
       [](B& b) {
         return std::make_unique<VocabEmbedding>(b, "e", 16, AddedTables{kPositions, 0, 2}, kWidth, kNormal);
       },
       none, rows},
      {"VocabEmbedding",  // two rows of no position, and one type
       [](B& b) {
         return std::make_unique<VocabEmbedding>(b, "e", 16, AddedTables{kPositions, 2, 1}, kWidth, kNormal);
       },
       none, rows},
      {"VocabCrossEntropy",
       [](B& b) { return std::make_unique<VocabCrossEntropy>(b, "head", lone_table(b), kVocab); }, rows,
       none},
      {"VocabCrossEntropy",  // chunks of 4, 4 and 2 rows
       [](B& b) { return std::make_unique<VocabCrossEntropy>(b, "head", lone_table(b), kVocab, 4); }, rows,
       none},
      {"VocabCrossEntropy",
       [](B& b) {
         const ParamId table = lone_table(b);
         const ParamId bias = b.sharded("bias", {16}, 0, kNormal, false);
         return std::make_unique<VocabCrossEntropy>(b, "head", table, kVocab, 4, bias);
       },
       rows, none},
      {"GptEmbedding", [](B& b) { return std::make_unique<GptEmbedding>(b, tiny_model(0.0), 16); }, none,
       rows},
      {"GptEmbedding", [](B& b) { return std::make_unique<GptEmbedding>(b, tiny_model(0.4), 16); }, none,
       rows},
      {"GptEmbedding", [](B& b) { return std::make_unique<GptEmbedding>(b, tiny_llama(), 16); }, none, rows},
      {"GptEmbedding",
       [](B& b) { return std::make_unique<GptEmbedding>(b, with_multipliers(tiny_model(0.4)), 16); }, none,
       rows},
      {"GptEmbedding",
       [](B& b) { return std::make_unique<GptEmbedding>(b, with_multipliers(tiny_llama()), 16); }, none,
       rows},
      {"GptHead", [](B& b) { return std::make_unique<GptHead>(b, tiny_llama(), lone_table(b), 16); }, rows,
       none},
      {"GptHead", [](B& b) { return std::make_unique<GptHead>(b, tiny_model(0.0), lone_table(b), 16); }, rows,
       none},
      {"GptHead", [](B& b) { return predicting_head(b, false); }, rows, none},
      {"GptHead", [](B& b) { return head_of_pairs(b, with_pairs(tiny_llama(), PairLossKind::Sigmoid)); },
       rows, none},
      {"GptHead",
       [](B& b) {
         return head_of_pairs(b, with_pairs(with_multipliers(tiny_model(0.0)), PairLossKind::Sigmoid, 0.2));
       },
       rows, none},
      {"GptHead", [](B& b) { return head_of_pairs(b, with_pairs(tiny_model(0.0), PairLossKind::Ipo)); }, rows,
       none},
      {"GptHead", [](B& b) { return predicting_head(b, true); }, rows, none},
      {"GptHead",
       [](B& b) {
         return std::make_unique<GptHead>(b, with_multipliers(tiny_llama()), lone_table(b), 16, 4);
       },
       rows, none},
      {"NormedVocabPart", [](B& b) { return std::make_unique<HeadInParts>(b, tiny_llama(), 2); }, rows, none},
      {"NormedVocabPart",
       [](B& b) {
         return std::make_unique<HeadInParts>(b, with_pairs(tiny_llama(), PairLossKind::Sigmoid, 0.1), 2);
       },
       rows, none},
      {"VocabPart", [](B& b) { return std::make_unique<HeadInParts>(b, tiny_model(0.0), 4); }, rows, none},
      {"VocabPart",
       [](B& b) {
         return std::make_unique<HeadInParts>(
             b, with_pairs(with_multipliers(tiny_model(0.0)), PairLossKind::Ipo), 4);
       },
       rows, none},
      {"VocabPart", [](B& b) { return std::make_unique<HeadInParts>(b, with_multipliers(tiny_llama()), 4); },
       rows, none},
  };
}

std::vector<GradientCase> bert_end_cases() {
  const Placed none;
  const Placed rows = stream(kWidth);
  using B = BlockBuilder;
  return {
      {"BertEmbedding", [](B& b) { return std::make_unique<BertEmbedding>(b, tiny_model(0.4), 16); }, none,
       rows},
      {"BertEmbedding", [](B& b) { return std::make_unique<BertEmbedding>(b, modern_model(0.4), 16); }, none,
       rows},
      {"BertEmbedding",
       [](B& b) {
         ModelConfig config = tiny_model(0.4);
         config.embedding_size = 6;
         return std::make_unique<BertEmbedding>(b, config, 16);
       },
       none, rows},
      {"BertHead",
       [](B& b) { return std::make_unique<BertHead>(b, tiny_model(0.0), lone_table(b), 16, false); }, rows,
       none},
      {"BertHead",
       [](B& b) { return std::make_unique<BertHead>(b, tiny_model(0.0), lone_table(b), 16, true); }, rows,
       none},
      {"BertHead",
       [](B& b) { return std::make_unique<BertHead>(b, modern_model(0.0), lone_table(b), 16, false); }, rows,
       none},
      {"BertHead",
       [](B& b) {
         ModelConfig config = tiny_model(0.0);
         config.embedding_size = 6;
         return std::make_unique<BertHead>(b, config, b.sharded("tokens", {16, 6}, 0, kNormal, true), 16,
                                           true);
       },
       rows, none},
      {"NormedHead", [](B& b) { return normed(b, modern_model(0.0), false); }, rows, none},
      {"NormedHead", [](B& b) { return normed(b, modern_model(0.0), true); }, rows, none},
      {"ClassHead", [](B& b) { return std::make_unique<ClassHead>(b, tiny_classifier(0.0)); }, rows, none},
      {"ClassHead", [](B& b) { return std::make_unique<ClassHead>(b, tiny_classifier(0.4)); }, rows, none},
      {"SpanHead", [](B& b) { return std::make_unique<SpanHead>(b, tiny_model(0.0)); }, rows, none},
  };
}

}  // namespace

std::vector<GradientCase> end_gradient_cases() {
  std::vector<GradientCase> all = gpt_end_cases();
  for (GradientCase& one : bert_end_cases()) all.push_back(std::move(one));
  return all;
}

}  // namespace trifold::test
