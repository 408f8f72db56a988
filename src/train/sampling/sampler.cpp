#include "train/sampling/sampler.h"

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

TokenScore score_token(std::span<const double> logits, int32_t token, int64_t best) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - largest);
  const double shift = largest + std::log(sum);
  TokenScore score{token, logits[static_cast<size_t>(token)] - shift, {}};
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit = [&](int32_t id) { return logits[static_cast<size_t>(id)]; };
  const auto end = order.begin() + std::min<int64_t>(best, std::ssize(order));
  std::partial_sort(order.begin(), end, order.end(), [&](int32_t a, int32_t b) {
    return logit(a) > logit(b) || (logit(a) == logit(b) && a < b);
  });
  for (auto id = order.begin(); id < end; ++id) score.best.emplace_back(*id, logit(*id) - shift);
  return score;
}

Sampler::Sampler(Replica& replica, const ModelConfig& model, int64_t vocab)
    : replica_(replica),
      window_(model.seq_length),
      vocab_(std::min(vocab, *model.vocab_size)),
      model_vocab_(*model.vocab_size),
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
  each_logits(dry, keep, scratch, batch, 0, [](Tensor) {});
  keep_ = Arena(keep.peak(), replica.ops().device);
  scratch_ = Arena(scratch.peak(), replica.ops().device);
}

void Sampler::each_logits(Stream& stream, Arena& keep, Arena& scratch, const Batch& batch, int64_t first,
                          FunctionRef<void(Tensor)> body) {
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
  constexpr int64_t kChunkRows = 64;  // the logits of more would need much memory
  const auto& head = dynamic_cast<const GptHead&>(*blocks.back().layer);
  const int64_t rows = x.dim(0);
  for (int64_t begin = first; begin < rows; begin += kChunkRows) {
    const Arena::Mark mark = keep.mark();
    Saved saved(blocks.back().slots);
    body(head.logits(run, x, begin, std::min(begin + kChunkRows, rows), saved));
    keep.release(mark);
  }
}

Batch Sampler::batch_of(std::span<const int32_t> tokens) {
  const auto length = static_cast<int64_t>(tokens.size());
  Batch batch;
  batch.tokens = tokens_.tensor(DType::I32, {2, window_}).rows(0, 1).flat(0, length).reshape({1, length});
  batch.positions = tokens_.tensor(DType::I32, {2, window_}).rows(1, 2).flat(0, length).reshape({1, length});
  std::copy(tokens.begin(), tokens.end(), batch.tokens.as<int32_t>());
  std::iota(batch.positions.as<int32_t>(), batch.positions.as<int32_t>() + length, 0);
  return batch;
}

void Sampler::each_row(std::span<const int32_t> tokens, int64_t first,
                       FunctionRef<void(std::span<const double>)> body) {
  const Batch batch = batch_of(tokens);
  keep_.reset();
  scratch_.reset();
  std::vector<double> row(static_cast<size_t>(model_vocab_));
  each_logits(replica_.compute(), keep_, scratch_, batch, first, [&](Tensor logits) {
    const HostCopy copy(replica_.ops(), replica_.compute(), logits);
    const Tensor& rows = copy.tensor();
    dispatch_float(rows.dtype, [&](auto zero) {
      using T = decltype(zero);
      for (int64_t i = 0; i < rows.row_count(); ++i) {
        const T* begin = rows.as<T>() + i * rows.last_dim();
        std::transform(begin, begin + model_vocab_, row.begin(),
                       [](T value) { return static_cast<double>(value); });
        body(row);
      }
    });
  });
}

std::vector<double> Sampler::logits(std::span<const int32_t> tokens) {
  check(!tokens.empty(), "sampling needs at least one token to start from");
  const auto length = std::min(static_cast<size_t>(window_), tokens.size());
  std::vector<double> last;
  each_row(tokens.last(length), static_cast<int64_t>(length) - 1,
           [&](std::span<const double> row) { last.assign(row.begin(), row.end()); });
  return last;
}

int32_t Sampler::draw(std::span<const double> logits, const SamplingRule& rule, uint64_t seed,
                      uint64_t position) const {
  const double uniform = philox_word(philox_key(seed, "sample"), position) / 4294967296.0;
  return static_cast<int32_t>(draw_token(logits.first(static_cast<size_t>(vocab_)), rule, uniform));
}

std::vector<TokenScore> Sampler::score(std::span<const int32_t> tokens, int64_t best) {
  std::vector<TokenScore> scores;
  if (tokens.size() < 2) return scores;
  check(std::ssize(tokens) <= window_ + 1, "{} tokens to score, but the model is given at most {}",
        tokens.size(), window_);
  each_row(tokens.first(tokens.size() - 1), 0, [&](std::span<const double> row) {
    scores.push_back(score_token(row, tokens[scores.size() + 1], best));
  });
  return scores;
}

}  // namespace trifold
