#include "train/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "mesh/mesh_sizes.h"
#include "models/language_model.h"
#include "pipeline/executor.h"
#include "pipeline/passes.h"
#include "train/device_workspace.h"
#include "train/memory_fit.h"
#include "train/nodes.h"
#include "train/plan_costs.h"
#include "train/rank_memory.h"
#include "train/replica.h"
#include "train/step_plan.h"
#include "zero/sharded_optimizer.h"

namespace trifold {

namespace {

DType dtype_of(const PretrainConfig& config) { return compute_type(config.precision); }

// Bytes of one element of a gradient.
size_t gradient_bytes(const PretrainConfig& config) { return size_of(accumulate_type(dtype_of(config))); }

// Global batches of an asynchronous schedule to simulate: the window, or as much of it as shows its steady
// state.
int batches_to_simulate(const PretrainConfig& config) {
  constexpr int64_t kEnoughMicros = 1024;
  const int64_t window = config.pipeline.async_window.value_or(1);
  const int64_t enough = std::max<int64_t>(8, kEnoughMicros / micros_per_step(config));
  return static_cast<int>(std::min(window, enough));
}

// The flat buffers of weights and gradients start every parameter at a multiple of the grain.
int64_t aligned(int64_t elements) { return (elements + kGrain - 1) / kGrain * kGrain; }

// What one pipeline rank holds of the parameters, in elements; a tied copy on a rank of its own is held too.
struct Held {
  int64_t weights = 0;
  int64_t gradients = 0;  // a tied use has a gradient of its own
};

class Builder {
 public:
  explicit Builder(const PlanConfig& config)
      : config_(config),
        run_(config.run),
        sizes_(mesh_sizes(run_.mesh)),
        model_(make_model(run_.model, Mesh(sizes_, {}), run_.seed, run_.mesh)),
        costs_(make_plan_costs(config, model_)),
        order_(step_order(run_, batches_to_simulate(run_))),
        cut_(cut_stages(model_.block_costs(), static_cast<int>(order_.rank_of_stage.size()))),
        zero_(zero_sharing(run_)) {}

  PlanReport build() {
    describe_run();
    shape_ = plan_shape(order_, cut_, model_, unit_elements(run_.zero), reduces_each(run_));
    report_.plan = complete_plan(order_, shape_);
    report_.stages = report_stages(model_, cut_, order_.rank_of_stage);
    for (int rank = 0; rank < sizes_[Axis::Pp]; ++rank) {
      const RankUse use = use_of(rank, report_.plan, reduces_each(run_));
      report_.memory.push_back(use.memory);
      report_.traffic.push_back({tensor_traffic(rank), 0, use.data_bytes / order_.batches});
    }
    check_memory_limit(run_, report_.memory);
    compare_reductions();
    report_.simulation = simulate(report_.plan, shape_, cost_model());
    for (size_t rank = 0; rank < report_.traffic.size(); ++rank)
      report_.traffic[rank].pipeline =
          static_cast<double>(report_.simulation.ranks[rank].sent_bytes) / order_.batches;
    report_.step_seconds = report_.simulation.makespan / order_.batches;
    report_.computation = order_.compute;
    count_pairs();
    const double ranks = sizes_.ranks();
    report_.mfu = report_.flops / (report_.step_seconds * ranks * config_.peak_gflops * 1e9);
    return std::move(report_);
  }

  std::vector<PlannedRank> ranks() {
    const bool each = reduces_each(run_);
    const Plan plan = complete_plan(order_, plan_shape(order_, cut_, model_, unit_elements(run_.zero), each));
    std::vector<PlannedRank> ranks;
    for (int rank = 0; rank < sizes_[Axis::Pp]; ++rank)
      ranks.push_back({use_of(rank, plan, each).memory, parameters_of(rank)});
    return ranks;
  }

 private:
  void count_pairs() {
    for (const RankPlan& row : order_.compute)
      report_.pairs += static_cast<int>(
          std::count_if(row.begin(), row.end(), [](const Action& action) { return action.overlaps_next; }));
    if (report_.pairs == 0) return;
    CostModel cost = cost_model();
    cost.timeline = false;
    cost.overlap_pairs = true;
    try {
      std::optional<std::pair<int, int>> tied;
      if (shape_.tied) tied = {0, shape_.stages - 1};
      const Plan together = add_communication(
          add_reduce(order_.compute, shape_.blocks, shape_.bucket_ends, tied, shape_.each), Pairs::Together);
      report_.overlapped_seconds = simulate(together, shape_, cost).makespan / order_.batches;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::BadInput) throw;  // a pair waits for itself, by way of other ranks
    }
  }

  void describe_run() {
    report_.tensor = sizes_[Axis::Tp];
    report_.data = sizes_[Axis::Dp];
    report_.pipeline = sizes_[Axis::Pp];
    report_.parameters = model_.params.global_elements();
    report_.schedule = run_.pipeline.schedule->text();
    report_.stages_per_rank = static_cast<int>(cut_.size()) / sizes_[Axis::Pp];
    report_.micros = order_.micros;
    report_.batches = order_.batches;
    report_.flops = model_.train_flops_per_sample() * static_cast<double>(*run_.batch.global_batch_size);
    report_.tokens = *run_.batch.global_batch_size * run_.model.seq_length;
  }

  // Visits the parameters that stages of this kind use: those of one stage, or of one rank.
  template <class Uses>
  Held held(Uses&& uses) const {
    Held sum;
    for (const ParamSpec& spec : model_.params.specs()) {
      if (!uses(spec.block)) continue;
      const int64_t elements = aligned(spec.shard.local.elements());
      sum.gradients += elements;
      if (!spec.tied_to || !uses(model_.params[*spec.tied_to].block)) sum.weights += elements;
    }
    return sum;
  }

  Held held_by_stage(size_t stage) const {
    return held([&](int block) { return block >= cut_[stage].begin && block < cut_[stage].end; });
  }
  Held held_by_rank(int rank) const {
    return held([&](int block) {
      for (size_t stage = 0; stage < cut_.size(); ++stage)
        if (order_.rank_of_stage[stage] == rank && block >= cut_[stage].begin && block < cut_[stage].end)
          return true;
      return false;
    });
  }

  Stage executor_stage(size_t stage) const {
    Stage result{static_cast<int>(stage), {}};
    for (int block = cut_[stage].begin; block < cut_[stage].end; ++block) {
      const Block& known = model_.blocks[static_cast<size_t>(block)];
      result.blocks.push_back({known.layer.get(), known.slots, block});
    }
    return result;
  }

  PipelinePlace place_of(int rank) const {
    PipelinePlace place;
    for (const size_t stage : stages_of(rank)) place.stages.push_back(executor_stage(stage));
    place.rank_of_stage = order_.rank_of_stage;
    place.width = run_.model.hidden_size;
    place.row_parts = model_.row_parts;
    return place;
  }

  std::vector<size_t> stages_of(int rank) const {
    std::vector<size_t> stages;
    for (size_t stage = 0; stage < cut_.size(); ++stage)
      if (order_.rank_of_stage[stage] == rank) stages.push_back(stage);
    return stages;
  }

  // What the trainer of a rank will allocate, and send over the data axis, with a plan that reduces so.
  struct RankUse {
    MemoryReport memory;
    double data_bytes = 0;
  };

  RankUse use_of(int rank, const Plan& plan, bool each) const {
    std::vector<std::vector<int>> stages;
    std::vector<int> held;
    for (const size_t stage : stages_of(rank)) {
      stages.emplace_back();
      for (int block = cut_[stage].begin; block < cut_[stage].end; ++block) stages.back().push_back(block);
      held.insert(held.end(), stages.back().begin(), stages.back().end());
    }
    ParamList params = model_.params;
    if (sizes_[Axis::Pp] > 1) params.hold_blocks(held);
    const FlatLayout layout(params, stages, unit_elements(run_.zero), zero_.group);
    const PipelinePlace place = place_of(rank);
    RankPlan row = plan[static_cast<size_t>(rank)];
    const ZeroStage& zero = zero_.stage;
    row = zero.parameters ? with_residency(row, layout, place.stages) : without_residency(std::move(row));
    const GradLayout gradients =
        grad_layout(layout, row, place, each, order_.micros, reduce_type(run_.precision), zero_.groups);
    const int64_t gathered =
        zero.parameters ? places_of_units(layout, gathered_together(row, layout, place.stages)).all_elements()
                        : 0;
    RankUse use;
    use.memory = flat_memory(layout, gradients, dtype_of(run_), run_.optimizer, zero, weight_versions(row),
                             gathered, run_.zero);
    use.memory.predicted_activations =
        Executor::measure(place, model_.params, Mesh(sizes_, {{Axis::Pp, rank}}), row,
                          run_.batch.micro_batch_size, run_.model.seq_length, dtype_of(run_))
            .total();
    use.memory.workspace = device_workspace(run_);
    use.data_bytes = data_traffic(row, layout, gradients, place.stages, dtype_of(run_),
                                  reduce_type(run_.precision), zero, zero_.groups);
    return use;
  }

  // The other policy has a plan of its own.
  void compare_reductions() {
    if (!can_reduce_each(run_)) return;
    for (const ReducePolicy policy : {ReducePolicy::Once, ReducePolicy::Each}) {
      const bool each = policy == ReducePolicy::Each;
      ReductionReport cost{policy, each == reduces_each(run_), 0, 0, 0};
      const Plan plan =
          cost.chosen
              ? report_.plan
              : complete_plan(order_, plan_shape(order_, cut_, model_, unit_elements(run_.zero), each));
      for (int rank = 0; rank < sizes_[Axis::Pp]; ++rank) {
        const RankUse use = use_of(rank, plan, each);
        cost.gradients = std::max(cost.gradients, use.memory.gradients);
        cost.total = std::max(cost.total, use.memory.predicted_total());
        cost.sent = std::max(cost.sent, use.data_bytes);
      }
      report_.reductions.push_back(cost);
    }
  }

  // Elements of the weights that the rank holds, without the padding of flat buffers.
  int64_t parameters_of(int rank) const {
    int64_t elements = 0;
    const auto uses = [&](const ParamSpec& spec) {
      return std::any_of(cut_.begin(), cut_.end(), [&](const StageRange& range) {
        return order_.rank_of_stage[static_cast<size_t>(&range - cut_.data())] == rank &&
               spec.block >= range.begin && spec.block < range.end;
      });
    };
    for (const ParamSpec& spec : model_.params.specs())
      if (uses(spec) && (!spec.tied_to || !uses(model_.params[*spec.tied_to])))
        elements += spec.shard.local.elements();
    return elements;
  }

  // What the simulator is told of a stage.
  StageCost stage_cost(size_t stage) const {
    StageCost cost;
    cost.f = cost.i = cost.w = 0;
    for (int block = cut_[stage].begin; block < cut_[stage].end; ++block) {
      const BlockSeconds& seconds = costs_.blocks[static_cast<size_t>(block)];
      cost.f += seconds.f;
      cost.i += seconds.i;
      cost.w += seconds.w;
      cost.b += seconds.whole_backward();
    }
    const size_t element = size_of(dtype_of(run_));
    const Held mine = held_by_stage(stage);
    cost.message_bytes = boundary_bytes(run_);
    cost.parameter_bytes = static_cast<size_t>(mine.weights) * element;
    cost.state_bytes = static_cast<size_t>(mine.gradients) * gradient_bytes(run_) +
                       static_cast<size_t>(mine.weights) *
                           ShardedOptimizer::bytes_per_element(run_.optimizer, dtype_of(run_));
    return cost;
  }

  CostModel cost_model() const {
    CostModel model;
    model.message_seconds = costs_.message_latency;
    model.bytes_per_second = costs_.bytes_per_second;
    for (size_t stage = 0; stage < cut_.size(); ++stage) {
      model.stages.push_back(stage_cost(stage));
      const Held mine = held_by_stage(stage);
      const auto sum_seconds = [&](size_t element) {
        return ring_seconds(static_cast<double>(mine.gradients) * static_cast<double>(element),
                            sizes_[Axis::Dp], costs_.bytes_per_second, costs_.message_latency);
      };
      const double sum = sum_seconds(size_of(reduce_type(run_.precision)));
      // After each micro-batch gradients go half of an all-reduce's way; the weights come back after the
      // update.
      const bool each = reduces_each(run_);
      model.stages.back().reduce = each ? sum / 2 : sum;
      model.stages.back().step =
          static_cast<double>(mine.weights) * costs_.update_seconds +
          (each && run_.zero.zero_stage == 2 ? sum_seconds(gradient_bytes(run_)) / 2 : 0);
    }
    model.tied_seconds = tied_seconds();
    return model;
  }

  // The two ranks that share the embedding add up their gradients of it.
  double tied_seconds() const {
    for (const ParamSpec& spec : model_.params.specs())
      if (spec.tied_to)
        return ring_seconds(
            static_cast<double>(spec.shard.local.elements()) * static_cast<double>(gradient_bytes(run_)), 2,
            costs_.bytes_per_second, costs_.message_latency);
    return 0;
  }

  double tensor_traffic(int rank) const {
    const std::vector<double> bytes = tensor_bytes(run_, model_);
    double sum = 0;
    for (const size_t stage : stages_of(rank))
      for (int block = cut_[stage].begin; block < cut_[stage].end; ++block)
        sum += bytes[static_cast<size_t>(block)] * report_.micros;
    return sum;
  }

  const PlanConfig& config_;
  const PretrainConfig& run_;
  MeshSizes sizes_;
  Model model_;
  PlanCosts costs_;
  StepOrder order_;
  std::vector<StageRange> cut_;
  ZeroSharing zero_;
  PlanShape shape_;
  PlanReport report_;
};

}  // namespace

PlanReport make_plan_report(const PlanConfig& config) { return Builder(config).build(); }

std::vector<PlannedRank> plan_ranks(const PlanConfig& config) { return Builder(config).ranks(); }

}  // namespace trifold
