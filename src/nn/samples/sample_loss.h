// SampleLoss: a loss of the log-likelihoods of whole samples, instead of a mean over their tokens. An output layer
// (tensor_parallel/vocab.h, tensor_parallel/vocab_part.h) computes the cross entropy of every row, and the loss says
// what follows from the sums over the samples.
//
// S = samples of the micro-batch, R = its rows on this rank. The sum of a sample is over its rows on all context ranks:
// of the loss weight times the cross entropy, that is, minus the log-likelihood of the tokens that count.
#pragma once

#include <algorithm>
#include <string_view>

#include "nn/layer.h"

namespace trifold {

class SampleLoss {
 public:
  virtual ~SampleLoss() = default;
  // Adds the losses of the micro-batch to run.loss_sum, their weights to run.weight_sum, and loss terms; only the first
  // context rank does so.  sums f64 [S]
  virtual void add(Run& run, Tensor sums) const = 0;
  // factors[i] = run.loss_scale * the derivative of the loss with respect to sums[i].  factors, sums f64 [S]
  virtual void find_factors(Run& run, Tensor factors, Tensor sums) const = 0;

  // The name under which a TensorWatch sees the sums [S], on every tensor and context rank.
  static constexpr std::string_view kSums = "sums of samples";
};

// Takes the sums of the samples, f64 [S], from `arena`.  losses [R]: the cross entropy of the rows. Collective over the
// context axis.
Tensor take_sample_sums(Run& run, Tensor losses, Arena& arena);

// Calls body(from, to, factor) for the rows [begin, end) of the micro-batch in parts [from, to), one for each sample,
// with the factor of the gradient of the sample's rows.  factors f64 [S]
template <class Body>
void for_each_sample(const Run& run, int64_t begin, int64_t end, Tensor factors, Body body) {
  const int64_t length = run.batch->seq_length();
  for (int64_t from = begin; from < end;) {
    const int64_t sample = from / length;
    const int64_t to = std::min(end, (sample + 1) * length);
    body(from, to, Factor(1, factors.rows(sample, sample + 1)));
    from = to;
  }
}

}  // namespace trifold
