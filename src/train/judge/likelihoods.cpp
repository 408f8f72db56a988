#include "train/judge/likelihoods.h"

#include <algorithm>
#include <cmath>

#include "ops/host_copy.h"
#include "tensor_parallel/vocab.h"

namespace trifold {

Likelihoods::Likelihoods(Replica& replica, std::span<const ScoringRequest> requests,
                         const RequestSamples& samples)
    : replica_(replica),
      requests_(requests),
      samples_(samples),
      likelihoods_(requests.size()),
      scored_by_(static_cast<size_t>(samples.seq_length())) {}

void Likelihoods::begin(const Action&, int, const Batch& batch, const ParamSource&, Stream&) {
  batch_ = &batch;
  largest_.clear();
  sums_.clear();
  label_.clear();
}
void Likelihoods::end(Stream&) { batch_ = nullptr; }

// Statistics of logits are shown in chunks of rows, in order, and the losses of all rows after them. A loss is a difference
// of large numbers in the type of the computation, so it is computed again from the statistics, in f64.
void Likelihoods::see(std::string_view, std::string_view what, Tensor tensor, Stream& stream) {
  if (what == VocabCrossEntropy::kLargestLogits) append(largest_, tensor, stream);
  if (what == VocabCrossEntropy::kSums) append(sums_, tensor, stream);
  if (what == VocabCrossEntropy::kLabelLogits) append(label_, tensor, stream);
  if (what != VocabCrossEntropy::kLosses) return;
  const auto rows = static_cast<size_t>(tensor.elements());
  check(largest_.size() == rows && sums_.size() == rows && label_.size() == rows,
        "{} losses, but {} largest logits, {} sums and {} logits of labels", rows, largest_.size(),
        sums_.size(), label_.size());
  add_rows();
}

void Likelihoods::append(std::vector<double>& to, Tensor tensor, Stream& stream) const {
  const HostCopy copy(replica_.ops(), stream, tensor);
  dispatch_float(tensor.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* values = copy.tensor().as<T>();
    for (int64_t i = 0; i < tensor.elements(); ++i) to.push_back(static_cast<double>(values[i]));
  });
}

// All tensor ranks have the losses of their rows, so only sums over the other axes are needed. Samples beyond the last
// fill up a batch.
void Likelihoods::add_rows() {
  const SequenceRows rows = batch_->held_rows();
  for (int64_t b = 0; b < batch_->samples(); ++b) {
    const int64_t sample = batch_->first_sample + b;
    if (sample >= samples_.samples()) return;
    std::fill(scored_by_.begin(), scored_by_.end(), -1);
    for (const RequestSamples::Place& place : samples_.places(sample)) {
      const ScoringRequest& request = requests_[static_cast<size_t>(place.request)];
      std::fill_n(scored_by_.begin() + place.begin + request.first_scored(), request.scored, place.request);
    }
    for (const RowRun& run : rows.runs())
      for (int64_t i = 0; i < run.count; ++i) {
        const int64_t request = scored_by_[static_cast<size_t>(run.begin + i)];
        if (request >= 0) add_row(b * rows.rows() + run.row + i, request);
      }
  }
}

void Likelihoods::add_row(int64_t row, int64_t request) {
  const auto at = static_cast<size_t>(row);
  Likelihood& likelihood = likelihoods_[static_cast<size_t>(request)];
  likelihood.log_likelihood += label_[at] - largest_[at] - std::log(sums_[at]);
  likelihood.misses += label_[at] < largest_[at] ? 1 : 0;
}

std::span<const Likelihood> Likelihoods::gather() {
  static_assert(sizeof(Likelihood) == 2 * sizeof(double));
  Stream host = replica_.compute().host();
  replica_.mesh()
      .comm(kDataAxes | AxisSet{Axis::Pp})
      .all_reduce({likelihoods_.data(), DType::F64, {2 * static_cast<int64_t>(likelihoods_.size())}},
                  Reduce::Sum, host);
  return likelihoods_;
}

}  // namespace trifold
