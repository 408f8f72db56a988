// What --data-path names, opened as the model reads it: as running text (data/corpus.h), or as pairs of
// sentences for BERT (data/bert_samples.h).
#pragma once

#include <limits>
#include <memory>
#include <variant>

#include "data/bert_samples.h"
#include "data/corpus.h"

namespace trifold {

class TrainingText {
 public:
  // The vocabulary of `model` must be known. BadInput for every mistake in the files.
  TrainingText(const ModelConfig& model, const DataConfig& data);

  // All as Corpus has them.
  bool has(Split split) const;
  bool weighted() const;
  bool streams() const;
  std::shared_ptr<BadRecords> bad_records() const;  // null: there are none to skip
  std::unique_ptr<DataSource> source(Split split, int64_t seq_length, int64_t samples_needed,
                                     uint64_t seed) const;
  std::unique_ptr<DataSource> passes(Split split, int64_t seq_length, int64_t passes, uint64_t seed,
                                     int64_t most = std::numeric_limits<int64_t>::max()) const;

 private:
  std::variant<std::unique_ptr<Corpus>, std::unique_ptr<BertCorpus>> text_;
};

}  // namespace trifold
