#include "plan/report.h"

#include "core/bytes_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "config/subjects/model_family.h"
#include "core/error.h"
#include "layout/device_workspace.h"
#include "layout/rank_layout.h"
#include "mesh/mesh_sizes.h"
#include "models/stage_cut.h"
#include "nn/key_cache.h"
#include "plan/costs.h"
#include "plan/layout_memory.h"
#include "plan/planned_run.h"
#include "schedule/passes.h"
#include "zero/sharded_optimizer.h"

namespace trifold {

namespace {

class Builder {
 public:
  Builder(const PlannedRun& planned, const PlannedMachine& machine, CountedActivations* counted = nullptr)
      : planned_(planned),
        machine_(machine),
        run_(planned.run()),
        sizes_(planned.sizes()),
        order_(planned.order()),
        model_(planned.cut()),
        counted_(counted == nullptr ? own_ : *counted) {
    if (machine_.describes_memory())
      assumed_activations_ =
          LayoutMemory(machine_.software)
              .activation_bytes(run_, stage_counts(model_.model, model_.others()), flight_of(order_.compute));
  }

  PlanReport build() {
    costs_ = make_plan_costs(run_, machine_, model_);
    describe_run();
    report_.plan = planned_.plan();
    report_.stages = report_stages(model_);
    const SentBytes sent = sent_bytes(run_, model_.model);
    for (int rank = 0; rank < sizes_[Axis::Pp]; ++rank) {
      const RankUse use = use_of(rank, report_.plan, run_.reduces_each());
      report_.memory.push_back(use.memory);
      report_.traffic.push_back({traffic_of(rank, sent.tensor), traffic_of(rank, sent.context),
                                 traffic_of(rank, sent.experts), 0, use.data_bytes / order_.batches});
      if (!costs_.context.empty()) report_.exchanges.push_back(exchanges_of(rank));
    }
    compare_dispatch();
    compare_reductions();
    report_.costs = cost_model();
    report_.calls = waited_calls(model_, costs_);
    for (size_t stage = 0; stage < report_.calls.size(); ++stage)
      report_.calls[stage].step = report_.costs.stages[stage].step - updates_[stage];
    report_.simulation = simulate(report_.plan, planned_.shape(), report_.costs);
    for (size_t rank = 0; rank < report_.traffic.size(); ++rank) {
      const SimulatedRank& simulated = report_.simulation.ranks[rank];
      TrafficReport& traffic = report_.traffic[rank];
      traffic.pipeline = static_cast<double>(simulated.sent_bytes) / order_.batches;
      traffic.offloaded = static_cast<double>(simulated.offloaded_bytes) / order_.batches;
      traffic.fetched = static_cast<double>(simulated.fetched_bytes) / order_.batches;
    }
    report_.step_seconds = report_.simulation.makespan / order_.batches;
    report_.computation = order_.compute;
    report_.automatic = order_.automatic;
    count_pairs();
    const double ranks = sizes_.ranks();
    report_.peak_flops = peak_flops();
    report_.mfu = report_.flops / (report_.step_seconds * ranks * report_.peak_flops);
    report_.forecast = costs_.forecast;
    return std::move(report_);
  }

  PlanOutcome outcome(CostsOfModel* known) {
    costs_ = make_plan_costs(run_, machine_, model_, known);
    PlanOutcome outcome;
    for (int rank = 0; rank < sizes_[Axis::Pp]; ++rank)
      outcome.memory.push_back(use_of(rank, planned_.plan(), run_.reduces_each()).memory);
    CostModel cost = cost_model();
    cost.timeline = false;
    const Simulation simulation = simulate(planned_.plan(), planned_.shape(), cost);
    outcome.step_seconds = simulation.makespan / order_.batches;
    outcome.bubble = simulation.bubble;
    outcome.forecast = costs_.forecast;
    return outcome;
  }

  PlannedRank rank(int place) {
    return {use_of(place, planned_.plan(), run_.reduces_each()).memory,
            planned_.layout(place).params().stored_elements()};
  }

  std::vector<PlannedRank> ranks() {
    std::vector<PlannedRank> ranks;
    for (int place = 0; place < sizes_[Axis::Pp]; ++place) ranks.push_back(rank(place));
    return ranks;
  }

 private:
  double peak_flops() const {
    if (!costs_.forecast) return machine_.peak_flops;
    const Hardware& hardware = costs_.forecast->hardware;
    return 1e12 * (costs_.forecast->work.products_in_8bit ? hardware.tflops_8bit : hardware.tflops);
  }

  static int pairs_of(const Plan& plan) {
    int pairs = 0;
    for (const RankPlan& row : plan)
      for (size_t at = 0; at < row.size(); ++at) pairs += can_take_turns(row, at) ? 1 : 0;
    return pairs;
  }

  void compare_turns() {
    report_.turns = pairs_of(report_.plan);
    StepOrder apart = order_;
    apart.take_turns = false;
    CostModel cost = cost_model();
    cost.timeline = false;
    report_.seconds_without_turns =
        simulate(complete_plan(apart, planned_.shape()), planned_.shape(), cost).makespan / order_.batches;
  }

  void count_pairs() {
    report_.pairs = pairs_of(order_.compute);
    if (report_.pairs == 0) return;
    if (order_.take_turns) compare_turns();
    CostModel cost = cost_model();
    cost.timeline = false;
    cost.pairs = PairExecution::Concurrent;
    try {
      const PlanShape& shape = planned_.shape();
      const Plan together = add_communication(
          add_reduce(with_lookups(order_, shape), shape.blocks, shape.bucket_ends, shape.tied, shape.each),
          Pairs::Together, static_cast<int>(shape.lookups.size()));
      report_.overlapped_seconds = simulate(together, shape, cost).makespan / order_.batches;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::BadInput)
        throw;  // the pair's halves wait for each other through other ranks
    }
  }

  void describe_run() {
    report_.tensor = sizes_[Axis::Tp];
    report_.context = sizes_[Axis::Cp];
    report_.data = sizes_[Axis::Dp];
    report_.experts = sizes_[Axis::Ep];
    report_.expert_parts = sizes_[Axis::Etp];
    report_.experts_text = experts_text(sizes_);
    report_.param_factors = planned_.param_factors();
    report_.pipeline = sizes_[Axis::Pp];
    report_.parameters = model_.model.params.global_elements();
    report_.schedule = run_.order.text();
    report_.stages_per_rank = static_cast<int>(model_.others().size()) / sizes_[Axis::Pp];
    report_.micros = order_.micros;
    report_.batches = order_.batches;
    report_.flops = model_.flops.all() * static_cast<double>(run_.global_batch_size);
    report_.tokens = run_.global_batch_size * run_.model.seq_length;
    const std::vector<CachedRows> rows = model_.model.cached_rows();
    const bool has_obstacle = std::any_of(rows.begin(), rows.end(),
                                          [](const CachedRows& block) { return !block.obstacle.empty(); });
    if (family_of_model(run_.model).causal && !has_obstacle)
      report_.key_cache_bytes = KeyCache::bytes_of(rows, run_.model.seq_length, run_.dtype);
  }

  // The memory that a rank's trainer will allocate, and its traffic over the data axis, with a plan of this reduction
  // policy.
  struct RankUse {
    MemoryReport memory;
    double data_bytes = 0;
  };

  // Bytes of the parts of matrices that the rank sends in the updates of a row.
  double matrix_bytes(const RankLayout& layout, const RankPlan& row) const {
    if (!make_update_rule(run_.optimizer)->takes_matrices()) return 0;
    const int first = layout.stages().front().index;
    const auto updates = std::count_if(row.begin(), row.end(), [&](const Action& action) {
      return action.kind == ActionKind::Step && action.stage == first;
    });
    const MatrixPlan matrices(layout.flat(), sizes_, layout.coords(), layout.zero().stage.optimizer);
    return static_cast<double>(updates * matrices.sent_elements()) *
           static_cast<double>(size_of(accumulate_type(run_.dtype)));
  }

  RankUse use_of(int rank, const Plan& plan, bool each) {
    const RankLayout& layout = planned_.layout(rank);
    const RankPlan row = layout.with_residency(plan[static_cast<size_t>(rank)]);
    const GradLayout gradients = layout.gradients(row, reduction_of(run_, each));
    RankUse use;
    use.memory = layout.memory(row, gradients, run_.dtype, run_.optimizer);
    use.data_bytes =
        layout.data_traffic(row, gradients, run_.dtype, run_.sum_dtype) + matrix_bytes(layout, row);
    if (machine_.describes_memory()) {
      const size_t weights = use.memory.parameters / size_of(run_.dtype);
      use.memory.parameters +=
          static_cast<size_t>(machine_.software.weight_copy_bytes * static_cast<double>(weights));
      use.memory.predicted_activations = static_cast<size_t>(assumed_activations_[static_cast<size_t>(rank)]);
      return use;
    }
    const ActivationMemory& activations = counted_.of(rank, row, [&] {
      return layout.activations(row, run_.micro_batch_size, run_.model.seq_length, run_.layer_type());
    });
    use.memory.predicted_activations = activations.total();
    use.memory.offloaded_activations = activations.file_bytes();
    use.memory.offloaded += use.memory.offloaded_activations;
    note_kept_blocks(layout, activations);
    use.memory.workspace = device_workspace(run_);
    return use;
  }

  // Records the bytes that an OFFLOAD of each block moves, for the simulation.
  void note_kept_blocks(const RankLayout& layout, const ActivationMemory& activations) {
    kept_blocks_.resize(model_.stages.size());
    for (size_t i = 0; i < activations.stages.size(); ++i)
      kept_blocks_[static_cast<size_t>(layout.stages()[i].index)] = activations.stages[i].kept_blocks;
  }

  // The other policy has its own plan.
  void compare_reductions() {
    if (!run_.can_reduce_each()) return;
    for (const ReducePolicy policy : {ReducePolicy::Once, ReducePolicy::Each}) {
      const bool each = policy == ReducePolicy::Each;
      ReductionReport cost{policy, each == run_.reduces_each(), 0, 0, 0};
      const Plan plan = planned_.plan_reducing(each);
      for (int rank = 0; rank < sizes_[Axis::Pp]; ++rank) {
        const RankUse use = use_of(rank, plan, each);
        cost.gradients = std::max(cost.gradients, use.memory.gradients);
        cost.total = std::max(cost.total, use.memory.predicted_total());
        cost.sent = std::max(cost.sent, use.data_bytes);
      }
      report_.reductions.push_back(cost);
    }
  }

  // Also sets updates_.
  CostModel cost_model() {
    CostModel model = computing_costs(run_, model_, costs_);
    updates_.assign(model_.stages.size(), 0);
    model.offload_bytes_per_second = machine_.offload_bytes_per_second;
    for (size_t stage = 0; stage < model_.stages.size(); ++stage) {
      StageCost& cost = model.stages[stage];
      if (stage < kept_blocks_.size()) cost.offloaded_bytes = kept_blocks_[stage];
      const CutModel::Elements mine = model_.elements_of(stage);
      cost.parameter_bytes = static_cast<size_t>(mine.weights) * size_of(run_.dtype);
      cost.state_bytes =
          static_cast<size_t>(mine.gradients) * gradient_bytes() +
          static_cast<size_t>(mine.trained) * ShardedOptimizer::bytes_per_element(run_.optimizer, run_.dtype);
      if (costs_.forecast) {
        const OnceSeconds once = once_seconds(*costs_.forecast,
                                              {static_cast<double>(mine.trained - mine.trained_experts),
                                               static_cast<double>(mine.trained_experts)},
                                              run_.reduces_each());
        cost.reduce = once.reduce;
        cost.step = once.step;
        updates_[stage] = once.update;
        continue;
      }
      const auto ring = [&](int64_t elements, size_t element, AxisSet axes) {
        return elements == 0
                   ? 0
                   : ring_seconds(static_cast<double>(elements) * static_cast<double>(element),
                                  sizes_.ranks(axes), costs_.bytes_per_second, costs_.message_latency);
      };
      const auto sum_seconds = [&](size_t element) {
        return ring(mine.gradients - mine.trained_experts, element, kDataAxes) +
               ring(mine.trained_experts, element, kExpertDataAxes);
      };
      const double sum = sum_seconds(size_of(run_.sum_dtype));
      // If gradients are reduced after each micro-batch, they are reduce-scattered, half of an all-reduce; the weights
      // are gathered after the update.
      const bool each = run_.reduces_each();
      cost.reduce = each ? sum / 2 : sum;
      updates_[stage] = static_cast<double>(mine.trained) * costs_.update_seconds;
      cost.step =
          updates_[stage] + (each && run_.zero.zero_stage == 2 ? sum_seconds(gradient_bytes()) / 2 : 0);
    }
    if (costs_.update_seconds == 0) add_matrix_seconds(model);  // measured times include it
    model.tied_seconds = tied_seconds();
    return model;
  }

  // Adds the time in which the busiest rank of a stage makes directions orthogonal (optim/muon.h), at the rate of matrix
  // products, evenly to the stages of its pipeline rank.
  void add_matrix_seconds(CostModel& model) {
    const std::unique_ptr<UpdateRule> rule = make_update_rule(run_.optimizer);
    if (!rule->takes_matrices()) return;
    const double rate = costs_.forecast ? costs_.forecast->hardware.product_rate() : machine_.peak_flops;
    for (int rank = 0; rank < sizes_[Axis::Pp]; ++rank) {
      const RankLayout& layout = planned_.layout(rank);
      const MatrixPlan matrices(layout.flat(), sizes_, layout.coords(), layout.zero().stage.optimizer);
      const double seconds = matrices.most_flops(rule->newton_schulz_steps()) / rate;
      for (const Stage& stage : layout.stages()) {
        const double share = seconds / static_cast<double>(layout.stages().size());
        model.stages[static_cast<size_t>(stage.index)].step += share;
        updates_[static_cast<size_t>(stage.index)] += share;
      }
    }
  }

  // The first stage's rank sums its embedding gradients with the gradients of the other ranks that use the embedding,
  // one after the other.
  double tied_seconds() const {
    double seconds = 0;
    for (const ParamSpec& spec : model_.model.params.specs()) {
      if (!model_.is_copy(spec)) continue;
      const double bytes =
          static_cast<double>(spec.shard.local.elements()) * static_cast<double>(gradient_bytes());
      seconds += costs_.forecast ? tied_sum_seconds(*costs_.forecast, bytes)
                                 : ring_seconds(bytes, 2, costs_.bytes_per_second, costs_.message_latency);
    }
    return seconds;
  }

  // The sum per step of the bytes, or seconds, of blocks per micro-batch.
  double traffic_of(int rank, const std::vector<double>& bytes) const {
    double sum = 0;
    for (const Stage& stage : planned_.layout(rank).stages())
      for (const StageBlock& block : stage.blocks)
        sum += bytes[static_cast<size_t>(block.index)] * report_.micros;
    return sum;
  }

  void compare_dispatch() {
    if (run_.mesh.expert_ranks() == 1) return;
    const double load = machine_.expert_load;
    ExpertReport report{load, expert_rounds(run_.mesh, load),
                        run_.mesh.moe_token_dispatcher_type == TokenDispatcher::AllGather};
    RunSpec other = run_;
    for (auto [type, bytes] : {std::pair{TokenDispatcher::AllToAll, &report.all_to_all},
                               {TokenDispatcher::AllGather, &report.all_gather}}) {
      other.mesh.moe_token_dispatcher_type = type;
      const CutModel model(other.model, other.mesh, Mesh(sizes_, {}), other.seed, order_.stage_ranks());
      const SentBytes sent = sent_bytes(other, model.model, load);
      for (int rank = 0; rank < sizes_[Axis::Pp]; ++rank)
        *bytes = std::max(*bytes, traffic_of(rank, sent.experts));
    }
    report_.dispatch = report;
  }

  ContextSeconds exchanges_of(int rank) const {
    const auto sum = [&](double ContextSeconds::*part) {
      std::vector<double> seconds;
      for (const ContextSeconds& block : costs_.context) seconds.push_back(block.*part);
      return traffic_of(rank, seconds);
    };
    return {sum(&ContextSeconds::hidden), sum(&ContextSeconds::exposed)};
  }

  // Bytes of one element of a gradient.
  size_t gradient_bytes() const { return size_of(accumulate_type(run_.dtype)); }

  const PlannedRun& planned_;
  const PlannedMachine& machine_;
  const RunSpec& run_;
  const MeshSizes& sizes_;
  const StepOrder& order_;
  const CutModel& model_;
  PlanCosts costs_;         // not for ranks()
  CountedActivations own_;  // used if the caller gives none
  CountedActivations& counted_;
  std::vector<double> assumed_activations_;       // [pipeline rank] of another program; empty: Trifold's
  std::vector<std::vector<size_t>> kept_blocks_;  // [stage][block], see StageMemory
  std::vector<double> updates_;                   // [stage] seconds of STEP without collectives
  PlanReport report_;
};

}  // namespace

PlanReport make_plan_report(const PlannedRun& planned, const PlannedMachine& machine,
                            CountedActivations* counted) {
  return Builder(planned, machine, counted).build();
}

PlanOutcome plan_outcome(const PlannedRun& planned, const PlannedMachine& machine, CostsOfModel* costs) {
  return Builder(planned, machine).outcome(costs);
}

size_t PlanOutcome::most_bytes() const {
  size_t most = 0;
  for (const MemoryReport& rank : memory) most = std::max(most, rank.predicted_total());
  return most;
}

std::vector<PlannedRank> planned_ranks(const PlannedRun& planned, const PlannedMachine& machine,
                                       CountedActivations* counted) {
  return Builder(planned, machine, counted).ranks();
}

PlannedRank planned_rank(const PlannedRun& planned, int pipeline_rank) {
  return Builder(planned, {}).rank(pipeline_rank);
}

const ActivationMemory& CountedActivations::of(int rank, const RankPlan& row,
                                               FunctionRef<ActivationMemory()> count) {
  std::vector<std::pair<RankPlan, ActivationMemory>>& rows = known_[rank];
  for (const auto& [known, memory] : rows)
    if (known == row) return memory;
  rows.emplace_back(row, count());
  return rows.back().second;
}

PictureText picture_text(const PlanReport& report) {
  std::string title = fmt::format("{}: {} pipeline rank{}, {} micro-batches", report.schedule,
                                  report.pipeline, report.pipeline == 1 ? "" : "s", report.micros);
  if (report.stages_per_rank > 1) title += fmt::format(", {} stages a rank", report.stages_per_rank);
  if (report.batches > 1) title += fmt::format(", {} global batches", report.batches);
  return {title,
          fmt::format("step {}, bubble {:.2f} %, {} parameters", seconds_text(report.step_seconds),
                      100 * report.simulation.bubble, count_text(static_cast<double>(report.parameters)))};
}

}  // namespace trifold
