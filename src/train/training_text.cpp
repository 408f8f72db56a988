#include "train/training_text.h"

#include "config/validate.h"
#include "core/error.h"

namespace trifold {

TrainingText::TrainingText(const ModelConfig& model, const DataConfig& data) {
  if (is_bert(model)) {
    if (data.eod_mask_loss)
      bad_input("--eod-mask-loss has no effect: the model is a BERT, whose loss is of masked tokens only");
    text_ = std::make_unique<BertCorpus>(data, *model.vocab_size, !model.bert_no_binary_head);
    return;
  }
  if (const auto option = given_option_of_pairs(data))
    bad_input("--{} has no effect: the model is no BERT", *option);
  text_ = std::make_unique<Corpus>(data, *model.vocab_size);
}

bool TrainingText::has(Split split) const {
  return std::visit([&](const auto& text) { return text->has(split); }, text_);
}

bool TrainingText::weighted() const {
  const auto* corpus = std::get_if<std::unique_ptr<Corpus>>(&text_);
  return corpus != nullptr && (*corpus)->weighted();
}

bool TrainingText::streams() const {
  const auto* corpus = std::get_if<std::unique_ptr<Corpus>>(&text_);
  return corpus != nullptr && (*corpus)->streams();
}

std::shared_ptr<BadRecords> TrainingText::bad_records() const {
  const auto* corpus = std::get_if<std::unique_ptr<Corpus>>(&text_);
  return corpus == nullptr ? nullptr : (*corpus)->bad_records();
}

std::unique_ptr<DataSource> TrainingText::source(Split split, int64_t seq_length, int64_t samples_needed,
                                                 uint64_t seed) const {
  return std::visit([&](const auto& text) { return text->source(split, seq_length, samples_needed, seed); },
                    text_);
}

std::unique_ptr<DataSource> TrainingText::passes(Split split, int64_t seq_length, int64_t passes,
                                                 uint64_t seed, int64_t most) const {
  if (const auto* corpus = std::get_if<std::unique_ptr<Corpus>>(&text_))
    return (*corpus)->passes(split, seq_length, passes, seed, most);
  return std::get<std::unique_ptr<BertCorpus>>(text_)->passes(split, seq_length, passes, seed);
}

}  // namespace trifold
