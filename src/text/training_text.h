// TrainingText is the data of --data-path, opened in the form that a model reads: running text (text/corpus.h), or
// pairs of sentences (tasks/bert_samples.h). Sources share the open files with it and may outlive it.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "data/batch.h"
#include "text/bad_records.h"
#include "text/split.h"

namespace trifold {

// Notes on the data for the user, shown before a run.
struct DataNotes {
  std::vector<std::string> files;  // for streamed paths: the files read and the files ignored, a line each
  std::vector<std::string> warnings;
};

class TrainingText {
 public:
  virtual ~TrainingText() = default;

  // Whether the split has a share above 0.
  virtual bool has(Split split) const = 0;
  // Whether paths have weights; passes over the data are then undefined.
  virtual bool weighted() const { return false; }
  // Whether some of the data are streamed; the number of samples is then unknown.
  virtual bool streams() const { return false; }
  // The records that the sources skip; null: none.
  virtual std::shared_ptr<BadRecords> bad_records() const { return nullptr; }
  virtual DataNotes notes() const { return {}; }
  // At least `samples_needed` samples of a split, which is repeated if it is smaller.
  virtual std::unique_ptr<DataSource> source(Split split, int64_t seq_length, int64_t samples_needed,
                                             uint64_t seed) const = 0;
  // `passes` passes over one split; at most `most` samples if it is streamed.
  virtual std::unique_ptr<DataSource> passes(Split split, int64_t seq_length, int64_t passes, uint64_t seed,
                                             int64_t most = std::numeric_limits<int64_t>::max()) const = 0;
};

}  // namespace trifold
