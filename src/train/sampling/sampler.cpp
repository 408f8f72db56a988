#include "train/sampling/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "models/gpt.h"
#include "ops/host_copy.h"

namespace trifold {

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

Sampler::Sampler(Replica& replica, const ModelConfig& model, int64_t vocab, Caching caching)
    : replica_(replica),
      window_(model.seq_length),
      vocab_(std::min(vocab, *model.vocab_size)),
      model_vocab_(*model.vocab_size),
      parts_(replica.mesh().size(Axis::Tp)),
      keep_(0),
      scratch_(0),
      tokens_(Buffer::shared(static_cast<size_t>(window_) * 16, replica.ops().device)) {
  const MeshSizes& sizes = replica.mesh().sizes();
  check(sizes.ranks() == sizes[Axis::Dp] * sizes[Axis::Tp] && sizes.ranks(kExpertShareAxes) == 1 &&
            replica.model().row_parts == 1 && !replica.layout().zero().stage.parameters,
        "sampling needs a rank that holds the whole model or a slice of each layer, but the mesh is {}",
        replica.description());
  if (caching == Caching::KeysAndValues) {
    const std::vector<CachedRows> rows = replica.model().cached_rows();
    for (const CachedRows& block : rows)
      if (obstacle_.empty()) obstacle_ = block.obstacle;
    if (obstacle_.empty()) cache_.emplace(rows, window_, replica.dtype(), replica.ops().device);
  }
  ThreadPool pool(1);
  Stream dry(Stream::Mode::Dry, pool);
  Arena keep = Arena::measuring();
  Arena scratch = Arena::measuring();
  Batch batch;
  batch.tokens = batch.positions = {nullptr, DType::I32, {1, window_}};
  if (cache_) batch.rows = SequenceRows(window_);
  each_logits(dry, keep, scratch, batch, 0, cache_.has_value(), [&](Tensor logits) {
    if (parts_ > 1) keep.take(logits.dtype, {parts_ * logits.row_count(), logits.last_dim()});
  });
  keep_ = Arena(keep.peak(), replica.ops().device);
  scratch_ = Arena(scratch.peak(), replica.ops().device);
}

void Sampler::each_logits(Stream& stream, Arena& keep, Arena& scratch, const Batch& batch, int64_t first,
                          bool cached, FunctionRef<void(Tensor)> body) {
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
  if (cached) run.key_cache = &*cache_;
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

Batch Sampler::batch_of(std::span<const int32_t> tokens, const Pass& pass) {
  const int64_t length = pass.tokens - pass.known;
  Batch batch;
  batch.tokens = tokens_.tensor(DType::I32, {2, window_}).rows(0, 1).flat(0, length).reshape({1, length});
  batch.positions = tokens_.tensor(DType::I32, {2, window_}).rows(1, 2).flat(0, length).reshape({1, length});
  std::copy(tokens.begin() + pass.known, tokens.end(), batch.tokens.as<int32_t>());
  std::iota(batch.positions.as<int32_t>(), batch.positions.as<int32_t>() + length, pass.known);
  const RowRun now{pass.known, length, 0};
  if (pass.cached != 0) batch.rows = SequenceRows::of_runs(pass.tokens, {&now, 1});
  return batch;
}

Tensor Sampler::of_all_ranks(Tensor logits) {
  if (parts_ == 1) return logits;
  const Tensor all = keep_.take(logits.dtype, {parts_ * logits.row_count(), logits.last_dim()});
  replica_.mesh().comm({Axis::Tp}).all_gather(all, logits, replica_.compute());
  return all;
}

void Sampler::tell(std::span<int32_t> numbers) {
  Stream host = replica_.compute().host();
  replica_.mesh().comm({Axis::Tp}).broadcast({numbers.data(), DType::I32, {std::ssize(numbers)}}, 0, host);
  host.synchronize();
}

void Sampler::each_row(std::span<const int32_t> tokens, const Pass& pass,
                       FunctionRef<void(std::span<const double>)> body) {
  if (parts_ > 1) {
    std::array<int32_t, kPassNumbers> numbers{pass.tokens, pass.known, pass.first, pass.cached};
    tell(numbers);
    std::vector<int32_t> copy(tokens.begin(), tokens.end());
    tell(copy);
  }
  compute(tokens, pass, body);
}

void Sampler::follow() {
  while (true) {
    std::array<int32_t, kPassNumbers> numbers{};
    tell(numbers);
    const Pass pass{numbers[0], numbers[1], numbers[2], numbers[3]};
    if (pass.tokens == 0) return;
    std::vector<int32_t> tokens(static_cast<size_t>(pass.tokens));
    tell(tokens);
    compute(tokens, pass, [](std::span<const double>) {});
  }
}

void Sampler::dismiss() {
  std::array<int32_t, kPassNumbers> none{};
  if (parts_ > 1) tell(none);
}

void Sampler::compute(std::span<const int32_t> tokens, const Pass& pass,
                      FunctionRef<void(std::span<const double>)> body) {
  const Batch batch = batch_of(tokens, pass);
  keep_.reset();
  scratch_.reset();
  std::vector<double> row(static_cast<size_t>(model_vocab_));
  const auto read = [&](Tensor logits) {
    const HostCopy copy(replica_.ops(), replica_.compute(), of_all_ranks(logits));
    const Tensor& parts = copy.tensor();
    const int64_t rows = logits.row_count(), width = logits.last_dim();
    dispatch_float(parts.dtype, [&](auto zero) {
      using T = decltype(zero);
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t part = 0; part * width < model_vocab_; ++part) {
          const T* begin = parts.as<T>() + (part * rows + i) * width;
          std::transform(begin, begin + std::min(width, model_vocab_ - part * width),
                         row.begin() + part * width, [](T value) { return static_cast<double>(value); });
        }
        body(row);
      }
    });
  };
  each_logits(replica_.compute(), keep_, scratch_, batch, pass.first - pass.known, pass.cached != 0, read);
}

int64_t Sampler::known(std::span<const int32_t> tokens) const {
  const size_t most = std::min(held_.size(), tokens.size() - 1);
  return std::mismatch(held_.begin(), held_.begin() + static_cast<int64_t>(most), tokens.begin()).first -
         held_.begin();
}

std::vector<double> Sampler::logits(std::span<const int32_t> tokens) {
  check(!tokens.empty(), "sampling needs at least one token to start from");
  tokens = tokens.last(std::min(static_cast<size_t>(window_), tokens.size()));
  const auto length = static_cast<int32_t>(tokens.size());
  const auto held = static_cast<int32_t>(known(tokens));
  held_.resize(static_cast<size_t>(held));
  std::vector<double> last;
  each_row(tokens, {length, held, length - 1, cache_ ? 1 : 0},
           [&](std::span<const double> row) { last.assign(row.begin(), row.end()); });
  if (cache_) held_.assign(tokens.begin(), tokens.end());
  return last;
}

int32_t Sampler::draw(std::span<const double> logits, std::span<const int32_t> tokens,
                      const SamplingRule& rule, uint64_t seed, uint64_t position) const {
  const double uniform = philox_word(philox_key(seed, "sample"), position) / 4294967296.0;
  const std::span<const double> drawn = logits.first(static_cast<size_t>(vocab_));
  if (rule.repetition_penalty == 1) return static_cast<int32_t>(draw_token(drawn, rule, uniform));
  std::vector<double> penalised(drawn.begin(), drawn.end());
  penalise_repetition(penalised, tokens, rule.repetition_penalty);
  return static_cast<int32_t>(draw_token(penalised, rule, uniform));
}

std::vector<TokenScore> Sampler::score(std::span<const int32_t> tokens, int64_t best) {
  std::vector<TokenScore> scores;
  if (tokens.size() < 2) return scores;
  check(std::ssize(tokens) <= window_ + 1, "{} tokens to score, but the model is given at most {}",
        tokens.size(), window_);
  each_row(tokens.first(tokens.size() - 1), {static_cast<int32_t>(tokens.size() - 1), 0, 0, 0},
           [&](std::span<const double> row) {
             scores.push_back(score_token(row, tokens[scores.size() + 1], best));
           });
  return scores;
}

}  // namespace trifold
