// The log-likelihoods that a model gives to requests, collected while their samples are computed on any mesh.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pipeline/executor.h"
#include "train/judge/request_samples.h"
#include "train/replica.h"

namespace trifold {

struct Likelihood {
  double log_likelihood = 0;  // the natural logarithm of the scored tokens' probability
  double misses = 0;          // scored tokens that another token is likelier than

  // Whether the scored tokens are what the model would write if it always took the likeliest token. A tie counts.
  bool greedy() const { return misses == 0; }
};

// One object for each rank; a watch of the computation.
class Likelihoods final : public StepWatch {
 public:
  // `samples` of `requests` must outlive this object.
  Likelihoods(Replica& replica, std::span<const ScoringRequest> requests, const RequestSamples& samples);

  // [request] The sums over all ranks, to be called after the last sample. Collective.
  std::span<const Likelihood> gather();

  void begin(const Action& action, int block, const Batch& batch, const ParamSource& weights,
             Stream& stream) override;
  void end(Stream& stream) override;
  void see(std::string_view layer, std::string_view what, Tensor tensor, Stream& stream) override;

 private:
  void append(std::vector<double>& to, Tensor tensor, Stream& stream) const;
  void add_rows();
  void add_row(int64_t row, int64_t request);

  Replica& replica_;
  std::span<const ScoringRequest> requests_;
  const RequestSamples& samples_;
  std::vector<Likelihood> likelihoods_;
  const Batch* batch_ = nullptr;
  // [row] Of the current micro-batch: the largest logit, the sum of exp(logit - largest) and the label's logit.
  std::vector<double> largest_, sums_, label_;
  std::vector<int64_t> scored_by_;  // [position] the request whose token it predicts, -1: none
};

}  // namespace trifold
