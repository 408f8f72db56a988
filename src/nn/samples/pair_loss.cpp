#include "nn/samples/pair_loss.h"

#include <array>
#include <initializer_list>

namespace trifold {

namespace {

// The elements begin, begin + stride, ... of a tensor.
struct Elements {
  Elements(Tensor tensor, int64_t first = 0, int64_t step = 1)  // NOLINT(google-explicit-constructor)
      : of(tensor), view{first, {step}} {}
  Tensor of;
  StridedView view;
};

// A new tensor of f(x) for `count` elements.
Tensor mapped(Run& run, MapOp op, int64_t count, std::initializer_list<Elements> x, double a = 0,
              double b = 0) {
  const Tensor y = run.scratch.take(DType::F64, {count});
  Map map{.op = op, .a = a, .b = b, .box = {1, {count}}, .from = {}};
  std::array<Tensor, 3> inputs;
  size_t n = 0;
  for (const Elements& elements : x) {
    inputs.at(n) = elements.of;
    map.from.at(n++) = elements.view;
  }
  run.ops.map(run.stream, y, {inputs.data(), n}, map);
  return y;
}

// total [1] += the sum of the elements
void add_up(Run& run, Tensor total, Tensor x) {
  const Box box{1, {x.elements()}};
  run.ops.strided_sum(run.stream, total, {}, x, contiguous_view(box), box, 1.0, true);
}

// log(1 + exp(x)), without overflow
Tensor softplus(Run& run, Tensor x) {
  const int64_t n = x.elements();
  const Tensor small =
      mapped(run, MapOp::Exp, n, {mapped(run, MapOp::Neg, n, {mapped(run, MapOp::Abs, n, {x})})});
  const Tensor log = mapped(run, MapOp::Log1p, n, {small});
  return mapped(run, MapOp::Add, n, {log, mapped(run, MapOp::Relu, n, {x})}, 1);
}

// Whether the samples are pairs. Costs are counted for one sample, of which the loss is no part.
bool has_pairs(const Run& run, const Tensor& sums) {
  if (sums.elements() % 2 == 0) return true;
  if (run.stream.mode() != Stream::Mode::Dry)
    fail("{} samples are not whole pairs of a preferred and a rejected answer", sums.elements());
  return false;
}

}  // namespace

PairLoss::PairLoss(BlockBuilder& builder, const PairLossConfig& config)
    : config_(config),
      chosen_(builder.shown_loss_term(kChosen)),
      rejected_(builder.shown_loss_term(kRejected)),
      margin_(builder.shown_loss_term(kMargin)),
      accuracy_(builder.shown_loss_term(kAccuracy)) {}

PairLoss::Pairs PairLoss::find_pairs(Run& run, Tensor sums) const {
  const Batch& batch = *run.batch;
  const int64_t samples = sums.elements();
  const int64_t pairs = samples / 2;
  const Tensor differences = mapped(run, MapOp::Add, samples, {sums, batch.sample_values}, 1);
  const Tensor rewards = mapped(run, MapOp::Linear, samples, {differences}, -config_.beta);
  const Tensor weights = run.scratch.take(DType::F64, {samples});
  run.ops.convert(run.stream, weights, batch.pair_weight);
  return {mapped(run, MapOp::Identity, pairs, {{rewards, 0, 2}}),
          mapped(run, MapOp::Identity, pairs, {{rewards, 1, 2}}),
          mapped(run, MapOp::Add, pairs, {{rewards, 0, 2}, {rewards, 1, 2}}, -1),
          mapped(run, MapOp::Identity, pairs, {{weights, 0, 2}})};
}

// With m = margin: softplus(-m) + e m, since softplus(m) - softplus(-m) = m.
Tensor PairLoss::losses(Run& run, Tensor margins) const {
  const int64_t n = margins.elements();
  const double beta = config_.beta;
  if (config_.loss == PairLossKind::Ipo)
    return mapped(run, MapOp::Square, n,
                  {mapped(run, MapOp::Linear, n, {margins}, 1 / beta, -1 / (2 * beta))});
  const Tensor unlikely = softplus(run, mapped(run, MapOp::Neg, n, {margins}));
  return mapped(run, MapOp::Add, n, {unlikely, margins}, config_.label_smoothing);
}

Tensor PairLoss::slopes(Run& run, Tensor margins) const {
  const int64_t n = margins.elements();
  const double beta = config_.beta;
  if (config_.loss == PairLossKind::Ipo)
    return mapped(run, MapOp::Linear, n, {margins}, 2 / (beta * beta), -1 / (beta * beta));
  const Tensor unlikely = mapped(run, MapOp::Sigmoid, n, {mapped(run, MapOp::Neg, n, {margins})});
  return mapped(run, MapOp::Linear, n, {unlikely}, -1, config_.label_smoothing);
}

void PairLoss::add(Run& run, Tensor sums) const {
  if (run.mesh.coord(Axis::Cp) != 0 || !has_pairs(run, sums)) return;
  const Arena::Mark mark = run.scratch.mark();
  const Pairs pairs = find_pairs(run, sums);
  const int64_t n = pairs.margins.elements();
  const auto add_weighted = [&](Tensor total, Tensor x) {
    add_up(run, total, mapped(run, MapOp::Mul, n, {x, pairs.weights}));
  };
  add_weighted(run.loss_sum, losses(run, pairs.margins));
  add_up(run, run.weight_sum, pairs.weights);
  if (run.loss_terms.rank() > 0) {
    const Tensor none = mapped(run, MapOp::Linear, n, {pairs.margins}, 0, 0);
    add_weighted(run.loss_term(chosen_), pairs.chosen);
    add_weighted(run.loss_term(rejected_), pairs.rejected);
    add_weighted(run.loss_term(margin_), pairs.margins);
    add_weighted(run.loss_term(accuracy_), mapped(run, MapOp::Greater, n, {pairs.margins, none}));
  }
  run.scratch.release(mark);
}

// A sum is minus a log-likelihood, so the margin falls by beta with the preferred answer's sum and rises by beta with
// the other's.
void PairLoss::find_factors(Run& run, Tensor factors, Tensor sums) const {
  if (!has_pairs(run, sums)) return;
  const Arena::Mark mark = run.scratch.mark();
  const Pairs pairs = find_pairs(run, sums);
  const int64_t n = pairs.margins.elements();
  const Tensor slope = mapped(run, MapOp::Mul, n, {slopes(run, pairs.margins), pairs.weights});
  const Box box{1, {n}};
  for (int64_t place = 0; place < 2; ++place) {
    const Tensor of_place = mapped(run, MapOp::Linear, n, {slope}, place == 0 ? -config_.beta : config_.beta);
    run.ops.strided_copy(run.stream, factors, {place, {2}}, of_place, contiguous_view(box), box);
  }
  run.ops.scale(run.stream, factors, run.loss_factor());
  run.scratch.release(mark);
}

}  // namespace trifold
