// LaterLabels adds to the batches of a source the labels of later positions, for models that predict more than the next
// token: the k-th later label of position t is the label of position t + k. Its loss weight is that label's; it is 0 at
// the last k positions of a sample, whose later label (0) does not exist, and where documents are separated and position
// t + k is in another document.
#pragma once

#include "data/batch.h"

namespace trifold {

class LaterLabels final : public DataSource {
 public:
  // Adds `count` labels, at most kMostLaterLabels. `source` must outlive it; it sets labels and loss weights.
  LaterLabels(const DataSource& source, int count);
  int64_t seq_length() const override { return source_.seq_length(); }
  int64_t samples() const override { return source_.samples(); }
  bool separates_documents() const override { return source_.separates_documents(); }
  int later_labels() const override { return count_; }
  int64_t array_bytes(int64_t samples) const override { return source_.array_bytes(samples); }
  std::vector<std::string> sources() const override { return source_.sources(); }
  void count_sources(int64_t samples, std::span<int64_t> counts) const override {
    source_.count_sources(samples, counts);
  }
  void read(Batch& batch, int64_t first_sample) const override;
  bool make_ready(int64_t first_sample, std::chrono::milliseconds patience) const override {
    return source_.make_ready(first_sample, patience);
  }
  std::string bookmark(int64_t sample) const override { return source_.bookmark(sample); }
  void open_at(const std::string& bookmark) const override { source_.open_at(bookmark); }

 private:
  const DataSource& source_;
  int count_;
};

}  // namespace trifold
