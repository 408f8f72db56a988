#include "graph/data/array_text.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "graph/data/array_source.h"

namespace trifold::graph {

namespace {

// What all sources of a run share.
struct Shared {
  std::shared_ptr<const ModelFile> model;
  Preparation preparation;
};

// A source that keeps what it reads with alive.
class OwningSource final : public DataSource {
 public:
  OwningSource(std::shared_ptr<const Shared> shared, std::unique_ptr<ArraySource> source)
      : shared_(std::move(shared)), source_(std::move(source)) {}
  int64_t seq_length() const override { return source_->seq_length(); }
  int64_t samples() const override { return source_->samples(); }
  int64_t array_bytes(int64_t samples) const override { return source_->array_bytes(samples); }
  void read(Batch& batch, int64_t first_sample) const override { source_->read(batch, first_sample); }

 private:
  std::shared_ptr<const Shared> shared_;
  std::unique_ptr<ArraySource> source_;
};

class ArrayText final : public TrainingText {
 public:
  ArrayText(std::shared_ptr<const Shared> shared, const DataConfig& data)
      : shared_(std::move(shared)), files_(data.arrays), split_(data.split) {
    samples_ = open({})->samples_of_pass();
  }

  bool has(Split split) const override { return !split_.empty(split); }

  std::unique_ptr<DataSource> source(Split split, int64_t /*seq_length*/, int64_t samples_needed,
                                     uint64_t seed) const override {
    const Interval range = range_of(split);
    const int64_t count = range.end - range.begin;
    return passes(split, 1, (samples_needed + count - 1) / count, seed);
  }
  // Training samples are shuffled in each pass; others are read in the order of the files.
  std::unique_ptr<DataSource> passes(Split split, int64_t /*seq_length*/, int64_t passes, uint64_t seed,
                                     int64_t /*most*/ = 0) const override {
    const Interval range = range_of(split);
    ArrayOrder order;
    order.passes = std::max<int64_t>(passes, 1);
    if (split == Split::Train) order.seed = seed;
    order.begin = range.begin;
    order.end = range.end;
    return std::make_unique<OwningSource>(shared_, open(order));
  }

 private:
  std::unique_ptr<ArraySource> open(const ArrayOrder& order) const {
    return std::make_unique<ArraySource>(ArrayFiles(files_), shared_->model->lowered().graph,
                                         shared_->preparation, order);
  }
  Interval range_of(Split split) const {
    const Interval range = split_.of(split, samples_);
    if (range.end <= range.begin)
      bad_input("the arrays have {} samples, of which the {} part of --split has none", samples_,
                part_name(split));
    return range;
  }

  std::shared_ptr<const Shared> shared_;
  std::vector<std::string> files_;
  SplitFractions split_;
  int64_t samples_ = 0;
};

}  // namespace

std::unique_ptr<TrainingText> open_arrays(const std::shared_ptr<const ModelFile>& model,
                                          const DataConfig& data, DType sums) {
  if (data.arrays.empty()) bad_input("--arrays is needed: the arrays that the model reads, as NAME=PATH");
  auto shared = std::make_shared<const Shared>(Shared{model, model->preparation(sums)});
  return std::make_unique<ArrayText>(std::move(shared), data);
}

}  // namespace trifold::graph
