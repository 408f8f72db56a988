#include "run/checks/finite_check.h"

#include <algorithm>
#include <cmath>

#include "ops/host_copy.h"

namespace trifold {

namespace {

// Places of a block in one direction: its weights, the tensors its layers show, the gradients of its parameters. In the
// forward direction, places for the block's inputs precede them.
constexpr int64_t kPlacesOfBlock = 1 << 20;
constexpr int64_t kFirstGradient = kPlacesOfBlock / 2;

}  // namespace

void check_sums_finite(const FiniteCheckParts& parts, const std::string& where) {
  for (const FlatLayout::Unit& unit : parts.layout.units())
    for (const FlatLayout::Segment& segment : parts.grads.segments(unit)) {
      const HostCopy sums(parts.ops, parts.compute, parts.grads.summed(segment));
      const std::optional<int64_t> bad = first_not_finite(sums.tensor());
      if (bad)
        fail("{}: element {} of the gradient of {} is {}", where, segment.first + *bad,
             parts.layout.params()[segment.id].shard.name, not_finite_text(sums.tensor(), *bad));
    }
}

FiniteCheck::FiniteCheck(const FiniteCheckParts& parts, StepWatch* inner)
    : StepWatch(inner),
      parts_(parts),
      search_(parts.world, parts.mesh, parts.ops, parts.data),
      bad_gradients_(static_cast<size_t>(parts.model.params.size()), false) {}

void FiniteCheck::go_before(int block, int64_t before) { search_.go_to(block * kPlacesOfBlock - before); }

void FiniteCheck::begin(const Action& action, int block, const Batch& batch, const ParamSource& weights,
                        Stream& stream) {
  StepWatch::begin(action, block, batch, weights, stream);
  const ParamList& params = parts_.model.params;
  const auto blocks = static_cast<int64_t>(parts_.model.blocks.size());
  action_ = action;
  block_ = block;
  const bool forward = action.kind == ActionKind::F;
  search_.go_to((forward ? block : 2 * blocks - 1 - block) * kPlacesOfBlock);
  search_.set_samples({});
  for (int i = 0; forward && i < params.size(); ++i)
    if (params[{i}].block == block)
      search_.look("the weight " + params[{i}].shard.name, weights.weight({i}), stream);
  row_samples_ = batch.seq_length() == 1 ? batch.samples() : 0;
  search_.set_samples({batch.first_sample, batch.samples(), parts_.names_micro_batches ? action.micro : -1});
}

void FiniteCheck::see(std::string_view layer, std::string_view what, Tensor tensor, Stream& stream) {
  StepWatch::see(layer, what, tensor, stream);
  look(layer, what, tensor, stream);
}

void FiniteCheck::look(std::string_view layer, std::string_view what, Tensor tensor, Stream& stream) {
  const std::string text = fmt::format("the {} of {}", what, layer);
  const auto params = parts_.model.params.specs();
  const auto weight = std::find_if(
      params.begin(), params.end(),
      [&, name = fmt::format("{}.weight", layer)](const ParamSpec& spec) { return spec.shard.name == name; });
  const int sources = weight == params.end() ? 1 : sources_of(weight->shard);
  if (sources > 1)
    look_at_exchanged(sources, text, tensor, stream);
  else if (tensor.row_count() == row_samples_)
    search_.look_at_rows(text, tensor, 0, tensor.last_dim(), stream);
  else
    search_.look(text, tensor, stream);
}

int FiniteCheck::sources_of(const ShardSpec& spec) const {
  return spec.data_axes().has(Axis::Edp) ? parts_.mesh.sizes().ranks(kExpertShareAxes) : 1;
}

void FiniteCheck::look_at_exchanged(int sources, const std::string& text, Tensor tensor, Stream& stream) {
  const FiniteSearch::Samples samples = search_.samples();
  FiniteSearch::Samples exchanged = samples;
  exchanged.sources = sources;
  search_.set_samples(exchanged);
  search_.look(text, tensor, stream);
  search_.set_samples(samples);
}

// Checks gradients after a block: the output loss computes its weight's gradient in forward (nn/layer.h), other blocks
// in B or W.
void FiniteCheck::end(Stream& stream) {
  StepWatch::end(stream);
  const ParamList& params = parts_.model.params;
  const bool last = block_ + 1 == static_cast<int>(parts_.model.blocks.size());
  search_.go_to(search_.place() + kFirstGradient - search_.place() % kPlacesOfBlock);
  if (action_.kind == ActionKind::B || action_.kind == ActionKind::W ||
      (last && action_.kind == ActionKind::F))
    for (int i = 0; i < params.size(); ++i) {
      if (params[{i}].block != block_ || bad_gradients_[static_cast<size_t>(i)] || !parts_.grads.begun({i}))
        continue;
      const Tensor gradient = parts_.grads.grad({i});
      const HostCopy seen(parts_.ops, stream, gradient);
      bad_gradients_[static_cast<size_t>(i)] = first_not_finite(seen.tensor()).has_value();
      look_at_exchanged(sources_of(params[{i}].shard), "the gradient of " + params[{i}].shard.name, gradient,
                        stream);
    }
  search_.set_samples({});
}

Error FiniteCheck::error(int64_t step, double loss, double norm, std::string_view of_norm) {
  search_.go_to(2 * static_cast<int64_t>(parts_.model.blocks.size()) * kPlacesOfBlock);
  for (const FlatLayout::Unit& unit : parts_.layout.units())
    for (const FlatLayout::Segment& segment : parts_.grads.segments(unit))
      search_.look(
          "the gradient of " + parts_.layout.params()[segment.id].shard.name + ", summed over the ranks",
          parts_.grads.summed(segment), parts_.compute);
  const bool of_loss = !std::isfinite(loss);
  return Error(
      fmt::format("step {}: the {} is {}{}; {}. The weights and the optimizer's state were not changed", step,
                  of_loss ? "loss" : "gradient norm", not_finite_text(of_loss ? loss : norm),
                  of_loss ? "" : of_norm, search_.verdict(parts_.compute)),
      ErrorKind::Agreed);
}

}  // namespace trifold
