#include "bench/bench.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "core/clock.h"
#include "core/median.h"
#include "models/language_family.h"
#include "run/device.h"
#include "run/host.h"
#include "train/trainer.h"

namespace trifold {

namespace {

size_t peak_resident() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<size_t>(usage.ru_maxrss) * 1024;
}

// Second field of /proc/self/statm: resident pages.
size_t resident() {
  std::ifstream file("/proc/self/statm");
  size_t total = 0;
  size_t pages = 0;
  file >> total >> pages;
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

StepBench bench_step(Communicator& world, const BenchConfig& config) {
  StepBench result;
  result.resident_before = resident();
  const PretrainConfig& run = config.run;
  const std::unique_ptr<DataSource> data = synthetic_data(run.model, run.seed);
  Trainer trainer(world, run, *data, nullptr);
  trainer.measure_peak();
  std::vector<double> seconds;
  while (trainer.steps_done() < config.warmup_iters + config.iters)
    for (const StepReport& step : trainer.advance()) {
      if (step.step > config.warmup_iters) seconds.push_back(step.step_seconds);
      result.loss = step.loss;
    }
  const RunReport report = trainer.report();
  const auto batch = static_cast<double>(*run.batch.global_batch_size);
  result.seconds = median(seconds);
  result.tokens_per_second = batch * static_cast<double>(run.model.seq_length) / result.seconds;
  result.flops = batch * report.train_flops_per_sample / result.seconds;
  result.gemm_flops = trainer.measure_peak();
  result.share = result.flops / result.gemm_flops;
  result.memory = trainer.memory();
  result.capture_note = trainer.capture_note();
  result.measured_peak = peak_resident();
  result.ranks_in_process = world.backend() == "thread" ? world.size() : 1;
  return result;
}

std::vector<GemmBench> bench_gemm(Communicator& world, const BenchConfig& config) {
  ThreadPool pool(config.run.mesh.threads_per_rank ? *config.run.mesh.threads_per_rank : fair_threads(world));
  const OpTable& ops = ops_of(config.run.mesh, world, config.run.precision);
  Stream stream(Stream::Mode::Inline, pool, ops.device);
  const DType dtype = compute_type(config.run.precision);
  const ModelConfig& model = config.run.model;
  const int64_t rows = config.run.batch.micro_batch_size * model.seq_length;
  const int64_t width = model.hidden_size;
  const int64_t packed = (model.num_attention_heads + 2 * key_heads(model)) * head_width(model);
  const int64_t inner = *model.ffn_hidden_size;
  std::vector<GemmBench> results{{768, 768, 768, 0},
                                 {2048, 2048, 2048, 0},
                                 {rows, packed, width, 0},
                                 {rows, has_gate(model) ? 2 * inner : inner, width, 0},
                                 {rows, width, inner, 0}};
  for (GemmBench& shape : results) {
    world.barrier();
    shape.flops = measure_gemm(ops, stream, dtype, shape.m, shape.n, shape.k, 0.3);
    Stream host = stream.host();
    world.all_reduce({&shape.flops, DType::F64, {1}}, Reduce::Sum, host);
  }
  return results;
}

NodeCores measuring_cores(Communicator& world, int threads) {
  const double ranks = ranks_on_host(world);
  const double node = std::max(static_cast<double>(available_cores()), threads * ranks);
  return {node, static_cast<double>(threads), ranks > 1 ? ranks : node};
}

std::vector<CommBench> bench_comm(Communicator& world) {
  ThreadPool pool(1);
  Stream stream(Stream::Mode::Inline, pool);
  std::vector<CommBench> results;
  for (size_t bytes : {size_t{8}, size_t{64} << 10, size_t{1} << 20, size_t{16} << 20, size_t{128} << 20}) {
    const Buffer buffer(bytes);
    const Tensor data = buffer.tensor(DType::F32, {static_cast<int64_t>(bytes / 4)});
    std::fill_n(data.as<float>(), data.elements(), 1e-30F);
    std::vector<double> seconds;
    for (int i = 0; i < 7; ++i) {
      world.barrier();
      const auto start = Clock::now();
      world.all_reduce(data, Reduce::Sum, stream);
      stream.synchronize();
      seconds.push_back(seconds_since(start));
    }
    results.push_back({bytes, median(seconds)});
  }
  return results;
}

}  // namespace trifold
