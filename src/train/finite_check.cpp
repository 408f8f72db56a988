#include "train/finite_check.h"

#include "ops/host_copy.h"

namespace trifold {

namespace {

// Places of one block in one direction: its weights, what its layers show, the gradients of its parameters.
constexpr int64_t kPlacesOfBlock = 1 << 20;
constexpr int64_t kFirstGradient = kPlacesOfBlock / 2;

}  // namespace

void check_sums_finite(Replica& replica, const GradientBuffer& grads, const std::string& where) {
  const FlatLayout& layout = replica.layout().flat();
  for (const FlatLayout::Unit& unit : layout.units())
    for (const FlatLayout::Segment& segment : grads.segments(unit)) {
      const HostCopy sums(replica.ops(), replica.compute(), grads.summed(segment));
      const std::optional<int64_t> bad = first_not_finite(sums.tensor());
      if (bad)
        fail("{}: element {} of the gradient of {} is {}", where, segment.first + *bad,
             layout.params()[segment.id].shard.name, not_finite_text(sums.tensor(), *bad));
    }
}

FiniteCheck::FiniteCheck(Replica& replica, const GradientBuffer& grads, StepWatch* inner)
    : StepWatch(inner),
      replica_(replica),
      grads_(grads),
      search_(replica.world(), replica.mesh(), replica.ops(), "the training data"),
      bad_gradients_(static_cast<size_t>(replica.model().params.size()), false) {}

void FiniteCheck::begin(const Action& action, int block, const Batch& batch, const ParamSource& weights,
                        Stream& stream) {
  StepWatch::begin(action, block, batch, weights, stream);
  const ParamList& params = replica_.model().params;
  const auto blocks = static_cast<int64_t>(replica_.model().blocks.size());
  action_ = action;
  block_ = block;
  search_.set_samples({batch.first_sample, batch.samples(), action.micro});
  const bool forward = action.kind == ActionKind::F;
  search_.go_to((forward ? block : 2 * blocks - 1 - block) * kPlacesOfBlock);
  if (!forward) return;
  for (int i = 0; i < params.size(); ++i)
    if (params[{i}].block == block)
      search_.look("the weight " + params[{i}].shard.name, weights.weight({i}), stream);
}

void FiniteCheck::see(std::string_view layer, std::string_view what, Tensor tensor, Stream& stream) {
  StepWatch::see(layer, what, tensor, stream);
  search_.look(fmt::format("the {} of {}", what, layer), tensor, stream);
}

// The output loss makes its weight's gradient in forward (nn/layer.h), the other blocks in B or W.
void FiniteCheck::end(Stream& stream) {
  StepWatch::end(stream);
  const ParamList& params = replica_.model().params;
  const bool last = block_ + 1 == static_cast<int>(replica_.model().blocks.size());
  search_.go_to(search_.place() + kFirstGradient - search_.place() % kPlacesOfBlock);
  if (action_.kind == ActionKind::B || action_.kind == ActionKind::W ||
      (last && action_.kind == ActionKind::F))
    for (int i = 0; i < params.size(); ++i) {
      if (params[{i}].block != block_ || bad_gradients_[static_cast<size_t>(i)] || !grads_.begun({i}))
        continue;
      const Tensor gradient = grads_.grad({i});
      const HostCopy seen(replica_.ops(), stream, gradient);
      bad_gradients_[static_cast<size_t>(i)] = first_not_finite(seen.tensor()).has_value();
      search_.look("the gradient of " + params[{i}].shard.name, gradient, stream);
    }
  search_.set_samples({});
}

void FiniteCheck::look_at_sums(Stream& stream) {
  const FlatLayout& layout = replica_.layout().flat();
  search_.go_to(2 * static_cast<int64_t>(replica_.model().blocks.size()) * kPlacesOfBlock);
  for (const FlatLayout::Unit& unit : layout.units())
    for (const FlatLayout::Segment& segment : grads_.segments(unit))
      search_.look("the gradient of " + layout.params()[segment.id].shard.name + ", summed over the ranks",
                   grads_.summed(segment), stream);
}

}  // namespace trifold
