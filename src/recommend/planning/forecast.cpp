#include "recommend/planning/forecast.h"

#include <algorithm>
#include <span>

#include "recommend/planning/measure.h"
#include "recommend/recommender_setup.h"

namespace trifold {

namespace {

// The seconds of a rank in the model's blocks for its samples.
struct DenseSeconds {
  BlockSeconds bottom, top;
};

// Predicted from rates, of all the work on one rank.
DenseSeconds dense_by_rates(const WalkedModel& work, const RankRates& rates) {
  const auto seconds = [&](std::span<const Work> list) {
    double sum = 0;
    for (const Work& each : list)
      sum += each.times * (each.flops > 0 ? each.flops / rates.flops : each.bytes / rates.memory);
    return sum;
  };
  const WalkedBlock& top = work.of_block(work.blocks() - 1);
  DenseSeconds dense;
  dense.top.f = seconds(top.forward);
  dense.top.i = seconds(top.input);
  dense.top.w = seconds(top.weight);
  if (work.blocks() == 1) return dense;
  const WalkedBlock& bottom = work.of_block(0);
  dense.bottom.f = seconds(bottom.forward);
  dense.bottom.b = seconds(bottom.backward);
  return dense;
}

// What an action takes; a reduction is a part of what waits for it.
double seconds_of(const Action& action, const TableStepShape& step, const DenseSeconds& dense,
                  const StepTimes& times) {
  const BlockSeconds& block = step.has_bottom && action.stage != step.top() ? dense.bottom : dense.top;
  switch (action.kind) {
    case ActionKind::F:
      return block.f;
    case ActionKind::I:
      return block.i;
    case ActionKind::W:
      return block.w;
    case ActionKind::B:
      return block.b;
    case ActionKind::ReduceGrad:
      return 0;
    default: {
      const std::optional<StepPart> part = part_of(action, step);
      return part ? times[*part] : 0;
    }
  }
}

template <class Member>
double most(const std::vector<RankLoad>& loads, Member member) {
  double largest = 0;
  for (const RankLoad& load : loads) largest = std::max(largest, load.*member);
  return largest;
}

}  // namespace

ClickSchema schema_to_plan(RecommendConfig& run) {
  ClickDataConfig& data = run.data;
  const bool has_rows = data.table_rows && data.table_rows->list;
  if ((has_rows && !has_keys(data)) || data.train_data == "synthetic" || data.data_format == "synthetic")
    return schema_of_options(data);
  ClickSchema schema = open_clicks(data, run.seed).schema();
  std::vector<int64_t> rows, most;
  for (const ClickTable& table : schema.tables) {
    rows.push_back(table.rows);
    most.push_back(table.max_ids);
  }
  data.table_rows = TableRows{NumberList(std::move(rows))};
  data.table_max_ids = NumberList(std::move(most));
  data.dense_features = schema.dense;
  data.synthetic_labels = static_cast<int>(schema.label_count());
  return schema;
}

PlannedStep predict_step(const RecommenderSetup& setup, const std::vector<RankLoad>& loads,
                         const RankRates& rates, bool spare_core) {
  PlannedStep planned;
  StepTimes& times = planned.times;
  const auto ranks = static_cast<double>(loads.size());
  const double b = std::ceil(static_cast<double>(setup.global_batch) / ranks);
  const auto size = static_cast<double>(size_of(setup.dtype));  // bytes of a master weight or gradient
  const Mesh mesh({{Axis::Dp, static_cast<int>(loads.size())}}, {});
  const Model model = make_dlrm(setup.model, mesh, setup.seed);
  DenseSeconds dense = dense_by_rates(walk_step(setup, model, mesh), rates);
  if (rates.measured) dense = {rates.measured->bottom, rates.measured->top};
  times[StepPart::Bottom] = dense.bottom.f;
  times[StepPart::Top] = dense.top.f + dense.top.i;
  times[StepPart::WeightGradients] = dense.top.w + dense.bottom.b;
  planned.dense_parameters = model.params.global_elements();
  planned.flops_of_sample = train_flops(setup, model, mesh);
  times[StepPart::Fetch] = b * rates.fetch_of_sample;
  times[StepPart::Lookups] = most(loads, &RankLoad::lookup_bytes) / rates.memory;
  times[StepPart::Update] = most(loads, &RankLoad::update_bytes) / rates.memory;
  const double parameters = static_cast<double>(planned.dense_parameters) * size;
  const ZeroSharing zero = dense_sharing(setup, static_cast<int>(loads.size()));
  times[StepPart::DenseUpdate] = 5 * parameters / (zero.stage.optimizer ? zero.group : 1) / rates.memory;
  if (rates.measured) {
    times[StepPart::Lookups] = rates.measured->lookups;
    times[StepPart::Update] = rates.measured->update;
    times[StepPart::DenseUpdate] = rates.measured->dense_update;
  }
  if (loads.size() > 1) {
    const double latency = (ranks - 1) * rates.latency;
    const double exchange =
        std::max(most(loads, &RankLoad::vectors_out), most(loads, &RankLoad::vectors_back));
    times[StepPart::Vectors] = times[StepPart::Gradients] = exchange / rates.link + latency;
    // Measured as a part of it.
    if (!rates.measured) times[StepPart::Update] += most(loads, &RankLoad::copies_out) / rates.link + latency;
    // The gradients' sum and, unless it was measured with the update, the weights' all-gather.
    const int passes = rates.measured && zero.stage.optimizer ? 1 : 2;
    times[StepPart::DenseUpdate] += passes * (ranks - 1) / ranks * parameters / rates.link + latency;
  }
  TableStepShape shape = step_shape(setup);
  shape.fetches_ahead = spare_core;
  planned.row = table_step(shape);
  planned.simulation = simulate_table_step(
      planned.row, shape, [&](const Action& action) { return seconds_of(action, shape, dense, times); });
  times.step = planned.simulation.makespan;
  return planned;
}

RecommendPlan plan_on_schema(const PlanRecommenderConfig& config, const ClickSchema& schema) {
  const int ranks = config.run.mesh.ranks;
  RecommenderSetup setup = recommender_setup(config.run, schema, ranks);
  Placement placement = placement_of(setup, ranks);
  std::vector<RankLoad> loads = loads_of(placement, placement_input(config.run, schema, ranks));
  std::vector<RecommenderMemory> memory =
      memory_of_ranks(setup, placement, config.run.mesh.device == ComputeDevice::Cuda);
  RecommendPlan plan{
      std::move(setup), std::move(placement), std::move(loads), std::move(memory), {}, {}, {}, {}, 0, 0};
  plan.rates = {1e9 * config.peak_gflops, 1e9 * config.memory_bandwidth, 1e9 * config.link_bandwidth,
                1e-6 * config.link_latency, 0};
  plan.step = predict_step(plan.setup, plan.loads, plan.rates, true);
  return plan;
}

RecommendPlan make_recommend_plan(const PlanRecommenderConfig& given) {
  PlanRecommenderConfig config = given;
  const ClickSchema schema = schema_to_plan(config.run);
  RecommendPlan plan = plan_on_schema(config, schema);
  if (config.measure_steps == 0) return plan;
  const RecommendMeasurement measurement = measure_recommender(config, schema);
  plan.rates = measurement.rates;
  plan.measured = measurement.times;
  plan.host = measurement.host;
  plan.counted_vectors = measurement.vectors_of_step;
  plan.formula_vectors = plan.loads[0].vectors_out + plan.loads[0].vectors_back + plan.loads[0].copies_out;
  plan.step = predict_step(plan.setup, plan.loads, plan.rates, measurement.spare_core);
  return plan;
}

PictureText picture_text(const RecommendPlan& plan) {
  return {
      fmt::format("A step of a recommender: {} tables, {} samples over {} rank{}",
                  plan.placement.tables().size(), plan.setup.global_batch, plan.placement.ranks(),
                  plan.placement.ranks() == 1 ? "" : "s"),
      fmt::format(
          "{:.3f} ms predicted; overlapping work of a rank, each part taken from the rank with most of it",
          1e3 * plan.step.times.step),
      {"compute", "exchange", "fetch"}};
}

}  // namespace trifold
