// ArraySource: the samples of a model from a file, in named arrays whose first dim counts samples.
//
// A batch has the prepared arrays of its samples (Batch::arrays, graph/preparation.h). A sample is one token, so that
// the counts of all trainers hold: tokens are 0, and each loss weight is 1.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "data/batch.h"
#include "graph/data/array_files.h"
#include "graph/preparation.h"

namespace trifold::graph {

struct ArrayOrder {
  // Passes over the samples, each with every sample once.
  int64_t passes = 1;
  // With a seed each pass has its own order, a pure function of seed and pass; without one, that of the files.
  std::optional<uint64_t> seed = std::nullopt;
  // The samples of the files to read: [begin, end), `end` absent: all from `begin` on.
  int64_t begin = 0;
  std::optional<int64_t> end = std::nullopt;
};

class ArraySource final : public DataSource {
 public:
  // Both must outlive the source, and `preparation` be made from `graph`. Every input of the graph counts samples
  // (counts_samples), and there is one. BadInput if an input of the graph has no array, or an array no input; if arrays
  // differ in their number of samples; and if shape or type of an array do not fit, or a stream has too few tokens for a sample. Streams are cut
  // into as many whole samples as fit behind the largest shift. Types convert without loss only
  // (graph/data/stored_array.h).
  ArraySource(ArrayFiles files, const Graph& graph, const Preparation& preparation, const ArrayOrder& order);

  int64_t seq_length() const override { return 1; }
  int64_t samples() const override { return order_.passes * count_; }
  // The samples of one pass.
  int64_t samples_of_pass() const { return count_; }
  int64_t array_bytes(int64_t samples) const override { return preparation_.layout().bytes(samples); }
  // BadInput, naming the array and the sample, for an element that the model's type cannot represent; naming the
  // samples and the node, if an operation fails.
  void read(Batch& batch, int64_t first_sample) const override;

 private:
  void find_arrays();
  void cut_streams();
  void check_array(const StoredArray& array, const Input& input) const;
  std::vector<int64_t> positions(int64_t first_sample, int64_t count) const;
  void prepare(Batch& batch, const std::vector<int64_t>& positions) const;

  ArrayFiles files_;
  const Graph& graph_;
  const Preparation& preparation_;
  ArrayOrder order_;
  int64_t count_ = 0;                // samples of one pass
  std::vector<StoredArray> arrays_;  // in the order of Preparation::data; streams are cut into samples
};

}  // namespace trifold::graph
