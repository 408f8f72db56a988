#include "bench/bench.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "config/commands/option_tables.h"
#include "core/bytes_text.h"
#include "core/error.h"
#include "core/read_json.h"
#include "files/output_files.h"
#include "launch/commands.h"
#include "launch/progress.h"
#include "run/ranks.h"
#include "run/terms.h"

namespace trifold::launch {

namespace {

using Json = nlohmann::ordered_json;

Json show(const StepBench& bench) {
  const size_t ranks = static_cast<size_t>(bench.ranks_in_process);
  const size_t predicted = bench.memory.predicted_total() * ranks;
  fmt::print("step        {:.4f} s (median), {:.1f} tokens/s, loss {:.4f}\n", bench.seconds,
             bench.tokens_per_second, bench.loss);
  fmt::print("            {:.1f} GFLOP/s of {:.1f} that matrix products reach here: {:.1f} %\n",
             bench.flops / 1e9, bench.gemm_flops / 1e9, 100 * bench.share);
  fmt::print("memory      predicted {} (parameters {}, gradients {}, optimizer {}, activations {}{})\n",
             bytes_text(predicted), bytes_text(bench.memory.parameters), bytes_text(bench.memory.gradients),
             bytes_text(bench.memory.optimizer), bytes_text(bench.memory.predicted_activations),
             ranks > 1 ? fmt::format("; times {} ranks", ranks) : "");
  fmt::print("            peak resident {}, {:.3f} times the prediction\n", bytes_text(bench.measured_peak),
             static_cast<double>(bench.measured_peak) / static_cast<double>(predicted));
  if (!bench.capture_note.empty()) fmt::print("warning     --enable-cuda-graph: {}\n", bench.capture_note);
  return {{"seconds", bench.seconds},
          {"tokens_per_second", bench.tokens_per_second},
          {"flops", bench.flops},
          {"gemm_flops", bench.gemm_flops},
          {"share", bench.share},
          {"predicted_bytes", predicted},
          {"peak_resident_bytes", bench.measured_peak},
          {"loss", bench.loss},
          {"capture_note", bench.capture_note}};
}

Json show(const std::vector<GemmBench>& benches) {
  Json rows = Json::array();
  for (const GemmBench& bench : benches) {
    fmt::print("gemm        {:>6} x {:>6} x {:>6}  {:8.1f} GFLOP/s\n", bench.m, bench.n, bench.k,
               bench.flops / 1e9);
    rows.push_back({{"m", bench.m}, {"n", bench.n}, {"k", bench.k}, {"flops", bench.flops}});
  }
  return rows;
}

Json show(const std::vector<AttentionBench>& benches) {
  Json rows = Json::array();
  const double whole = benches.front().forward + benches.front().backward;
  for (const AttentionBench& bench : benches) {
    fmt::print(
        "attention   {} of {:>7} tokens  forward {:9.3f} ms  "
        "backward {:9.3f} ms  {:5.2f} times as fast\n",
        bench.window ? "windows  " : "documents", bench.window.value_or(bench.document), 1e3 * bench.forward,
        1e3 * bench.backward, whole / (bench.forward + bench.backward));
    rows.push_back({{"document", bench.document}, {"forward", bench.forward}, {"backward", bench.backward}});
    if (bench.window) rows.back()["window"] = *bench.window;
  }
  return rows;
}

Json show(const std::vector<CommBench>& benches) {
  Json rows = Json::array();
  for (const CommBench& bench : benches) {
    fmt::print("all_reduce  {:>12}  {:10.1f} us  {:8.2f} GB/s\n", bytes_text(bench.bytes),
               1e6 * bench.seconds, static_cast<double>(bench.bytes) / bench.seconds / 1e9);
    rows.push_back({{"bytes", bench.bytes}, {"seconds", bench.seconds}});
  }
  return rows;
}

Json show(const BlockBench& bench, const BenchConfig& config) {
  const PretrainConfig& run = config.run;
  Json json{{"hidden_size", run.model.hidden_size},
            {"seq_length", run.model.seq_length},
            {"micro_batch_size", run.batch.micro_batch_size},
            {"tensor_model_parallel_size", run.mesh.tensor_model_parallel_size},
            {"context_parallel_size", run.mesh.context_parallel_size},
            {"expert_model_parallel_size", run.mesh.expert_model_parallel_size},
            {"expert_tensor_parallel_size", run.mesh.expert_tensor_parallel_size}};
  if (run.mesh.pipeline_vocab_parts > 1) json["pipeline_vocab_parts"] = run.mesh.pipeline_vocab_parts;
  if (run.mesh.context_parallel_size > 1) json["cp_comm_type"] = name_of(run.mesh.context_exchange());
  for (size_t kind = 0; kind < kBlockKinds; ++kind) {
    const char* name = name_of(static_cast<BlockKind>(kind));
    const BlockBench::Times& times = bench.kinds[kind];
    fmt::print("{:<11} F {:9.3f} ms  I {:9.3f} ms  W {:9.3f} ms  B {:9.3f} ms\n", name, 1e3 * times.f,
               1e3 * times.i, 1e3 * times.w, 1e3 * times.b);
    json[name] = {{"f", times.f}, {"i", times.i}, {"w", times.w}, {"b", times.b}};
  }
  if (bench.message_latency > 0)
    fmt::print("message     {:.1f} us, then {:.2f} GB/s\n", 1e6 * bench.message_latency,
               bench.bytes_per_second / 1e9);
  else
    fmt::print("message     free: one rank sends none; measure with --ranks 2 to plan for several\n");
  fmt::print("update      {:.3f} ns a parameter\n", 1e9 * bench.update_seconds);
  json["message_latency"] = bench.message_latency;
  json["bytes_per_second"] = bench.bytes_per_second;
  json["update_seconds"] = bench.update_seconds;
  json["device"] = run.mesh.device == ComputeDevice::Cuda ? "cuda" : "cpu";
  if (bench.cores.node == 0) return json;
  json["node_cores"] = bench.cores.node;
  json["rank_cores"] = bench.cores.rank;
  json["ranks_of_node"] = bench.cores.ranks;
  return json;
}

// The keys of a file that `plan --hardware` reads.
Json show(const Hardware& hardware) {
  Json json{{"name", hardware.name}};
  for (const auto& [key, value] : hardware_values(hardware)) {
    fmt::print("{:<18}  {:.4g}\n", key, value);
    json[std::string(key)] = value;
  }
  return json;
}

}  // namespace

int run(const BenchConfig& config, Ranks& ranks) {
  ranks.agree([&] {
    if (config.json) check_writable_file("--json", *config.json);
  });
  RunTerms terms;
  BenchConfig asked = config;
  terms.add(options_of(asked));
  ranks.compare(terms);
  const auto wanted = [&](BenchPart what) {
    return std::find(config.what.begin(), config.what.end(), what) != config.what.end();
  };
  bool shows = false;  // in the process of rank 0
  StepBench step;
  std::vector<GemmBench> gemm;
  std::vector<AttentionBench> attention;
  std::vector<CommBench> comm;
  BlockBench blocks;
  Hardware hardware;
  ranks.run(config.run.mesh, [&](Communicator& world) {
    const bool keeps = world.rank() == 0;
    if (keeps) shows = true;
    if (wanted(BenchPart::Step)) {
      const StepBench result = bench_step(world, config);
      if (keeps) step = result;
    }
    if (wanted(BenchPart::Gemm)) {
      const std::vector<GemmBench> result = bench_gemm(world, config);
      if (keeps) gemm = result;
    }
    if (wanted(BenchPart::Attention)) {
      const std::vector<AttentionBench> result = bench_attention(world, config);
      if (keeps) attention = result;
    }
    if (wanted(BenchPart::Comm)) {
      const std::vector<CommBench> result = bench_comm(world);
      if (keeps) comm = result;
    }
    if (wanted(BenchPart::Blocks)) {
      const BlockBench result = bench_blocks(world, config);
      if (keeps) blocks = result;
    }
    if (wanted(BenchPart::Hardware)) {
      const Hardware result = bench_hardware(world, config);
      if (keeps) hardware = result;
    }
  });
  if (!shows) return kDone;
  Json results;
  if (wanted(BenchPart::Step)) results["step"] = show(step);
  if (wanted(BenchPart::Gemm)) results["gemm"] = show(gemm);
  if (wanted(BenchPart::Attention)) results["attention"] = show(attention);
  if (wanted(BenchPart::Comm)) results["all_reduce"] = show(comm);
  if (wanted(BenchPart::Blocks)) results["blocks"] = show(blocks, config);
  if (wanted(BenchPart::Hardware)) results = show(hardware);
  if (config.json) write_file("--json", *config.json, marked_json(json_text(results, 2) + "\n", "bench"));
  return kDone;
}

}  // namespace trifold::launch
