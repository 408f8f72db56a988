#include "config/subjects/memory.h"

#include "config/options/bounds.h"

namespace trifold {

void add_recompute(OptionTable& table, MeshConfig& mesh) {
  table.group("Memory");
  table
      .add(
          "recompute-granularity", &mesh.recompute_granularity,
          "Activations that backward recomputes instead of storing: attention's (selective) or whole layers' "
          "(full).")
      .of_execution();
  table
      .add("tiled-mlp", &mesh.tiled_mlp,
           "Compute the MLP in this many tiles of the rows of a micro-batch, one after the other; "
           "its inner activations exist for one tile at a time, and backward recomputes them.")
      .range(1, kMaxSize)
      .of_execution()
      .excludes("num-experts", "because experts take their rows at once",
                "leave it out; --moe-buffer-factor bounds the rows of experts that ranks share");
  table
      .add("cpu-offloading-num-layers", &mesh.cpu_offloading_num_layers,
           "Number of layers, the first of each pipeline stage, whose activations are off-loaded between "
           "forward and backward: to a file in --cpu-offloading-folder or, with --device cuda, "
           "to pinned host memory.")
      .range(0, kMaxSize)
      .of_execution()
      .needs("cpu-offloading-folder", {}, "name a folder on a fast disk")
      .unless({"device", "cuda"})
      .excludes("enable-cuda-graph", "because activations come back to other addresses")
      .provided({"device", "cuda"})
      .compares(Relation::AtMost, "num-layers")
      .unless(When("model"));
  table
      .add("cpu-offloading-folder", &mesh.cpu_offloading_folder,
           "Folder on a fast disk for the activations of --cpu-offloading-num-layers, one file per rank.")
      .names("DIR", FileUse::Scratch)
      .absent("none")
      .of_all_hosts()
      .of_execution()
      .only_with("cpu-offloading-num-layers", {}, "give the number of layers too, or leave it out")
      .no_effect_with({"device", "cuda"}, "because the activations of a device go to host memory",
                      "leave it out");
}

void add_memory_limit(OptionTable& table, MeshConfig& mesh) {
  table
      .add("memory-limit", &mesh.memory_limit,
           "Memory of a rank in GiB; a plan that needs more is rejected with a suggestion that fits.")
      .positive()
      .absent("ranks share the memory of their host or device")
      .of_host();
}

void check_tiled_mlp(const PretrainConfig& config, Problems& problems) {
  const int64_t tiles = config.mesh.tiled_mlp;
  if (!problems.sound({"tiled-mlp"}) || tiles == 1) return;
  if (!problems.sound({"seq-length", "micro-batch-size", "context-parallel-size"})) return;
  // At most 2^60.
  const int64_t rows =
      config.model.seq_length * config.batch.micro_batch_size / config.mesh.context_parallel_size;
  if (tiles > rows)
    problems.about("tiled-mlp", "seq-length", "micro-batch-size", "context-parallel-size")
        .wrong("--tiled-mlp {} is more than the {} rows of a micro-batch on a rank", tiles, rows)
        .right("give at most {}; tiles of a few hundred rows are as fast as all rows at once", rows);
}

}  // namespace trifold
