#include "train/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/gpt.h"
#include "ops/host_copy.h"

namespace trifold {

int64_t draw_token(std::span<const double> logits, const SamplingRule& rule, double uniform) {
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit = [&](int64_t id) { return logits[static_cast<size_t>(id)]; };
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return logit(a) > logit(b); });
  if (rule.temperature == 0) return order[0];
  if (rule.top_k > 0 && rule.top_k < static_cast<int64_t>(order.size()))
    order.resize(static_cast<size_t>(rule.top_k));

  std::vector<double> weight(order.size());
  for (size_t i = 0; i < order.size(); ++i)
    weight[i] = std::exp((logit(order[i]) - logit(order[0])) / rule.temperature);
  const double all = std::accumulate(weight.begin(), weight.end(), 0.0);
  // Keep the shortest prefix of the ordered tokens whose probability reaches top_p.
  double kept = 0;
  size_t count = 0;
  while (count < weight.size() && kept < rule.top_p * all) kept += weight[count++];
  double left = uniform * kept;
  for (size_t i = 0; i < count; ++i) {
    left -= weight[i];
    if (left < 0) return order[i];
  }
  return order[count == 0 ? 0 : count - 1];
}

Sampler::Sampler(Replica& replica, const ModelConfig& model, int64_t vocab)
    : replica_(replica),
      window_(model.seq_length),
      vocab_(std::min(vocab, *model.vocab_size)),
      keep_(0),
      scratch_(0),
      tokens_(Buffer::shared(static_cast<size_t>(window_) * 16, replica.ops().device)) {
  const MeshSizes& sizes = replica.mesh().sizes();
  check(sizes.ranks() == sizes[Axis::Dp] && sizes.ranks(kExpertShareAxes) == 1 &&
            !replica.layout().zero().stage.parameters,
        "sampling needs a rank that holds the whole model, but the mesh is {}", replica.description());
  ThreadPool pool(1);
  Stream dry(Stream::Mode::Dry, pool);
  Arena keep = Arena::measuring();
  Arena scratch = Arena::measuring();
  Batch batch;
  batch.tokens = batch.positions = {nullptr, DType::I32, {1, window_}};
  last_logits(dry, keep, scratch, batch);
  keep_ = Arena(keep.peak(), replica.ops().device);
  scratch_ = Arena(scratch.peak(), replica.ops().device);
}

Tensor Sampler::last_logits(Stream& stream, Arena& keep, Arena& scratch, const Batch& batch) {
  Run run{stream,
          stream,
          replica_.ops(),
          replica_.mesh(),
          replica_.weights(),
          nullptr,
          &keep,
          &scratch,
          scratch,
          &batch,
          replica_.dtype(),
          false,
          0,
          0,
          {},
          {}};
  const std::vector<Block>& blocks = replica_.model().blocks;
  Tensor x;
  for (size_t i = 0; i + 1 < blocks.size(); ++i) {
    Saved saved(blocks[i].slots);
    x = blocks[i].layer->forward(run, x, saved);
  }
  const auto& head = dynamic_cast<const GptHead&>(*blocks.back().layer);
  Saved saved(blocks.back().slots);
  return head.logits(run, x, x.dim(0) - 1, x.dim(0), saved);
}

int32_t Sampler::next(std::span<const int32_t> tokens, const SamplingRule& rule, uint64_t seed,
                      uint64_t position) {
  check(!tokens.empty(), "sampling needs at least one token to start from");
  const int64_t length = std::min(window_, static_cast<int64_t>(tokens.size()));
  Batch batch;
  batch.tokens = tokens_.tensor(DType::I32, {2, window_}).rows(0, 1).flat(0, length).reshape({1, length});
  batch.positions = tokens_.tensor(DType::I32, {2, window_}).rows(1, 2).flat(0, length).reshape({1, length});
  std::copy(tokens.end() - length, tokens.end(), batch.tokens.as<int32_t>());
  std::iota(batch.positions.as<int32_t>(), batch.positions.as<int32_t>() + length, 0);
  keep_.reset();
  scratch_.reset();
  const HostCopy last(replica_.ops(), replica_.compute(),
                      last_logits(replica_.compute(), keep_, scratch_, batch));
  const Tensor& row = last.tensor();
  std::vector<double> logits(static_cast<size_t>(vocab_));
  dispatch_float(row.dtype, [&](auto zero) {
    using T = decltype(zero);
    std::transform(row.as<T>(), row.as<T>() + vocab_, logits.begin(),
                   [](T value) { return static_cast<double>(value); });
  });
  const double uniform = philox_word(philox_key(seed, "sample"), position) / 4294967296.0;
  return static_cast<int32_t>(draw_token(logits, rule, uniform));
}

}  // namespace trifold
