#include "train/finite_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>

#include "core/not_finite.h"
#include "ops/host_copy.h"

namespace trifold {

namespace {

// Places of one block in one direction: its weights, what its layers show, the gradients of its parameters.
constexpr int64_t kPlacesOfBlock = 1 << 20;
constexpr int64_t kFirstGradient = kPlacesOfBlock / 2;

double value_of(const Tensor& tensor, int64_t index) {
  return dispatch_float(tensor.dtype, [&](auto zero) {
    using T = decltype(zero);
    return static_cast<double>(tensor.as<T>()[index]);
  });
}

// "element 3 of the output of block.1.norm1, [32, 64], is -inf"
std::string text_of(std::string_view what, const Tensor& tensor, int64_t index) {
  return fmt::format("element {} of {}, {}, is {}", index, what, to_string(tensor.shape),
                     not_finite_text(value_of(tensor, index)));
}

}  // namespace

std::string not_finite_text(double value) { return std::isnan(value) ? "nan" : fmt::format("{}", value); }

std::optional<int64_t> first_not_finite(Tensor tensor) {
  const auto bad = first_not_finite(tensor.data, tensor.dtype, tensor.elements());
  return bad ? std::optional(bad->index) : std::nullopt;
}

void check_sums_finite(Replica& replica, const GradientBuffer& grads, const std::string& where) {
  const FlatLayout& layout = replica.layout();
  for (const FlatLayout::Unit& unit : layout.units())
    for (const FlatLayout::Segment& segment : layout.segments(unit, grads.slice())) {
      const HostCopy sums(replica.ops(), replica.compute(), grads.summed(segment));
      const std::optional<int64_t> bad = first_not_finite(sums.tensor());
      if (bad)
        fail("{}: element {} of the gradient of {} is {}", where, segment.first + *bad,
             layout.params()[segment.id].shard.name, not_finite_text(value_of(sums.tensor(), *bad)));
    }
}

bool FiniteCheck::Finding::before(const Finding& other) const {
  if (found != other.found) return found > other.found;
  return std::tie(place, first_sample, rank) < std::tie(other.place, other.first_sample, other.rank);
}

FiniteCheck::FiniteCheck(Replica& replica, const GradientBuffer& grads, StepWatch* inner)
    : replica_(replica),
      grads_(grads),
      inner_(inner),
      bad_gradients_(static_cast<size_t>(replica.model().params.size()), false) {
  first_.rank = replica.world().rank();
}

void FiniteCheck::look(std::string_view what, Tensor tensor, Stream& stream) {
  const int64_t place = place_++;
  Finding finding;
  finding.place = place;
  finding.first_sample = batch_ == nullptr ? -1 : batch_->first_sample;
  finding.samples = batch_ == nullptr ? 0 : batch_->samples();
  finding.rank = first_.rank;
  finding.found = 1;
  finding.micro = action_.micro;
  if (!finding.before(first_)) return;
  const HostCopy seen(replica_.ops(), stream, tensor);
  const std::optional<int64_t> bad = first_not_finite(seen.tensor());
  if (!bad) return;
  const std::string text = text_of(what, seen.tensor(), *bad);
  std::memcpy(finding.text, text.data(), std::min(text.size(), Finding::kTextBytes - 1));
  first_ = finding;
}

void FiniteCheck::begin(const Action& action, int block, const Batch& batch, const ParamSource& weights,
                        Stream& stream) {
  if (inner_ != nullptr) inner_->begin(action, block, batch, weights, stream);
  const ParamList& params = replica_.model().params;
  const auto blocks = static_cast<int64_t>(replica_.model().blocks.size());
  action_ = action;
  block_ = block;
  batch_ = &batch;
  const bool forward = action.kind == ActionKind::F;
  place_ = (forward ? block : 2 * blocks - 1 - block) * kPlacesOfBlock;
  if (!forward) return;
  for (int i = 0; i < params.size(); ++i)
    if (params[{i}].block == block) look("the weight " + params[{i}].shard.name, weights.weight({i}), stream);
}

void FiniteCheck::see(std::string_view layer, std::string_view what, Tensor tensor, Stream& stream) {
  if (inner_ != nullptr) inner_->see(layer, what, tensor, stream);
  look(fmt::format("the {} of {}", what, layer), tensor, stream);
}

// The output loss makes its weight's gradient in forward (nn/layer.h), the other blocks in B or W.
void FiniteCheck::end(Stream& stream) {
  if (inner_ != nullptr) inner_->end(stream);
  const ParamList& params = replica_.model().params;
  const bool last = block_ + 1 == static_cast<int>(replica_.model().blocks.size());
  place_ += kFirstGradient - place_ % kPlacesOfBlock;
  if (action_.kind == ActionKind::B || action_.kind == ActionKind::W ||
      (last && action_.kind == ActionKind::F))
    for (int i = 0; i < params.size(); ++i) {
      if (params[{i}].block != block_ || bad_gradients_[static_cast<size_t>(i)]) continue;
      const Tensor gradient = grads_.grad({i});
      const HostCopy seen(replica_.ops(), stream, gradient);
      bad_gradients_[static_cast<size_t>(i)] = first_not_finite(seen.tensor()).has_value();
      look("the gradient of " + params[{i}].shard.name, gradient, stream);
    }
  batch_ = nullptr;
}

void FiniteCheck::after(const Action& action) {
  if (inner_ != nullptr) inner_->after(action);
}

void FiniteCheck::look_at_sums(Stream& stream) {
  const FlatLayout& layout = replica_.layout();
  place_ = 2 * static_cast<int64_t>(replica_.model().blocks.size()) * kPlacesOfBlock;
  for (const FlatLayout::Unit& unit : layout.units())
    for (const FlatLayout::Segment& segment : layout.segments(unit, grads_.slice()))
      look("the gradient of " + layout.params()[segment.id].shard.name + ", summed over the ranks",
           grads_.summed(segment), stream);
}

std::string FiniteCheck::describe(const Finding& finding) const {
  const std::string where =
      fmt::format("rank {} ({})", finding.rank,
                  label_of(coords_of(static_cast<int>(finding.rank), replica_.mesh().sizes())));
  const std::string_view text(finding.text);
  if (finding.samples == 0) return fmt::format("on {}, {}", where, text);
  const int64_t last = finding.first_sample + finding.samples - 1;
  const std::string samples = last == finding.first_sample
                                  ? fmt::format("sample {}", last)
                                  : fmt::format("samples {} to {}", finding.first_sample, last);
  return fmt::format("in micro-batch {} ({} of the training data) on {}, {}", finding.micro, samples, where,
                     text);
}

std::string FiniteCheck::verdict() {
  Communicator& world = replica_.world();
  std::vector<Finding> all(static_cast<size_t>(world.size()));
  const auto bytes = static_cast<int64_t>(sizeof(Finding));
  world.all_gather({all.data(), DType::U8, {world.size() * bytes}}, {&first_, DType::U8, {bytes}},
                   replica_.compute());
  replica_.compute().synchronize();
  const Finding& first = *std::min_element(all.begin(), all.end(),
                                           [](const Finding& a, const Finding& b) { return a.before(b); });
  if (first.found == 0)
    return "computed once more, every number of the step was finite: the first time a processor or memory "
           "failed, or ranks raced";
  return fmt::format("the first number that is not finite appears {}", describe(first));
}

}  // namespace trifold
