#include "config/subjects/planning/plan.h"

#include <algorithm>

#include "config/fields/expert_capacity.h"
#include "config/options/bounds.h"

namespace trifold {

void add_costs(OptionTable& table, PlanConfig& config) {
  table.group("Costs of a rank");
  table.add("peak-gflops", &config.peak_gflops, "GFLOP/s of matrix products.")
      .positive()
      .no_effect_with(When("costs").or_when("hardware"), "whose times count", "leave it out");
  table.add("tensor-link-bandwidth", &config.tensor_link_bandwidth, "GB/s (1e9 bytes) between tensor ranks.")
      .positive()
      .no_effect_with(When("costs").or_when("hardware"), "whose times count", "leave it out");
  table
      .add("link-bandwidth", &config.link_bandwidth,
           "GB/s (1e9 bytes) between pipeline stages and between data-parallel ranks.")
      .positive()
      .no_effect_with(When("costs").or_when("hardware"), "whose times count", "leave it out");
  table.add("link-latency", &config.link_latency, "Latency of a message in microseconds.")
      .at_least(0)
      .no_effect_with(When("costs").or_when("hardware"), "whose times count", "leave it out");
  table
      .add("moe-load-imbalance", &config.moe_load_imbalance,
           "Assume that the busiest of the ranks that share experts gets "
           "this many times the mean number of rows, at most --ep, the "
           "number of experts over --moe-router-topk, and the capacity; needs --ep.")
      .range(1, kMaxRanks)
      .no_effect_with("costs", "whose times count", "leave it out");
  table
      .add("offload-bandwidth", &config.offload_bandwidth,
           "GB/s (1e9 bytes) of a rank to and from the files of --cpu-offloading-folder.")
      .positive();
  table
      .add("costs", &config.costs,
           "Use times measured by 'bench --what blocks --json FILE' instead of the four rates above.")
      .reads("FILE")
      .absent("none")
      .excludes("hardware", {}, "give one of them");
  table
      .add("hardware", &config.hardware,
           "Device to forecast for: a100-40gb, a100-80gb, h100, h200, b200, cpu, or a file that describes "
           "one. Its figures determine the time of every operation and replace the rates above.")
      .reads("NAME|FILE.json")
      .suggest({"a100-40gb", "a100-80gb", "h100", "h200", "b200", "cpu"})
      .absent("none: the rates above");
  table
      .add("hardware-set", &config.hardware_set,
           "Override figures of the device, such as adapter-gbytes=12.5 (docs/plan.md lists them).")
      .takes("KEY=VALUE ...")
      .needs("hardware");
}

void add_plan(OptionTable& table, PlanConfig& config) {
  table.group("Plan");
  table
      .add("svg", &config.svg,
           "Draw the step to this file: one row per rank, time to the right; "
           "with --search the best three layouts.")
      .writes("FILE.svg", {svg_mark("plan")})
      .written_as(".svg")
      .absent("none");
  table
      .add(
          "schedule-csv", &config.schedule_csv,
          "Write every rank's actions, including communication, to this file; an existing one needs --overwrite.")
      .writes("FILE.csv", {})
      .absent("none")
      .no_effect_with("search", {}, "plan the layout found, with the options that the search prints");
  table
      .add("format", &config.format,
           "Format of --schedule-csv: torch has computation only, for PyTorch's _load_csv(FILE); "
           "torch-comms adds communication (format=\"compute_comms\" there).")
      .only_with("schedule-csv");
  table.add("json", &config.json, "Write the figures to this file.")
      .writes("FILE", {json_mark("plan")})
      .absent("none");
  table
      .add(
          "records", &config.records,
          "Also print, and write to --json, what the first rank does with one micro-batch: each operation and "
          "collective with its shape, flops, bytes and seconds.")
      .no_effect_with("search", {}, "plan the layout found, with the options that the search prints")
      .no_effect_with("costs", "whose times are of whole blocks", "leave one out");
  add_costs(table, config);
  table
      .add("assume", &config.assume,
           "Forecast the steps and memory of another program, given how it differs from Trifold, such as "
           "attention=unfused or activations=eager (docs/plan.md lists the keys).")
      .takes("KEY=VALUE ...")
      .needs("hardware");
  table.group("Search");
  table
      .add("search", &config.search,
           "Find the fastest layouts that fit --memory-limit and the memory of --hardware instead of "
           "planning one; overrides the options of the axes that --search-over lists.")
      .needs("hardware", "the device that steps are timed for", "give it");
  table
      .add(
          "search-over", &config.search_over,
          "Comma-separated list of the axes that --search chooses; everything else is taken from its options.")
      .absent("all of them")
      .only_with("search");
  table
      .add("search-schedules", &config.search_schedules,
           "Comma-separated list of schedules that --search tries.")
      .one_of({"gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipe-v", "auto"})
      .absent("1f1b, interleaved, zb-h1, zb-h2, zb-v; dualpipe-v with --overlap-moe-expert-parallel-comm")
      .only_with("search");
}

namespace {

// An expert gets no token twice and no more rows of a sequence than its capacity, all of which may be in the part of one
// context rank.
void check_rows_of_experts(double load, const ModelConfig& model, int context, Problems& problems) {
  if (!problems.sound(
          {"moe-router-topk", "moe-expert-capacity-factor", "seq-length", "context-parallel-size"}))
    return;
  const int64_t part = model.seq_length / context;
  const auto experts = static_cast<double>(*model.num_experts), tokens = static_cast<double>(part);
  const auto choices = static_cast<double>(model.moe_router_topk);
  if (load > experts / choices)
    problems.about("moe-load-imbalance", "num-experts", "moe-router-topk")
        .wrong("--moe-load-imbalance {} is not possible with --num-experts {} and --moe-router-topk {}", load,
               experts, choices)
        .right("give at most {}: an expert gets no token twice", experts / choices);
  if (!model.moe_expert_capacity_factor) return;
  const double factor = *model.moe_expert_capacity_factor;
  const auto rows = static_cast<double>(
      std::min(part, expert_capacity(factor, model.seq_length, model.moe_router_topk, *model.num_experts)));
  const double most = std::max(1.0, rows * experts / (tokens * choices));
  if (load > most)
    problems.about("moe-load-imbalance", "moe-expert-capacity-factor")
        .wrong("--moe-load-imbalance {} is not possible with --moe-expert-capacity-factor {}", load, factor)
        .right("give at most {}: what is beyond the capacity is dropped", most);
}

}  // namespace

// Ranks that hold parts of the same experts get the same rows.
void check_expert_load(double load, const PretrainConfig& run, Problems& problems) {
  if (load == 1 || !problems.sound({"moe-load-imbalance", "expert-model-parallel-size", "num-experts"}))
    return;
  const int ranks = run.model.num_experts ? run.mesh.expert_model_parallel_size : 1;
  if (ranks == 1)
    problems.about("moe-load-imbalance", "expert-model-parallel-size", "num-experts")
        .wrong("--moe-load-imbalance {} has no effect, because no ranks share experts", load)
        .right("give --num-experts and --expert-model-parallel-size, or leave it out");
  else if (load > ranks)
    problems.about("moe-load-imbalance", "expert-model-parallel-size")
        .wrong("--moe-load-imbalance {} is not possible with --expert-model-parallel-size {}", load, ranks)
        .right("give at most {}: all rows on one rank", ranks);
  else
    check_rows_of_experts(load, run.model, run.mesh.context_parallel_size, problems);
}

}  // namespace trifold
