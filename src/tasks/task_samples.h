// TaskSamples: samples for finetuning BERT: texts or pairs of texts, each with its label or answer.
//
//   [CLS] first [SEP] [PAD] ...        [CLS] first [SEP] second [SEP] [PAD] ...
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/random.h"
#include "data/batch.h"
#include "tasks/bert_samples.h"
#include "tasks/labeled_text.h"
#include "tokenize/tokenizer.h"

namespace trifold {

struct TaskSample {
  std::vector<int32_t> tokens;  // without padding
  int32_t second = 0;           // index of the second text's first token; tokens.size() if there is none
  int32_t label = 0;            // class, or 0
  int32_t begin = 0, end = 0;   // first and last token of the answer; [CLS] if there is none
};

// [CLS] first [SEP], and second [SEP] if given.
TaskSample join_texts(std::span<const int32_t> first, const std::span<const int32_t>* second,
                      const BertTokens& special);

// Samples of labeled texts. Tokens that do not fit are removed one by one from the end of the longer text. A label
// becomes its index in `classes`; BadInput for any other label.
std::vector<TaskSample> class_samples(const std::vector<LabeledText>& texts,
                                      const std::vector<std::string>& classes, const Tokenizer& tokenizer,
                                      const BertTokens& special, int64_t seq_length);

class TaskSamples final : public DataSource {
 public:
  // Repeats the samples for `passes` passes, in a new order each time if `shuffled`.
  TaskSamples(std::vector<TaskSample> samples, int32_t pad, int64_t seq_length, int64_t passes, bool shuffled,
              uint64_t seed);

  int64_t seq_length() const override { return seq_length_; }
  int64_t samples() const override { return passes_ * static_cast<int64_t>(samples_.size()); }
  void read(Batch& batch, int64_t first_sample) const override;
  // Identifies the samples: a run resumes only with the same ones. BadInput otherwise.
  std::string bookmark(int64_t /*index*/) const override { return fingerprint_; }
  void open_at(const std::string& bookmark) const override;

 private:
  const TaskSample& sample(int64_t index) const;

  std::vector<TaskSample> samples_;
  int32_t pad_;
  int64_t seq_length_, passes_;
  bool shuffled_;
  PhiloxKey key_;
  std::string fingerprint_;
};

}  // namespace trifold
