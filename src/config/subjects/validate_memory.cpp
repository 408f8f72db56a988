// Rules of options that trade time for memory.
#include "config/subjects/validate_mesh.h"

namespace trifold {

void check_tiled_mlp(const PretrainConfig& config, Problems& problems) {
  const int64_t tiles = config.mesh.tiled_mlp;
  if (!problems.sound({"tiled-mlp"}) || tiles == 1) return;
  if (problems.sound({"num-experts"}) && config.model.num_experts)
    problems.about("tiled-mlp", "num-experts")
        .wrong(
            "--tiled-mlp {} is not possible with --num-experts {}, because experts take their rows at once",
            tiles, *config.model.num_experts)
        .right("leave it out; --moe-buffer-factor bounds the rows of experts that ranks share");
  if (!problems.sound({"seq-length", "micro-batch-size", "context-parallel-size"})) return;
  // At most 2^60.
  const int64_t rows =
      config.model.seq_length * config.batch.micro_batch_size / config.mesh.context_parallel_size;
  if (tiles > rows)
    problems.about("tiled-mlp", "seq-length", "micro-batch-size", "context-parallel-size")
        .wrong("--tiled-mlp {} is more than the {} rows of a micro-batch on a rank", tiles, rows)
        .right("give at most {}; tiles of a few hundred rows are as fast as all rows at once", rows);
}

void check_offloaded_layers(const PretrainConfig& config, Problems& problems) {
  const int64_t layers = config.mesh.cpu_offloading_num_layers;
  const auto& folder = config.mesh.cpu_offloading_folder;
  if (!problems.sound({"cpu-offloading-num-layers", "cpu-offloading-folder"})) return;
  if (layers == 0) {
    if (folder)
      problems.about("cpu-offloading-folder", "cpu-offloading-num-layers")
          .wrong("--cpu-offloading-folder {} has no effect without --cpu-offloading-num-layers", *folder)
          .right("give the number of layers too, or leave it out");
    return;
  }
  const bool on_device = config.mesh.device == ComputeDevice::Cuda;
  if (folder && on_device)
    problems.about("cpu-offloading-folder", "device")
        .wrong(
            "--cpu-offloading-folder {} has no effect with --device cuda, "
            "because the activations of a device go to host memory",
            *folder)
        .right("leave it out");
  if (!folder && !on_device)
    problems.about("cpu-offloading-num-layers", "cpu-offloading-folder")
        .wrong("--cpu-offloading-num-layers {} is given without --cpu-offloading-folder", layers)
        .right("name a folder on a fast disk");
  if (problems.sound({"num-layers"}) && layers > config.model.num_layers)
    problems.about("cpu-offloading-num-layers", "num-layers")
        .wrong("--cpu-offloading-num-layers {} is more than --num-layers {}", layers, config.model.num_layers)
        .right("give at most the layers of a stage");
  if (on_device && config.mesh.enable_cuda_graph)
    problems.about("cpu-offloading-num-layers", "enable-cuda-graph")
        .wrong(
            "--cpu-offloading-num-layers {} is not possible with --enable-cuda-graph, "
            "because activations come back to other addresses",
            layers)
        .right("leave out one of the two");
}

}  // namespace trifold
