#include "plan/step_plan.h"

#include <algorithm>
#include <optional>

#include "config/subjects/mesh.h"
#include "core/input_file.h"
#include "data_parallel/flat_layout.h"
#include "layout/zero_sharing.h"
#include "mesh/mesh_sizes.h"
#include "plan/costs.h"
#include "schedule/passes.h"
#include "schedule/schedules.h"
#include "schedule/torch/torch_schedule.h"

namespace trifold {

namespace {

// Calls `body`; its Errors about a plan from a file begin with the file's name.
template <class Body>
auto about_file(const std::string& file, Body&& body) {
  try {
    return body();
  } catch (Error& error) {
    if (!file.empty()) error.add_context(fmt::format("--schedule {}", file));
    throw;
  }
}

Plan read_plan(const std::string& file) {
  constexpr int64_t kMostBytes = int64_t{64} << 20;
  Plan plan = parse_plan_with_waits(read_input_file(file, kMostBytes));
  if (plan.empty()) bad_input("it holds no action");
  return plan;
}

int count_micros(const Plan& plan) {
  int largest = -1;
  for (const RankPlan& row : plan)
    for (const Action& action : row) largest = std::max(largest, action.micro);
  return largest + 1;
}

// Checks a plan from a file against the rest of the configuration.
void check_fit(const RunSpec& run, const StepOrder& order) {
  const int ranks = run.mesh.pipeline_model_parallel_size;
  const size_t rows = order.compute.size();
  if (rows != static_cast<size_t>(ranks))
    bad_input(
        "it has {} row{}, but needs one for each pipeline rank: give "
        "--pipeline-model-parallel-size {}, not {}",
        rows, rows == 1 ? "" : "s", rows, ranks);
  const auto stages = static_cast<int64_t>(order.rank_of_stage.size());
  const int parts = run.mesh.pipeline_vocab_parts;
  int64_t behind = parts > 1 ? parts : 0;
  if (order.lookups == TokenLookups::AsPlanned && !run.model.untie_embeddings_and_output_weights)
    behind += std::min(parts, ranks) - 1;  // stages that look up tokens
  if (run.model.num_layers + behind < stages && !run.mesh.cut.given())
    bad_input("it has {} stages: give --num-layers {} or more{}, not {}", stages,
              std::max<int64_t>(1, stages - behind),
              behind > 0 ? fmt::format(" with --pipeline-vocab-parts {}", parts) : "", run.model.num_layers);
  const int64_t batch = run.global_batch_size;
  const int64_t micros = count_micros(order.compute);
  if (micros != order.micros)
    bad_input("it has {} micro-batch{}, but --global-batch-size {} makes {}: give --global-batch-size {}",
              micros, micros == 1 ? "" : "es", batch, order.micros, micros * (batch / order.micros));
}

// The rank that computes each stage; BadInput when one is missing or on two ranks.
std::vector<int> ranks_of_stages(const Plan& plan) {
  constexpr int kNone = -1;
  std::vector<int> ranks;
  for (size_t rank = 0; rank < plan.size(); ++rank)
    for (const Action& action : plan[rank]) {
      if (!is_compute(action.kind)) continue;
      const auto stage = static_cast<size_t>(action.stage);
      if (stage >= ranks.size()) ranks.resize(stage + 1, kNone);
      if (ranks[stage] != kNone && ranks[stage] != static_cast<int>(rank))
        bad_input("the plan has stage {} on pipeline ranks {} and {}", stage, ranks[stage], rank);
      ranks[stage] = static_cast<int>(rank);
    }
  const auto missing = std::find(ranks.begin(), ranks.end(), kNone);
  if (missing != ranks.end()) bad_input("the plan has no computation of stage {}", missing - ranks.begin());
  return ranks;
}

bool computes_only(const Plan& plan) {
  return std::all_of(plan.begin(), plan.end(), [](const RankPlan& row) {
    return std::all_of(row.begin(), row.end(), [](const Action& action) { return is_compute(action.kind); });
  });
}

// The cut of the model does not depend on the ranks of its stages, so their costs are known before the placement.
// Layers given for the first and last rank assume a loop placement, in which these ranks have the ends of the model.
AutomaticSchedule automatic_schedule(const RunSpec& run, int ranks, int chunks, int micros) {
  std::vector<int> looped;
  for (int stage = 0; stage < ranks * chunks; ++stage) looped.push_back(stage % ranks);
  const CutModel model(run.model, run.mesh, Mesh(mesh_sizes(run.mesh), {}), run.seed,
                       {looped, TokenLookups::FirstStage});
  const StageCutConfig& cut = run.mesh.cut;
  AutomaticTask task{ranks, chunks, micros};
  task.max_in_flight = run.order.max_in_flight;
  task.looped = cut.decoder_first_pipeline_num_layers || cut.decoder_last_pipeline_num_layers;
  const PlanCosts costs = make_schedule_costs(run, model);
  const CostModel computing = computing_costs(run, model, costs);
  if (run.mesh.pipeline_vocab_parts > 1) {
    for (const TiedStage& tied : model.tied_stages()) task.token_stages.push_back(tied.stage);
    const BlockSeconds& embedding = costs.blocks.front();
    task.lookup.f = embedding.f;
    task.lookup.i = embedding.i;
    task.lookup.w = embedding.w;
    task.lookup.message_bytes = computing.stages.front().message_bytes;
  }
  return make_automatic(task, computing);
}

}  // namespace

int batches_of_plan(const RunSpec& run, int64_t done) {
  if (!run.order.is_async()) return 1;
  const int64_t window = run.order.window;
  int64_t steps = std::min(window - done % window, run.train_iters - done);
  if (run.batch_sizes.grows())
    steps = std::min(steps, run.batch_sizes.at(run.batch_sizes.samples_of(done)).steps);
  return static_cast<int>(steps);
}

int batches_to_simulate(const RunSpec& run) {
  constexpr int64_t kEnoughMicros = 1024;
  const int64_t enough = std::max<int64_t>(8, kEnoughMicros / run.micros());
  return static_cast<int>(std::min(run.order.window, enough));
}

StepOrder step_order(const RunSpec& run, int batches) {
  const int ranks = run.mesh.pipeline_model_parallel_size;
  StepOrder order;
  order.micros = run.micros();
  order.take_turns = run.mesh.overlap_moe_expert_parallel_comm;
  if (!run.order.schedule) {
    order.file = run.order.file;
    about_file(order.file, [&] {
      order.compute = read_plan(order.file);
      order.rank_of_stage = ranks_of_stages(order.compute);
      if (!computes_only(order.compute)) order.lookups = TokenLookups::AsPlanned;
      check_fit(run, order);
    });
    return order;
  }
  const Schedule schedule = *run.order.schedule;
  const int chunks = run.order.stages_per_rank;
  if (is_async(schedule)) {
    order.async = true;
    order.lookups = TokenLookups::FirstStage;  // ranks have different versions of the weights
    order.batches = batches;
    order.compute = make_async(schedule, ranks, order.micros, batches);
  } else if (ranks == 1 && chunks == 1) {
    order.compute =
        one_stage(order.micros);  // with one rank every order computes the same; this one needs least
                                  // memory
  } else if (schedule == Schedule::Auto) {
    AutomaticSchedule found = automatic_schedule(run, ranks, chunks, order.micros);
    order.compute = std::move(found.plan);
    order.automatic = found.choice;
  } else {
    order.compute = make_schedule(schedule, ranks, chunks, order.micros);
  }
  order.rank_of_stage = ranks_of_stages(order.compute);
  return order;
}

bool searches_order(const RunSpec& run) {
  return run.order.schedule == Schedule::Auto &&
         (run.mesh.pipeline_model_parallel_size > 1 || run.order.stages_per_rank > 1);
}

StepOrder order_of_plan(const RunSpec& run, Plan compute) {
  StepOrder order;
  order.micros = run.micros();
  order.take_turns = run.mesh.overlap_moe_expert_parallel_comm;
  order.compute = std::move(compute);
  order.rank_of_stage = ranks_of_stages(order.compute);
  return order;
}

Reduction reduction_of(const RunSpec& run, bool each) { return {each, run.most_micros(), run.sum_dtype}; }

namespace {

// [stage] The number of first blocks that contain the first n layers with a backward, which are off-loaded, at most all
// blocks but one: the backward of the last block comes first. Empty: none.
std::vector<int> offloaded_blocks(const RunSpec& run, const CutModel& model) {
  const int64_t wanted = run.mesh.cpu_offloading_num_layers;
  if (wanted == 0) return {};
  const int unread = model.model.blocks_without_backward();
  int64_t most = 0;
  std::vector<int> offloaded;
  for (const StageRange& stage : model.stages) {
    int64_t layers = 0;
    int end = 0;
    for (int block = stage.begin; block < stage.end; ++block) {
      const Block& each = model.model.blocks[static_cast<size_t>(block)];
      if (each.kind != BlockKind::Layer || block < unread) continue;
      if (++layers <= wanted) end = block + 1 - stage.begin;
    }
    most = std::max(most, layers);
    end = std::min(end, stage.size() - 1);
    offloaded.push_back(end > unread - stage.begin ? end : 0);
  }
  if (wanted > most)
    bad_input(
        "--cpu-offloading-num-layers {} is more than the layers of the largest stage{}: give at most {}",
        wanted, unread > 0 ? " that keep activations for a backward" : "", most);
  if (std::all_of(offloaded.begin(), offloaded.end(), [](int blocks) { return blocks <= 0; }))
    bad_input(
        "--cpu-offloading-num-layers {} has no effect, because the last block of a stage is not off-loaded and no "
        "stage has a layer before it: cut the model into fewer stages, or leave it out",
        wanted);
  return offloaded;
}

}  // namespace

PlanShape plan_shape(const RunSpec& run, const StepOrder& order, const CutModel& model, bool each) {
  PlanShape shape;
  shape.offloaded = offloaded_blocks(run, model);
  if (!shape.offloaded.empty())
    for (const StageRange& stage : model.stages)
      shape.not_kept.push_back(
          std::clamp(model.model.blocks_without_backward() - stage.begin, 0, stage.size()));
  shape.stages = static_cast<int>(model.stages.size());
  shape.micros = order.micros * order.batches;
  shape.tied = model.tied_stages();
  shape.lookups.assign(model.rank_of_stage.begin(),
                       model.rank_of_stage.begin() + static_cast<std::ptrdiff_t>(model.lookups().size()));
  while (model.stages[static_cast<size_t>(shape.without_backward)].end <=
         model.model.blocks_without_backward())
    ++shape.without_backward;
  for (size_t stage = 0; stage < model.stages.size(); ++stage) {
    shape.blocks.push_back(model.stages[stage].size());
    shape.bucket_ends.emplace_back();
    if (static_cast<int>(stage) >= shape.without_backward)
      shape.bucket_ends.back() =
          unit_ends(model.model.params, model.blocks_of(stage), unit_elements(run.zero));
    else if (!shape.offloaded.empty())
      shape.offloaded[stage] = 0;
  }
  if (!each) return shape;
  shape.each = shape.bucket_ends;
  const auto rank_of = [&](int stage) { return model.rank_of_stage[static_cast<size_t>(stage)]; };
  const bool elsewhere = std::any_of(shape.tied.begin(), shape.tied.end(), [&](const TiedStage& tied) {
    return rank_of(tied.stage) != rank_of(tied.of);
  });
  if (elsewhere) shape.each[0].pop_back();
  return shape;
}

namespace {

void check_pairs(const Plan& plan, const StepOrder& order) {
  for (const RankPlan& row : plan)
    for (size_t at = 0; at < row.size(); ++at)
      if (can_take_turns(row, at)) return;
  if (!order.file.empty())
    bad_input(
        "--overlap-moe-expert-parallel-comm has no effect: no (..)OVERLAP_F_B of the file pairs a forward with a whole "
        "backward of another micro-batch that no reduction follows; add such pairs, or leave it out");
  bad_input(
      "--overlap-moe-expert-parallel-comm has no effect: with {} micro-batches no forward is left that the order pairs "
      "with a backward that is computed whole; give a larger --global-batch-size, or leave it out",
      order.micros);
}

}  // namespace

Plan with_lookups(const StepOrder& order, const PlanShape& shape) {
  Plan plan = order.lookups == TokenLookups::AtHead ? add_lookups(order.compute, shape) : order.compute;
  return drop_backward(std::move(plan), shape.without_backward);
}

Plan complete_plan(const StepOrder& order, const PlanShape& shape) {
  return about_file(order.file, [&] {
    Plan plan =
        add_reduce(with_lookups(order, shape), shape.blocks, shape.bucket_ends, shape.tied, shape.each);
    plan = add_communication(std::move(plan), order.take_turns ? Pairs::Together : Pairs::Apart,
                             static_cast<int>(shape.lookups.size()));
    plan = add_offload(std::move(plan), shape.blocks, shape.offloaded, 1, shape.not_kept);
    check_plan(plan, shape);
    // If gradients are reduced after each micro-batch no backward is whole; such plans are made only for comparison.
    if (order.take_turns && shape.each.empty()) check_pairs(plan, order);
    return plan;
  });
}

}  // namespace trifold
