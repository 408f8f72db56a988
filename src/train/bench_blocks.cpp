#include <algorithm>
#include <array>
#include <chrono>

#include "core/error.h"
#include "data/read_ahead.h"
#include "data/synthetic.h"
#include "data_parallel/grad_norm.h"
#include "data_parallel/gradient_buffer.h"
#include "train/bench.h"
#include "train/plan_costs.h"
#include "train/replica.h"
#include "train/step_plan.h"
#include "zero/sharded_optimizer.h"

namespace trifold {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Every rank has the three kinds of blocks once: embedding, one layer, head. Ranks that would be a pipeline
// are copies here, so that all are as busy as they would be.
PretrainConfig three_blocks(PretrainConfig run) {
  run.model.num_layers = 1;
  run.mesh.data_parallel_size = *run.mesh.data_parallel_size * run.mesh.pipeline_model_parallel_size;
  run.mesh.pipeline_model_parallel_size = 1;
  return run;
}

class BlockTimer {
 public:
  BlockTimer(Communicator& world, const PretrainConfig& run)
      : run_(three_blocks(run)),
        dtype_(compute_type(run.precision)),
        replica_(world, run_.mesh, run_.model, dtype_, run_.seed),
        grads_(replica_.layout(), replica_.groups(), replica_.ops(), accumulate_type(dtype_), false,
               replica_.comm()),
        optimizer_(replica_.layout(), replica_.groups(), replica_.mesh(), replica_.weights(), grads_,
                   replica_.ops(), run_.optimizer, dtype_, run_.seed, replica_.compute()),
        norm_(replica_.layout(), grads_, replica_.groups(), replica_.mesh(), replica_.ops()),
        memory_(Executor::measure(replica_.place(), replica_.model().params, replica_.mesh(),
                                  {{ActionKind::F, 0, Action::kAll, 0},
                                   {ActionKind::I, 0, Action::kAll, 0},
                                   {ActionKind::W, 0, Action::kAll, 0}},
                                  run_.batch.micro_batch_size, run_.model.seq_length, dtype_)),
        keep_(memory_.stages.at(0).keep),
        flow_(memory_.stages.at(0).held + memory_.flow),
        scratch_(memory_.scratch),
        batch_(run_.batch.micro_batch_size, run_.model.seq_length) {
    SyntheticTokens(run_.model.seq_length, *run_.model.vocab_size, run_.seed).read(batch_.batch(), 0);
    grads_.zero(replica_.compute());
  }

  // Times of one pass: [block][F, I, W].
  std::array<std::array<double, 3>, 3> once() {
    std::array<std::array<double, 3>, 3> times{};
    keep_.reset();
    flow_.reset();
    const auto& blocks = replica_.model().blocks;
    std::vector<Saved> saved;
    for (const Block& block : blocks) saved.emplace_back(block.slots);
    std::array<double, 2> losses{};
    Run run = make_run(losses.data());
    Tensor x;
    for (size_t b = 0; b < 3; ++b)
      times[b][0] = timed([&] { x = blocks[b].layer->forward(run, x, saved[b]); });
    Tensor dy;
    for (size_t b = 3; b-- > 0;)
      times[b][1] = timed([&] { dy = blocks[b].layer->backward_input(run, dy, saved[b]); });
    for (size_t b = 3; b-- > 0;)
      times[b][2] = timed([&] { blocks[b].layer->backward_weight(run, saved[b]); });
    return times;
  }

  // Seconds a parameter: what a step does besides its plan.
  double update() {
    Stream& stream = replica_.compute();
    const double seconds = timed([&] {
      ExactSum squares;
      norm_.add_squares(squares, stream);
      norm_.norms({&squares, 1}, stream);
      optimizer_.step(0, {1e-9, 1, 1e-9}, stream);
      grads_.zero(stream);
    });
    return seconds / static_cast<double>(replica_.model().params.stored_elements());
  }

 private:
  Run make_run(double* losses) {
    const Tensor sums{losses, DType::F64, {2}};
    return {replica_.compute(),
            replica_.side(),
            replica_.ops(),
            replica_.mesh(),
            replica_.weights(),
            &grads_,
            keep_,
            flow_,
            scratch_,
            &batch_.batch(),
            dtype_,
            true,
            run_.seed,
            1.0,
            sums.rows(0, 1),
            sums.rows(1, 2)};
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
  Arena keep_, flow_, scratch_;
  BatchBuffer batch_;
};

// Seconds of an exchange with the neighbour, both ways at once; 0 with nobody to talk to.
double message_seconds(Communicator& world, size_t bytes, int64_t repetitions) {
  const int peer = world.rank() ^ 1;
  ThreadPool pool(1);
  Stream stream(Stream::Mode::Inline, pool);
  const Buffer out(bytes);
  const Buffer in(bytes);
  const Shape shape{static_cast<int64_t>(bytes / 4)};
  std::fill_n(out.tensor(DType::F32, shape).as<float>(), shape.elements(), 1.0F);
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

}  // namespace

BlockBench bench_blocks(Communicator& world, const BenchConfig& config) {
  BlockTimer timer(world, config.run);
  std::array<std::array<std::vector<double>, 3>, 3> samples;
  std::vector<double> updates;
  for (int64_t i = 0; i < config.warmup_iters + config.iters; ++i) {
    world.barrier();
    const auto times = timer.once();
    const double update = timer.update();
    if (i < config.warmup_iters) continue;
    for (size_t block = 0; block < 3; ++block)
      for (size_t part = 0; part < 3; ++part) samples[block][part].push_back(times[block][part]);
    updates.push_back(update);
  }
  const auto large = static_cast<double>(boundary_bytes(config.run));
  std::vector<double> means;
  for (const auto& block : samples)
    for (const auto& part : block) means.push_back(median(part));
  means.push_back(median(updates));
  means.push_back(message_seconds(world, 64, 20));
  means.push_back(message_seconds(world, boundary_bytes(config.run), 20));
  ThreadPool pool(1);
  Stream stream(Stream::Mode::Inline, pool);
  world.all_reduce({means.data(), DType::F64, {static_cast<int64_t>(means.size())}}, Reduce::Sum, stream);
  for (double& mean : means) mean /= world.size();
  BlockBench result;
  result.embedding = {means[0], means[1], means[2]};
  result.layer = {means[3], means[4], means[5]};
  result.head = {means[6], means[7], means[8]};
  result.update_seconds = means[9];
  result.message_latency = means[10];
  result.bytes_per_second = large / std::max(means[11] - means[10], 1e-9);
  return result;
}

}  // namespace trifold
