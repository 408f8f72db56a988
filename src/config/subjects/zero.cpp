#include "config/subjects/zero.h"

#include "config/fields/schedule.h"
#include "config/subjects/mesh.h"

namespace trifold {

Option& add_zero_stage(OptionTable& table, ZeroConfig& zero) {
  return table
      .add("zero-stage", &zero.zero_stage,
           "What data-parallel ranks shard: 0 nothing, 1 the optimizer state, "
           "2 also gradients, 3 also weights.")
      .range(0, 3)
      .of_execution()
      .excludes({"schedule", kAsynchronousSchedules},
                "because several versions of the weights are in use at once and must be resident",
                "give at most --zero-stage 2")
      .only_for("3");
}

void add_zero(OptionTable& table, ZeroConfig& zero) {
  table.group("ZeRO");
  add_zero_stage(table, zero);
  table
      .add("zero-min-unit-params", &zero.zero_min_unit_params,
           "Minimum number of parameters in a unit; each unit is reduced and gathered as a whole.")
      .range(1, int64_t{1} << 40)
      .absent("4194304")
      .of_execution();
  table
      .add("zero-group-size", &zero.zero_group_size,
           "Data-parallel ranks that shard among themselves: a number, or node for those of a node. Groups "
           "are replicas of each other and exchange only slices of gradients.")
      .takes("N|node")
      .suggest({"node"})
      .absent("all data-parallel ranks")
      .of_execution();
  table
      .add("offload", &zero.offload,
           "Where to keep the optimizer state and, with --zero-stage 3, the weight shards. A folder on a "
           "fast disk: one memory-mapped file per rank, of which only the part in use is in memory. host: "
           "host memory, for the optimizer state with --device cuda. none: no offload.")
      .names("DIR|host|none", FileUse::Scratch)
      .of_host()
      .of_execution()
      .only_with({"device", "cuda"}, "because on a CPU the state is in host memory already",
                 "leave it out, or name a folder on a fast disk")
      .only_for("host")
      .excludes({"device", "cuda"}, "because state in files is for CPUs",
                "give --offload host, which keeps it in the host's memory")
      .unless({"offload", "host"});
  table
      .add("zero-reduce", &zero.zero_reduce,
           "When to reduce gradients over data-parallel ranks: once a step, or after each micro-batch, which "
           "sends more but holds less; each needs --zero-stage 2.")
      .absent("each if the stage is 2 or 3 and a step has one micro-batch, otherwise once")
      .of_execution()
      .only_with({"zero-stage", AtLeast{2}}, "because in lower stages every rank holds all gradients")
      .as_note()
      .only_for("each")
      .excludes({"schedule", kAsynchronousSchedules},
                "which updates the weights inside the pipeline and reduces once an update",
                "give --zero-reduce once, or a synchronous schedule such as 1f1b")
      .only_for("each");
}

namespace {

// The most groups: between groups a slice is cut into one part per group, each of at least one element (DataSums), and
// slices have at least 256 elements.
constexpr int64_t kMostGroupsInBf16 = 256;
void check_reduce_in_bf16(const PretrainConfig& config, Problems& problems) {
  const int64_t data = gradient_ranks(config.mesh);
  const bool sums_experts =
      config.model.num_experts && config.mesh.tensor_model_parallel_size > config.mesh.expert_ranks();
  if (data == 1)
    problems.about("grad-reduce-in-bf16", "ranks", "data-parallel-size")
        .wrong("--grad-reduce-in-bf16 {} with one data-parallel rank, {}",
               sums_experts ? "is not possible" : "has no effect",
               sums_experts ? "where only tensor ranks sum gradients, those of experts"
                            : "which sends no gradients")
        .right("leave it out");
  const int64_t group = given_group_size(config.zero).value_or(data);
  if (group > 0 && data / group > kMostGroupsInBf16)
    problems.about("grad-reduce-in-bf16", "zero-group-size", "ranks", "data-parallel-size")
        .wrong(
            "--grad-reduce-in-bf16 with {} groups of --zero-group-size {} is not possible, because gradients "
            "are reduced in bf16 between at most {} groups",
            data / group, group, kMostGroupsInBf16)
        .right("give at least --zero-group-size {}", (data + kMostGroupsInBf16 - 1) / kMostGroupsInBf16);
}

}  // namespace

std::optional<int> given_group_size(const ZeroConfig& zero) {
  if (!zero.zero_group_size || zero.zero_group_size->follows_nodes()) return std::nullopt;
  return zero.zero_group_size->ranks;
}

void check_zero(const PretrainConfig& config, Problems& problems) {
  if (config.optimizer.optimizer == OptimizerKind::Muon && config.zero.offloads() &&
      !config.zero.offloads_to_host())
    problems.about("offload", "optimizer")
        .wrong(
            "--optimizer muon with --offload {} is not possible, because an update streams files through windows, "
            "and muon needs whole matrices",
            config.zero.offload.text())
        .right("leave --offload out, or give another --optimizer");
  if (config.precision.grad_reduce_in_bf16 && sound_sizes(problems)) check_reduce_in_bf16(config, problems);
  const std::optional<int> group = given_group_size(config.zero);
  if (!group || !sound_sizes(problems)) return;
  const int64_t data = gradient_ranks(config.mesh);
  if (data % *group != 0)
    problems.about("zero-group-size", "ranks", "data-parallel-size")
        .wrong("--zero-group-size {} does not divide the data-parallel size {}", *group, data)
        .right("give a divisor of it");
}

}  // namespace trifold
