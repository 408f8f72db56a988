#include "recommend/planning/measure.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <mutex>

#include "core/clock.h"
#include "core/median.h"
#include "core/random.h"
#include "pipeline/action_times.h"
#include "recommend/recommender_setup.h"
#include "run/host.h"
#include "run/rank_text.h"
#include "run/ranks.h"

namespace trifold {

namespace {

constexpr int kWarmUpSteps = 3;
constexpr double kMeasureSeconds = 0.2;  // for each rate

// The mean seconds of `body`, run for kMeasureSeconds after one warm-up call.
template <class Body>
double mean_seconds(Body body) {
  body();
  const auto start = Clock::now();
  double seconds = 0;
  int64_t count = 0;
  for (; seconds < kMeasureSeconds; ++count) {
    body();
    seconds = seconds_since(start);
  }
  return seconds / static_cast<double>(count);
}

// Bytes per second for single rows of `width` elements, from a table larger than caches.
double measure_rows(const OpTable& ops, Stream& stream, DType dtype, int64_t width) {
  constexpr int64_t kTableBytes = int64_t{256} << 20, kBags = 1 << 16;
  const auto size = static_cast<int64_t>(size_of(dtype));
  const int64_t rows = kTableBytes / (width * size);
  const Buffer table(static_cast<size_t>(rows * width * size), ops.device),
      out(static_cast<size_t>(kBags * width * size), ops.device);
  CopyIn written(ops, 2 * CopyIn::room(DType::I32, kBags + 1));
  const Tensor ids = written.take(DType::I32, {kBags}), offsets = written.take(DType::I32, {kBags + 1});
  BagLookup lookup;
  lookup.table = table.tensor(dtype, {rows, width});
  lookup.ids = written.operand(ids);
  lookup.offsets = written.operand(offsets);
  ops.fill(stream, lookup.table, 1);
  const PhiloxKey key = philox_key(1, "rows");
  offsets.as<int32_t>()[0] = 0;
  for (int64_t i = 0; i < kBags; ++i) {
    ids.as<int32_t>()[i] = static_cast<int32_t>(philox_word(key, static_cast<uint64_t>(i)) % rows);
    offsets.as<int32_t>()[i + 1] = static_cast<int32_t>(i + 1);
  }
  written.copy(stream);
  const Tensor y = out.tensor(dtype, {kBags, width});
  const double seconds = mean_seconds([&] {
    ops.embedding_bags(stream, y, {&lookup, 1});
    stream.synchronize();
  });
  return static_cast<double>(kBags * (4 + 2 * width * size)) / seconds;
}

// Seconds of an all-to-all of `numbers` elements to each other rank, in the stream's memory.
double measure_exchange(Communicator& comm, Stream& stream, Device* device, int64_t numbers) {
  const auto ranks = static_cast<int64_t>(comm.size());
  const Buffer in(static_cast<size_t>(numbers * ranks) * 4, device), out(in.bytes(), device);
  const std::vector<int64_t> counts(static_cast<size_t>(ranks), numbers);
  constexpr int kRepetitions = 20;  // the same on all ranks
  Clock::time_point start;
  for (int i = -2; i < kRepetitions; ++i) {
    if (i == 0) start = Clock::now();
    comm.all_to_all(out.tensor(DType::F32, {numbers * ranks}), in.tensor(DType::F32, {numbers * ranks}),
                    counts, counts, stream);
    stream.synchronize();
  }
  return seconds_since(start) / kRepetitions;
}

// Flops per second of the largest product of a step, by its weights.
double measure_products(Communicator& world, Recommender& model, const RecommenderSetup& setup) {
  const DlrmShape& shape = setup.model;
  int64_t in = shape.interaction_width(), k = in, n = shape.top[0];
  for (const int64_t out : shape.top) {
    if (in * out > k * n) k = in, n = out;
    in = out;
  }
  world.barrier();
  return measure_gemm(model.ops(), model.compute(), setup.dense_dtype(), model.samples(), n, k,
                      kMeasureSeconds);
}

RankRates measure_rates(Communicator& world, Recommender& model, const RecommenderSetup& setup) {
  RankRates rates;
  Stream& stream = model.compute();
  rates.flops = measure_products(world, model, setup);
  world.barrier();
  rates.memory = measure_rows(model.ops(), stream, setup.dtype, setup.model.width);
  if (world.size() > 1) {
    constexpr int64_t kNumbers = 1 << 16;
    Device* const device = model.ops().device;
    rates.latency = measure_exchange(world, stream, device, 1) / (world.size() - 1);
    rates.link = kNumbers * 4.0 * (world.size() - 1) / measure_exchange(world, stream, device, kNumbers);
  }
  return rates;
}

// The times between the marks of each part. Marks of one part come from one thread at a time.
class PartClock {
 public:
  void mark(StepPart part, bool begins) {
    const auto now = Clock::now();
    const std::lock_guard lock(mutex_);
    Marked& of = parts_[static_cast<size_t>(part)];
    if (begins)
      of.begin = now;
    else
      of.seconds.push_back(std::chrono::duration<double>(now - of.begin).count());
  }
  // Drops the steps so far; no part may be running.
  void restart() {
    const std::lock_guard lock(mutex_);
    for (Marked& of : parts_) of.seconds.clear();
  }
  // The median over `steps` steps of what each spent in the part, which a step may begin several times.
  double median_seconds(StepPart part, int64_t steps) {
    const std::lock_guard lock(mutex_);
    const std::vector<double>& seconds = parts_[static_cast<size_t>(part)].seconds;
    // One batch of the counted steps was fetched before them.
    const size_t times =
        std::max<size_t>(1, (seconds.size() + static_cast<size_t>(steps) - 1) / static_cast<size_t>(steps));
    std::vector<double> sums;
    for (size_t i = 0; i < seconds.size(); ++i) {
      if (i % times == 0) sums.push_back(0);
      sums.back() += seconds[i];
    }
    return median(std::move(sums));
  }

 private:
  struct Marked {
    Clock::time_point begin;
    std::vector<double> seconds;
  };
  std::mutex mutex_;
  std::array<Marked, kStepPartNames.size()> parts_;
};

// Trains kWarmUpSteps and config.measure_steps more, calls `counts` between them, and returns the median
// seconds of the latter.
double run_steps(Communicator& world, Recommender& model, const ClickFeed& feed,
                 const PlanRecommenderConfig& config, const std::function<void()>& counts) {
  const int64_t steps = kWarmUpSteps + config.measure_steps;
  const auto fetch = [&](int64_t step) {
    model.fetch([&feed, &world, &model, step](ClickBatchBuffer& out) {
      feed.read(step, world.rank(), model.samples(), out);
    });
  };
  std::vector<double> seconds;
  Clock::time_point start;
  // Nothing runs between steps: the next batch is fetched within the step.
  fetch(0);
  for (int64_t step = 0; step < steps; ++step) {
    if (step == kWarmUpSteps) {
      model.synchronize();  // a running part has no time yet
      counts();
      world.barrier();
      start = Clock::now();
    }
    model.train(feed.real_samples(step), step + 1, config.run.lr.lr, *config.run.training.embedding_lr, [&] {
      if (step + 1 < steps && step + 1 != kWarmUpSteps) fetch(step + 1);
    });
    if (step + 1 == kWarmUpSteps) fetch(step + 1);
    if (step + 1 == steps) model.synchronize();
    if (step >= kWarmUpSteps) seconds.push_back(seconds_since(start));
    start = Clock::now();
  }
  return median(std::move(seconds));
}

// The seconds of the actions of a step, in steps of their own.
MeasuredActions measure_actions(Communicator& world, Recommender& model, const RecommenderSetup& setup,
                                const ClickFeed& feed, const PlanRecommenderConfig& config) {
  using enum ActionKind;
  ActionTimes times([&model] { model.synchronize(); });
  model.watch(&times);
  run_steps(world, model, feed, config, [&] { times.restart(); });
  model.watch(nullptr);
  const TableStepShape step = step_shape(setup);
  const int top = step.top();
  std::array<double, 5> blocks = {times.median(F, top), times.median(I, top), times.median(W, top)};
  if (step.has_bottom) blocks[3] = times.median(F, 0), blocks[4] = times.median(B, 0);
  std::array<double, 3> rest = {times.median(Lookup, 0), times.median(UpdateRows, 0), times.median(Step, 0)};
  Stream host = model.compute().host();
  world.all_reduce({blocks.data(), DType::F64, {std::ssize(blocks)}}, Reduce::Sum, host);
  world.all_reduce({rest.data(), DType::F64, {std::ssize(rest)}}, Reduce::Max, host);
  for (double& seconds : blocks) seconds /= world.size();
  MeasuredActions measured;
  measured.top = {.f = blocks[0], .i = blocks[1], .w = blocks[2]};
  measured.bottom = {.f = blocks[3], .b = blocks[4]};
  measured.lookups = rest[0], measured.update = rest[1], measured.dense_update = rest[2];
  return measured;
}

// The seconds of each part that begins within a step; valid on a device too, because its marks wait for the device.
StepTimes time_parts(Communicator& world, const PlanRecommenderConfig& config, RecommenderSetup setup,
                     const ClickFeed& feed) {
  PartClock clock;
  setup.marks = [&clock](StepPart part, bool begins) { clock.mark(part, begins); };
  Recommender model(world, setup);
  run_steps(world, model, feed, config, [&] { clock.restart(); });
  StepTimes times;
  for (size_t i = 0; i < times.parts.size(); ++i)
    times.parts[i] = clock.median_seconds(static_cast<StepPart>(i), config.measure_steps);
  return times;
}

// The step is measured without marks: on a device each mark waits for all work in flight, so nothing would overlap.
void measure_rank(Communicator& world, const PlanRecommenderConfig& config, const ClickData& data,
                  const ClickSchema& schema, RecommendMeasurement& result) {
  RecommendConfig run = config.run;
  run.model.key_admission = DlrmConfig().key_admission;  // synthetic ids are no keys
  run.model.key_eviction = DlrmConfig().key_eviction;
  const RecommenderSetup setup = recommender_setup(run, schema, world.size());
  const ClickFeed feed(*data.train, config.run.seed, setup.global_batch);
  RecommendMeasurement measured;
  {
    Recommender model(world, setup);
    measured.rates = measure_rates(world, model, setup);
    measured.rates.measured = measure_actions(world, model, setup, feed, config);
    Recommender::Traffic before;
    measured.times.step = run_steps(world, model, feed, config, [&] { before = model.traffic(); });
    // Before and after the steps; the larger value, as in `trifold bench --what step`.
    measured.rates.flops = std::max(measured.rates.flops, measure_products(world, model, setup));
    measured.spare_core = model.fetches_ahead();
    measured.host = fmt::format("{}, {}", ranks_text(world, model.threads()), model.ops().name);
    measured.vectors_of_step = static_cast<double>(model.traffic().vectors - before.vectors) /
                               static_cast<double>(config.measure_steps);
  }
  measured.times.parts = time_parts(world, config, setup, feed).parts;
  measured.rates.fetch_of_sample =
      measured.times[StepPart::Fetch] / static_cast<double>(setup.samples(world.size()));
  if (world.rank() == 0) result = measured;
}

}  // namespace

RecommendMeasurement measure_recommender(const PlanRecommenderConfig& config, const ClickSchema& planned) {
  ClickDataConfig options = config.run.data;
  options.train_data = options.data_format = "synthetic";
  options.dense_transform.reset();
  options.id_policy.reset();
  options.synthetic_samples = (kWarmUpSteps + config.measure_steps) * config.run.training.global_batch_size;
  const ClickData data = open_clicks(options, config.run.seed);
  // Options name tables by the names that they have in the plan.
  ClickSchema schema = data.schema();
  for (size_t t = 0; t < std::min(schema.tables.size(), planned.tables.size()); ++t) {
    schema.tables[t].name = planned.tables[t].name;
    schema.tables[t].shares = planned.tables[t].shares;
  }
  RecommendMeasurement result;
  run_on_ranks(config.run.mesh,
               [&](Communicator& world) { measure_rank(world, config, data, schema, result); });
  return result;
}

}  // namespace trifold
