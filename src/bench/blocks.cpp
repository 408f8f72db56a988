#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "bench/bench.h"
#include "config/fields/layer_kinds.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/median.h"
#include "data/read_ahead.h"
#include "data_parallel/grad_norm.h"
#include "data_parallel/gradient_buffer.h"
#include "layout/device_workspace.h"
#include "models/language_family.h"
#include "pipeline/device_batches.h"
#include "plan/costs.h"
#include "plan/step_plan.h"
#include "train/replica.h"
#include "zero/sharded_optimizer.h"

namespace trifold {

namespace {

// The number of layers timed in a row. A single layer would find in caches the weights and activations that a stage of
// several layers overwrites, or lack what the previous layer leaves there.
constexpr int64_t kLayersInARow = 3;

// The kinds of layers of a model, if there are several.
std::string names_of_kinds(const ModelConfig& model) {
  const LayerKinds layers = layer_kinds(model);
  if (layers.kinds.size() == 1) return {};
  std::vector<std::string_view> names;
  for (const LayerKind& kind : layers.kinds) names.push_back(kind.name);
  return fmt::format("{}", fmt::join(names, "; "));
}

// The run with one block of each kind on every rank, and a few layers. Pipeline ranks become replicas, so that all are
// as busy as in the run.
PretrainConfig small_stack(PretrainConfig run) {
  if (const std::string kinds = names_of_kinds(run.model); !kinds.empty())
    bad_input(
        "--what blocks measures one kind of layer, and this model has several ({}): measure each kind alone",
        kinds);
  run.model.num_layers = std::min(run.model.num_layers, kLayersInARow);
  run.mesh.data_parallel_size = *run.mesh.data_parallel_size * run.mesh.pipeline_model_parallel_size;
  run.mesh.pipeline_model_parallel_size = 1;
  return run;
}

constexpr size_t kF = 0, kI = 1, kW = 2, kB = 3, kParts = 4;
using BlockSamples = std::array<std::array<std::vector<double>, kParts>, kBlockKinds>;  // by kind of block

// Consecutive blocks [from, to) of one kind.
struct BlockRange {
  BlockKind kind;
  size_t from, to;
};

std::vector<BlockRange> ranges_of(const Model& model) {
  std::vector<BlockRange> ranges;
  for (size_t i = 0; i < model.blocks.size(); ++i) {
    const BlockKind kind = model.blocks[i].kind;
    if (ranges.empty() || ranges.back().kind != kind) ranges.push_back({kind, i, i});
    ranges.back().to = i + 1;
  }
  return ranges;
}

// A plan of one micro-batch with a split backward, and one with a whole backward.
RankPlan both_backwards() {
  return {{ActionKind::F, 0, Action::kAll, 0},
          {ActionKind::I, 0, Action::kAll, 0},
          {ActionKind::W, 0, Action::kAll, 0},
          {ActionKind::F, 0, Action::kAll, 1},
          {ActionKind::B, 0, Action::kAll, 1}};
}

class BlockTimer {
 public:
  BlockTimer(Communicator& world, const PretrainConfig& run)
      : run_(small_stack(run)),
        dtype_(compute_type(run.precision)),
        replica_(world, run_.mesh, run_.model, dtype_, run_.seed, {}, {}, {}, run_.precision),
        grads_(replica_.layout().flat(), replica_.layout().gradients(both_backwards(), {}), replica_.groups(),
               replica_.ops(), accumulate_type(dtype_), {}, replica_.comm()),
        optimizer_(replica_.layout().flat(), replica_.mesh(), replica_.weights(), grads_, replica_.ops(),
                   run_.optimizer, dtype_, run_.seed, replica_.compute()),
        norm_(replica_.layout().flat(), grads_, replica_.mesh(), replica_.ops()),
        memory_(replica_.layout().activations(both_backwards(), run_.batch.micro_batch_size,
                                              run_.model.seq_length, {dtype_, narrow()})),
        keep_(memory_.stages.at(0).keep, device()),
        held_(memory_.stages.at(0).held, device()),
        flows_{Arena(memory_.flow, device()), Arena(memory_.flow, device())},
        scratch_(memory_.scratch, device()),
        losses_(Buffer::shared(2 * sizeof(double), device())),
        host_batch_(batch_without_memory(run_.batch.micro_batch_size, run_.model.seq_length,
                                         replica_.model().later_labels)) {
    replica_.reserve_workspace(device_workspace(run_spec(run_)));
    synthetic_data(run_.model, run_.seed)->read(host_batch_.batch(), 0);
    cut_rows(host_batch_.batch(), rows_here(replica_.model().row_cut, run_.model.seq_length,
                                            replica_.mesh().sizes(), replica_.mesh().coords()));
    batch_ = host_batch_.batch();
    if (device() != nullptr) {
      device_batches_ = std::make_unique<DeviceBatches>(replica_.ops(), replica_.compute(), 1);
      batch_ = device_batches_->take(batch_, 0, 1.0);
    }
    grads_.restart(replica_.compute());
    if (const int64_t values = replica_.model().reports.host_values.elements(); values > 0) {
      host_value_memory_ = Buffer::shared(static_cast<size_t>(values) * sizeof(int32_t), device());
      host_values_ = host_value_memory_.tensor(DType::I32, {values});
    }
  }

  // Runs one micro-batch forward and backward, whole or split, using memory as the executor does.
  void pass(bool apart, BlockSamples& samples) {
    keep_.reset();
    held_.reset();
    flows_[0].reset();
    const auto& blocks = replica_.model().blocks;
    std::vector<Saved> saved;
    for (const Block& block : blocks) saved.emplace_back(block.slots);
    Run forward = make_run(flows_[0]);
    Run held = make_run(held_);
    Tensor x;
    time_blocks(kF, samples, [&](size_t b) { x = blocks[b].layer->forward(forward, x, saved[b]); });
    Tensor dy;
    if (apart) {
      time_blocks(kI, samples, [&](size_t b) { dy = blocks[b].layer->backward_input(held, dy, saved[b]); });
      time_blocks(kW, samples, [&](size_t b) { blocks[b].layer->backward_weight(held, saved[b]); });
      return;
    }
    time_blocks(kB, samples, [&](size_t b) {
      flows_[b % 2].reset();
      Run run = make_run(flows_[b % 2]);
      dy = blocks[b].layer->backward(run, dy, saved[b]);
    });
  }

  Replica& replica() { return replica_; }

  // Seconds per parameter of the work of a step outside its plan.
  double update() {
    Stream& stream = replica_.compute();
    const double seconds = timed([&] {
      ExactSum squares;
      norm_.add_squares(squares, stream);
      norm_.norms({&squares, 1}, stream);
      optimizer_.step(0, {1e-9, 1, 1e-9}, stream);
      grads_.restart(stream);
    });
    return seconds / static_cast<double>(replica_.layout().params().stored_elements());
  }

 private:
  Device* device() const { return replica_.ops().device; }
  bool narrow() const { return has_narrow_factors(run_.precision); }

  Run make_run(Arena& flow) {
    const Tensor sums = losses_.tensor(DType::F64, {2});
    Run run{replica_.compute(),
            replica_.side(),
            replica_.ops(),
            replica_.mesh(),
            replica_.weights(),
            &grads_,
            &keep_,
            &flow,
            scratch_,
            &batch_,
            dtype_,
            true,
            run_.seed,
            1.0,
            sums.rows(0, 1),
            sums.rows(1, 2)};
    run.host_values = host_values_;
    run.narrow = narrow();
    return run;
  }

  // Calls work(block) for every block in the order of the part, and adds a sample to the kind of each range.
  template <class Work>
  void time_blocks(size_t part, BlockSamples& samples, Work&& work) {
    const std::vector<BlockRange> ranges = ranges_of(replica_.model());
    for (size_t step = 0; step < ranges.size(); ++step) {
      const BlockRange& range = ranges[part == kF ? step : ranges.size() - 1 - step];
      const double seconds = timed([&] {
        for (size_t i = range.from; i < range.to; ++i) work(part == kF ? i : range.to - 1 - (i - range.from));
      });
      samples[static_cast<size_t>(range.kind)][part].push_back(seconds /
                                                               static_cast<double>(range.to - range.from));
    }
  }

  template <class Work>
  double timed(Work&& work) {
    const auto start = Clock::now();
    work();
    replica_.compute().synchronize();
    return seconds_since(start);
  }

  PretrainConfig run_;
  DType dtype_;
  Replica replica_;
  GradientBuffer grads_;
  ShardedOptimizer optimizer_;
  GradNorm norm_;
  ActivationMemory memory_;
  Arena keep_, held_;
  std::array<Arena, 2> flows_;  // B alternates: dy is in one, dx goes to the other
  Arena scratch_;
  Buffer losses_;
  BatchBuffer host_batch_;
  std::unique_ptr<DeviceBatches> device_batches_;  // null if the host computes
  Batch batch_;                                    // in the memory of the operations
  // Holds zeros, which cost as much as real values.
  Buffer host_value_memory_;
  Tensor host_values_;
};

}  // namespace

double exchange_seconds(Communicator& world, size_t bytes, int64_t repetitions, const OpTable& ops) {
  if (world.size() == 1) return 0;
  const int peer = world.rank() ^ 1;
  ThreadPool pool(1);
  Stream stream(Stream::Mode::Inline, pool, ops.device);
  const Buffer out(bytes, ops.device);
  const Buffer in(bytes, ops.device);
  const Shape shape{static_cast<int64_t>(bytes / 4)};
  ops.fill(stream, out.tensor(DType::F32, shape), 1);
  std::vector<double> seconds;
  for (int64_t i = 0; i < repetitions + 2; ++i) {
    world.barrier();
    const auto start = Clock::now();
    if (peer < world.size()) {
      const Transfer transfers[] = {{Transfer::Direction::Send, peer, out.tensor(DType::F32, shape)},
                                    {Transfer::Direction::Receive, peer, in.tensor(DType::F32, shape)}};
      world.exchange(transfers, stream);
      stream.synchronize();
    }
    if (i >= 2) seconds.push_back(seconds_since(start));
  }
  return median(seconds);
}

BlockBench bench_blocks(Communicator& world, const BenchConfig& config) {
  const RunSpec run = run_spec(config.run);
  BlockTimer timer(world, config.run);
  Replica& replica = timer.replica();
  BlockSamples samples;
  std::vector<double> updates;
  for (int64_t i = 0; i < config.warmup_iters + config.iters; ++i) {
    if (i == config.warmup_iters) {
      samples = {};
      updates.clear();
    }
    world.barrier();
    for (const bool apart : {false, true}) timer.pass(apart, samples);
    updates.push_back(timer.update());
  }
  const auto large = static_cast<double>(boundary_bytes(run));
  NodeCores cores;  // none: devices are not divided
  if (replica.ops().device == nullptr) cores = measuring_cores(world, replica.threads());
  std::vector<double> means;
  for (const auto& block : samples)
    for (const auto& part : block) means.push_back(median(part));
  means.push_back(median(updates));
  means.push_back(exchange_seconds(world, 64, 20, replica.ops()));
  means.push_back(exchange_seconds(world, boundary_bytes(run), 20, replica.ops()));
  Stream host = replica.compute().host();
  world.all_reduce({means.data(), DType::F64, {static_cast<int64_t>(means.size())}}, Reduce::Sum, host);
  for (double& mean : means) mean /= world.size();
  BlockBench result;
  result.cores = cores;
  for (size_t kind = 0; kind < kBlockKinds; ++kind) {
    const double* of = &means[kind * kParts];
    result.kinds[kind] = {.f = of[kF], .i = of[kI], .w = of[kW], .b = of[kB]};
  }
  const double* rest = &means[kBlockKinds * kParts];
  result.update_seconds = rest[0];
  result.message_latency = rest[1];
  result.bytes_per_second = large / std::max(rest[2] - rest[1], 1e-9);
  return result;
}

}  // namespace trifold
