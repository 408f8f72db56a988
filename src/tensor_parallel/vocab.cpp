#include "tensor_parallel/vocab.h"

#include <algorithm>

namespace trifold {

VocabEmbedding::VocabEmbedding(BlockBuilder& builder, const std::string& name, int64_t padded_vocab,
                               const AddedTables& added, int64_t width, Init init, const TokenParts& parts)
    : name_(name), region_(builder), width_(width), dy_(builder.slot()) {
  const std::string tokens = name + ".tokens.weight";
  for (const int part : parts.own) {
    const ParamId id =
        parts.parts == 1 ? builder.sharded(tokens, {padded_vocab, width}, 0, init, true)
                         : builder.sharded_part(tokens, {padded_vocab, width}, part, parts.parts, init, true);
    builder.table(id);
    tokens_.push_back({id, builder.params()[id].shard.local.offset[0]});
  }
  const auto table = [&](const char* of, int64_t rows) {
    return builder.table(builder.replicated(name + of, {rows, width}, init, true));
  };
  if (added.positions > 0)
    tables_.push_back({table(".positions.weight", added.position_offset + added.positions), &Batch::positions,
                       -added.position_offset});
  if (added.types == 1) only_type_ = table(".types.weight", 1);
  if (added.types > 1) tables_.push_back({table(".types.weight", added.types), &Batch::token_types, 0});
}

std::vector<ParamId> VocabEmbedding::tokens() const {
  std::vector<ParamId> ids;
  for (const TokenRows& part : tokens_) ids.push_back(part.weight);
  return ids;
}

void VocabEmbedding::look_up(Run& run, Tensor y) const {
  for (const TokenRows& part : tokens_)
    run.ops.embedding(run.stream, y, run.weight(part.weight), run.batch->tokens.flat(), part.first_id,
                      &part != &tokens_.front());
  run.show(name_, "token vectors", y);
}

// The sum so far may be in a received message; the result stays there, because a message outlives the backward.
Tensor VocabEmbedding::forward(Run& run, Tensor earlier, Saved&) const {
  const bool adds = earlier.rank() > 0;
  Tensor y = earlier;
  if (adds && run.outgoing != nullptr) {
    y = run.outgoing->take(run.dtype, earlier.shape);
    if (tokens_.empty()) run.ops.copy(run.stream, y, earlier);
  }
  if (!tokens_.empty()) {
    const Arena::Mark mark = run.scratch.mark();
    const Region::Sum found =
        region_.take_sum(run, adds ? run.scratch : run.output(), run.batch->tokens.elements(), width_);
    look_up(run, found.partial);
    region_.add_up(run, found, run.stream);
    if (adds)
      run.ops.add(run.stream, y, earlier, found.result);
    else
      y = found.result;
    run.scratch.release(adds ? mark : found.mark);
  }
  for (const Table& table : tables_)
    run.ops.embedding(run.stream, y, run.weight(table.weight),
                      region_.own_rows((run.batch->*table.ids).flat()), table.first_id, true);
  if (only_type_) {
    const Arena::Mark mark = run.scratch.mark();
    const Tensor rows = run.scratch.take(run.dtype, y.shape);
    run.ops.fill_rows(run.stream, rows, run.weight(*only_type_));
    run.ops.add(run.stream, y, y, rows);
    run.scratch.release(mark);
  }
  run.show(name_, "output", y);
  return y;
}

// The gradient of a sum is the gradient of each term, so dy is passed on.
Tensor VocabEmbedding::backward_input(Run&, Tensor dy, Saved& saved) const {
  saved[dy_] = dy;
  return dy;
}

// This rank's tokens may occur in any row, so all rows of dy are gathered.
void VocabEmbedding::backward_weight(Run& run, Saved& saved) const {
  if (!tokens_.empty() && !run.trains(tokens_.front().weight)) return;
  if (!tables_.empty() && !run.trains(tables_.front().weight)) return;
  const Arena::Mark mark = run.scratch.mark();
  const Tensor all_dy = region_.gather_rows(run, saved[dy_], run.scratch, run.stream);
  const Tensor tokens = run.batch->tokens.flat();
  const Tensor order = run.scratch.take(DType::I32, tokens.shape);
  for (const TokenRows& part : tokens_)
    run.ops.embedding_backward(run.stream, run.grad_from_zero(part.weight), all_dy, tokens, order,
                               part.first_id);
  for (const Table& table : tables_) {
    const Tensor ids = region_.own_rows((run.batch->*table.ids).flat());
    run.ops.embedding_backward(run.stream, run.grad_from_zero(table.weight), saved[dy_], ids,
                               order.rows(0, ids.elements()), table.first_id);
  }
  if (only_type_) run.ops.column_sum(run.stream, run.grad(*only_type_), saved[dy_], run.adds_to(*only_type_));
  run.scratch.release(mark);
}

namespace {

constexpr int64_t kDeviceRows = 4096;  // the fewest rows of a chunk on a device

}  // namespace

int64_t VocabCrossEntropy::device_chunk_rows(int64_t vocab) {
  return std::max(kDeviceRows, rows_of_chunk(vocab));
}

VocabCrossEntropy::VocabCrossEntropy(BlockBuilder& builder, std::string name, ParamId weight, int64_t vocab,
                                     int64_t chunk_rows, std::optional<ParamId> bias, LogitForm form,
                                     std::optional<LaterLoss> later, std::unique_ptr<SampleLoss> samples)
    : name_(std::move(name)),
      region_(builder),
      vocab_(vocab),
      chunk_rows_(chunk_rows > 0 ? chunk_rows : rows_of_chunk(vocab)),
      first_id_(builder.params()[weight].shard.local.offset[0]),
      weight_(weight),
      bias_(bias),
      form_(form),
      later_(later),
      samples_(std::move(samples)),
      dx_(builder.slot()) {
  check(!bias || (form.scale == 1 && form.soft_cap == 0), "{}: logits with a bias have no other form", name_);
  check(!later || !samples_, "{}: a loss of later labels is no loss of samples", name_);
}

Tensor VocabCrossEntropy::labels(const Run& run) const {
  const Batch& batch = *run.batch;
  return (later_ ? batch.later_labels.at(static_cast<size_t>(later_->later) - 1) : batch.labels).flat();
}

Tensor VocabCrossEntropy::loss_weights(const Run& run) const {
  const Batch& batch = *run.batch;
  return (later_ ? batch.later_weights.at(static_cast<size_t>(later_->later) - 1) : batch.loss_weight).flat();
}

Tensor VocabCrossEntropy::logits(Run& run, Tensor x) const {
  check(!region_.slices(),
        "logits of chosen rows need whole activations: sample without sequence parallelism");
  const Tensor w = run.weight(weight_);
  const Tensor y = run.keep->take(run.dtype, {x.row_count(), w.row_count()});
  find_logits(run, y, x);
  return y;
}

Tensor VocabCrossEntropy::forward(Run& run, Tensor x, Saved& saved) const {
  const int64_t rows = region_.rows_inside(x.row_count());
  Region::Sum dx;
  if (run.has_backward()) {
    dx = region_.take_sum(run, *run.keep, rows, x.last_dim());
    saved[dx_] = dx.result;
  } else {
    dx.mark = run.scratch.mark();
  }
  const Tensor all_x = region_.gather_rows(run, x, run.scratch, run.stream);
  const Tensor losses = run.scratch.take(accumulate_type(run.dtype), {rows});
  const Tensor factors = samples_ ? add_sample_losses(run, all_x, losses) : Tensor{};
  if (!samples_ || run.has_backward())
    for_each_chunk(run.stream, rows, chunk_rows_, [&](int64_t begin, int64_t end) {
      const Chunk chunk{begin, end};
      const Tensor dx_here = run.has_backward() ? chunk.of(dx.partial) : Tensor{};
      run_chunk(run, chunk, chunk.of(all_x), chunk.of(losses), dx_here, factors);
    });
  run.show(name_, kLosses, losses);
  if (run.has_backward()) {
    run.show(name_, "input gradient", dx.partial);
    region_.add_up(run, dx, run.stream);
    run.show(name_, "summed input gradient", dx.result);
  }
  if (!samples_) add_losses(run, losses);
  run.scratch.release(dx.mark);
  return {};
}

void VocabCrossEntropy::add_losses(Run& run, Tensor losses) const {
  const Tensor weights = loss_weights(run);
  if (!later_) {
    run.ops.weighted_sum(run.stream, run.loss_sum, losses, weights);
    run.ops.fill(run.stream, losses, 1.0);
    run.ops.weighted_sum(run.stream, run.weight_sum, losses, weights);
  } else if (run.loss_terms.rank() > 0) {
    run.ops.weighted_sum(run.stream, run.loss_term(later_->term), losses, weights);
  }
}

Tensor VocabCrossEntropy::add_sample_losses(Run& run, Tensor x, Tensor losses) const {
  for_each_chunk(run.stream, losses.elements(), chunk_rows_, [&](int64_t begin, int64_t end) {
    const Chunk chunk{begin, end};
    run_chunk(run, chunk, chunk.of(x), chunk.of(losses), {}, {});
  });
  const Tensor sums = take_sample_sums(run, losses, run.scratch);
  run.show(name_, SampleLoss::kSums, sums);
  samples_->add(run, sums);
  if (!run.has_backward()) return {};
  const Tensor factors = run.scratch.take(DType::F64, sums.shape);
  samples_->find_factors(run, factors, sums);
  return factors;
}

template <class Body>
void VocabCrossEntropy::for_each_factor(const Run& run, const Chunk& chunk, Tensor factors, Body body) const {
  if (!samples_) return body(Chunk{0, chunk.end - chunk.begin}, loss_factor(run));
  for_each_sample(run, chunk.begin, chunk.end, factors, [&](int64_t from, int64_t to, const Factor& factor) {
    body(Chunk{from - chunk.begin, to - chunk.begin}, factor);
  });
}

void VocabCrossEntropy::find_logits(Run& run, Tensor logits, Tensor x) const {
  if (!bias_) return compute_logits(run, form_, logits, x, run.weight(weight_));
  run.ops.fill_rows(run.stream, logits, run.weight(*bias_));
  run.ops.gemm(run.stream, logits, x, false, run.weight(weight_), true, 1.0, 1.0);
}

// The logits are overwritten by their gradient, unless a soft cap needs both, used for both products of the adjoint, and
// released.
void VocabCrossEntropy::run_chunk(Run& run, const Chunk& chunk, Tensor x, Tensor losses, Tensor dx,
                                  Tensor factors) const {
  const Arena::Mark mark = run.scratch.mark();
  const Tensor w = run.weight(weight_);
  const Tensor labels = chunk.of(this->labels(run));
  const Tensor logits = run.scratch.take(run.dtype, {x.row_count(), w.row_count()});
  const auto [max, sum, target] =
      VocabStatistics::take(run.scratch, accumulate_type(run.dtype), losses.elements());
  find_logits(run, logits, x);
  run.show(name_, "logits", logits);
  const bool differentiates = dx.rank() > 0;
  const Tensor gradient =
      form_.soft_cap > 0 && differentiates ? run.scratch.take(run.dtype, logits.shape) : logits;
  const bool at_once = differentiates && region_.alone() && !samples_;
  const Tensor weights = chunk.of(loss_weights(run));
  if (at_once)
    run.ops.cross_entropy_all(run.stream, gradient, max, sum, target, logits, labels, weights,
                              loss_factor(run), first_id_, vocab_);
  else
    find_statistics(run, region_, logits, labels, first_id_, vocab_, {max, sum, target});
  run.ops.cross_entropy(run.stream, losses, max, sum, target);
  run.show(name_, kLargestLogits, max);
  run.show(name_, kSums, sum);
  run.show(name_, kLabelLogits, target);
  if (differentiates) {
    const Tensor largest = max, total = sum;  // a lambda cannot capture structured bindings
    if (!at_once)
      for_each_factor(run, chunk, factors, [&](const Chunk& part, const Factor& factor) {
        run.ops.cross_entropy_backward(run.stream, part.of(gradient), part.of(logits), part.of(largest),
                                       part.of(total), part.of(labels), part.of(weights), factor, first_id_,
                                       vocab_);
      });
    undo_soft_cap(run, form_, gradient, logits);
    run.show(name_, "gradient of the logits", gradient);
    run.ops.gemm(run.stream, dx, gradient, false, w, false, form_.scale, 0.0);
    if (run.trains(weight_)) {
      const bool adds = run.adds_to(weight_, bias_);
      run.ops.gemm(run.stream, run.grad(weight_), gradient, true, x, false, form_.scale, adds ? 1.0 : 0.0);
      if (bias_) run.ops.column_sum(run.stream, run.grad(*bias_), gradient, adds);
    }
  }
  run.scratch.release(mark);
}

Tensor VocabCrossEntropy::backward_input(Run&, Tensor, Saved& saved) const { return saved[dx_]; }

}  // namespace trifold
