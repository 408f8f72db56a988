#include "train/recommend_plan.h"

#include <algorithm>
#include <numeric>

#include "train/recommend_measure.h"
#include "train/recommender_setup.h"

namespace trifold {

namespace {

// Products (multiplications) of a chain of layers for one sample, and the numbers that it makes.
struct Chain {
  double products = 0;
  double outputs = 0;
};

Chain chain_of(int64_t in, const std::vector<int64_t>& widths) {
  Chain chain;
  for (const int64_t out : widths) {
    chain.products += static_cast<double>(in) * static_cast<double>(out);
    chain.outputs += static_cast<double>(out);
    in = out;
  }
  return chain;
}

Chain bottom_of(const DlrmShape& shape) {
  return shape.has_bottom() ? chain_of(shape.dense, shape.bottom) : Chain{};
}

double parameters_of(const DlrmShape& shape) {
  const Chain bottom = bottom_of(shape), top = chain_of(shape.interaction_width(), shape.top);
  double count = bottom.products + bottom.outputs + top.products + top.outputs;
  if (shape.interaction == InteractionKind::Cross)
    count += shape.cross_layers * static_cast<double>(shape.features()) *
             (2.0 * static_cast<double>(shape.cross_rank) + 1);
  return count;
}

// Multiplications of the matrix products of the dense actions for one sample.
struct Products {
  double bottom_forward = 0, top_forward = 0, top_input = 0, top_weight = 0, bottom_backward = 0;
};

// Of the interaction: of a dot interaction both factors have gradients; a cross network has weights.
double meeting_of(const DlrmShape& shape) {
  const auto vectors = static_cast<double>(shape.vectors());
  if (shape.interaction == InteractionKind::Dot) return vectors * vectors * static_cast<double>(shape.width);
  if (shape.interaction != InteractionKind::Cross) return 0;
  return 2.0 * shape.cross_layers * static_cast<double>(shape.features()) *
         static_cast<double>(shape.cross_rank);
}

Products products_of(const DlrmShape& shape) {
  const Chain bottom = bottom_of(shape), top = chain_of(shape.interaction_width(), shape.top);
  const double first =
      shape.bottom.empty() ? 0 : static_cast<double>(shape.dense) * static_cast<double>(shape.bottom[0]);
  const bool cross = shape.interaction == InteractionKind::Cross;
  const double meeting = meeting_of(shape);
  return {bottom.products, top.products + meeting, top.products + (cross ? 1 : 2) * meeting,
          top.products + (cross ? meeting : 0), 2 * bottom.products - first};
}

// The dense parts of a step for `b` samples, numbers of `size` bytes.
void predict_dense(StepTimes& times, const DlrmShape& shape, double b, double size, const RankRates& rates) {
  const Chain bottom = bottom_of(shape), top = chain_of(shape.interaction_width(), shape.top);
  const Products products = products_of(shape);
  const double meeting_numbers = static_cast<double>(shape.features()) *
                                 (shape.interaction == InteractionKind::Cross ? 2 * shape.cross_layers : 1);
  const auto part = [&](StepPart which, double count, double numbers) {
    times[which] = b * (2 * count / rates.flops + numbers * size / rates.memory);
  };
  part(StepPart::Bottom, products.bottom_forward, 2 * bottom.outputs);
  part(StepPart::Top, products.top_forward + products.top_input,
       4 * top.outputs + 2 * meeting_numbers + 2 * static_cast<double>(shape.interaction_width()));
  part(StepPart::WeightGradients, products.top_weight + products.bottom_backward,
       2 * bottom.outputs + top.outputs);
}

// A part that covers several actions is divided among them in proportion to their products; what is
// predicted and measured of it has its reductions.
double seconds_of(const Action& action, const TableStepShape& step, const Products& products,
                  const StepTimes& times) {
  const std::optional<StepPart> part = part_of(action, step);
  const auto share = [&](double mine, double other) { return times[*part] * (mine / (mine + other)); };
  if (!part || action.kind == ActionKind::ReduceGrad) return 0;
  if (*part == StepPart::Top && action.kind == ActionKind::F)
    return share(products.top_forward, products.top_input);
  if (action.kind == ActionKind::I) return times[*part] - share(products.top_forward, products.top_input);
  if (action.kind == ActionKind::W) return share(products.top_weight, products.bottom_backward);
  if (action.kind == ActionKind::B)
    return times[*part] - share(products.top_weight, products.bottom_backward);
  return times[*part];
}

template <class Member>
double most(const std::vector<RankLoad>& loads, Member member) {
  double largest = 0;
  for (const RankLoad& load : loads) largest = std::max(largest, load.*member);
  return largest;
}

}  // namespace

namespace {

// That of the options, where they have the rows of the tables, or of the data. What is measured on synthetic
// clicks then has it too.
ClickSchema schema_to_plan(RecommendConfig& run) {
  ClickDataConfig& data = run.data;
  const bool has_rows = data.table_rows && data.table_rows->list;
  if (has_rows || data.train_data == "synthetic" || data.data_format == "synthetic")
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
  return schema;
}

}  // namespace

PlannedStep predict_step(const RecommenderSetup& setup, const std::vector<RankLoad>& loads,
                         const RankRates& rates, bool spare_core) {
  PlannedStep planned;
  StepTimes& times = planned.times;
  const auto ranks = static_cast<double>(loads.size());
  const double b = std::ceil(static_cast<double>(setup.global_batch) / ranks);
  const auto size = static_cast<double>(size_of(setup.dtype));  // of masters and gradients
  predict_dense(times, setup.model, b, static_cast<double>(size_of(setup.dense_dtype())), rates);
  times[StepPart::Fetch] = b * rates.fetch_of_sample;
  times[StepPart::Lookups] = most(loads, &RankLoad::lookup_bytes) / rates.memory;
  times[StepPart::Update] = most(loads, &RankLoad::update_bytes) / rates.memory;
  const double parameters = parameters_of(setup.model) * size;
  const ZeroSharing zero = dense_sharing(setup, static_cast<int>(loads.size()));
  times[StepPart::DenseUpdate] = 5 * parameters / (zero.stage.optimizer ? zero.group : 1) / rates.memory;
  if (loads.size() > 1) {
    const double latency = (ranks - 1) * rates.latency;
    const double exchange =
        std::max(most(loads, &RankLoad::vectors_out), most(loads, &RankLoad::vectors_back));
    times[StepPart::Vectors] = times[StepPart::Gradients] = exchange / rates.link + latency;
    times[StepPart::Update] += most(loads, &RankLoad::copies_out) / rates.link + latency;
    times[StepPart::DenseUpdate] += 2 * (ranks - 1) / ranks * parameters / rates.link + latency;
  }
  TableStepShape shape = step_shape(setup);
  shape.fetches_ahead = spare_core;
  planned.row = table_step(shape);
  const Products products = products_of(setup.model);
  planned.simulation = simulate_table_step(
      planned.row, shape, [&](const Action& action) { return seconds_of(action, shape, products, times); });
  times.step = planned.simulation.makespan;
  return planned;
}

RecommendPlan make_recommend_plan(const PlanRecommenderConfig& given) {
  PlanRecommenderConfig config = given;
  const ClickSchema schema = schema_to_plan(config.run);
  const int ranks = config.run.mesh.ranks;
  RecommenderSetup setup = recommender_setup(config.run, schema, ranks);
  Placement placement(embedding_tables(schema, config.run.model.embedding_dim), setup.placement, ranks,
                      setup.model.has_bottom() ? 1 : 0);
  std::vector<RankLoad> loads = loads_of(placement, placement_input(config.run, ranks));
  std::vector<RecommenderMemory> memory =
      memory_of_ranks(setup, placement, config.run.mesh.device == ComputeDevice::Cuda);
  RecommendPlan plan{
      std::move(setup), std::move(placement), std::move(loads), std::move(memory), {}, {}, 0, {}, {}, 0, 0};
  plan.dense_parameters = static_cast<int64_t>(parameters_of(plan.setup.model));
  plan.rates = {1e9 * config.peak_gflops, 1e9 * config.memory_bandwidth, 1e9 * config.link_bandwidth,
                1e-6 * config.link_latency, 0};
  bool spare_core = true;
  if (config.measure_steps > 0) {
    const RecommendMeasurement measurement = measure_recommender(config);
    plan.rates = measurement.rates;
    plan.measured = measurement.times;
    plan.host = measurement.host;
    plan.counted_vectors = measurement.vectors_of_step;
    plan.formula_vectors = plan.loads[0].vectors_out + plan.loads[0].vectors_back + plan.loads[0].copies_out;
    spare_core = measurement.spare_core;
  }
  plan.step = predict_step(plan.setup, plan.loads, plan.rates, spare_core);
  return plan;
}

}  // namespace trifold
