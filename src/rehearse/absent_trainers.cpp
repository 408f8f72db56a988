#include "rehearse/absent_trainers.h"

#include <algorithm>
#include <cmath>

#include "mesh/mesh_sizes.h"
#include "nn/expert_capacity.h"
#include "pipeline/executor.h"

namespace trifold {

AbsentTrainers::AbsentTrainers(const RunSpec& run, const MeshCoords& coords,
                               const std::optional<PlannedMachine>& machine, double expert_load)
    : tokens_(static_cast<double>(run.global_batch_size * run.model.seq_length)),
      first_loss_(std::log(static_cast<double>(std::max<int64_t>(2, run.model.vocab_size.value_or(2))))),
      data_ranks_(mesh_sizes(run.mesh).ranks(kDataAxes)),
      cut_vocabulary_(mesh_sizes(run.mesh)[Axis::Tp] > 1 || run.mesh.pipeline_vocab_parts > 1) {
  if (machine) prices_.emplace(*machine, run);
  if (run.model.num_experts && mesh_sizes(run.mesh).ranks(kExpertShareAxes) > 1)
    announce_rows(run, coords, expert_load);
}

void AbsentTrainers::announce_rows(const RunSpec& run, const MeshCoords& coords, double load) {
  const MeshSizes sizes = mesh_sizes(run.mesh);
  const int64_t experts = *run.model.num_experts, choices = run.model.moe_router_topk;
  const int64_t positions = run.model.seq_length / sizes[Axis::Cp];
  const double tokens = static_cast<double>(run.micro_batch_size * positions) / sizes[Axis::Tp];
  const auto owners = static_cast<double>(sizes[Axis::Ep]);
  const double rows = tokens * static_cast<double>(choices);
  const double here = std::min(load / owners, 1.0) * rows;
  const double elsewhere = owners > 1 ? (rows - here) / (owners - 1) : 0;
  double most = rows;  // rows of one expert
  if (const auto factor = run.model.moe_expert_capacity_factor)
    most = tokens / static_cast<double>(positions) *
           static_cast<double>(
               std::min(positions, expert_capacity(*factor, run.model.seq_length, choices, experts)));
  const auto local = static_cast<double>(experts) / owners;
  announced_ = experts + 1;
  double before = 0;
  std::vector<int32_t> begins;
  for (int64_t expert = 0; expert <= experts; ++expert) {
    begins.push_back(static_cast<int32_t>(std::llround(before)));
    const int owner = static_cast<int>(static_cast<double>(expert) / local);
    before += std::min(most, (owner == coords[Axis::Ep] ? here : elsewhere) / local);
  }
  for (int rank = 0; rank < sizes.ranks(kExpertShareAxes); ++rank)
    rows_.insert(rows_.end(), begins.begin(), begins.end());
}

bool AbsentTrainers::sum(unsigned group, int /*ranks*/, Tensor numbers) const {
  if (AxisSet::of_bits(group) != (kDataAxes | AxisSet{Axis::Pp}) || numbers.elements() % kLossNumbers != 0)
    return false;
  for (int64_t i = 0; i < numbers.elements(); i += kLossNumbers) {
    double* sums = numbers.as<double>() + i;
    for (int64_t k = 0; k < kLossNumbers; ++k) sums[k] *= data_ranks_;
    // If this rank's part of the vocabulary, of which peers repeat the sums, is all padding, no token has a probability,
    // and the loss is not finite. Gradients are, or the norm's check finds them.
    const bool knows_loss = sums[1] > 0 && (std::isfinite(sums[0]) || !cut_vocabulary_);
    if (!knows_loss) sums[0] = (sums[1] > 0 ? sums[1] : tokens_) * first_loss_;
    if (sums[1] == 0) sums[1] = tokens_;
  }
  return true;
}

namespace {

// Begins of rows, in order; the indices of tokens, which the same ranks gather, may be as many. Unknown: they may be.
bool may_be_begins(const Tensor& numbers) {
  if (numbers.data == nullptr) return true;
  const auto* first = numbers.as<int32_t>();
  return first[0] == 0 && std::is_sorted(first, first + numbers.elements());
}

}  // namespace

Tensor AbsentTrainers::gathered(unsigned group, int ranks, const Tensor& mine) const {
  if (rows_.empty() || AxisSet::of_bits(group) != kExpertShareAxes || mine.dtype != DType::I32 ||
      mine.elements() != announced_ || !may_be_begins(mine))
    return {};
  return {const_cast<int32_t*>(rows_.data()), DType::I32, {ranks, announced_}};
}

}  // namespace trifold
