#include <algorithm>

#include "config/fields/number.h"
#include "config/subjects/validate_mesh.h"

namespace trifold {

namespace {

constexpr int64_t kUnit = 16;  // extents of 8-bit products are multiples of this

// The last micro-batch may hold one sample.
void check_rows(const PretrainConfig& config, Problems& problems) {
  if (!problems.sound({"context-parallel-size", "tiled-mlp"})) return;
  const int64_t context = config.mesh.context_parallel_size, tiles = config.mesh.tiled_mlp;
  const int64_t rows = config.model.seq_length / context;
  if (config.model.seq_length % context != 0) return;
  if (rows % kUnit != 0)
    problems.about("fp8", "seq-length", "context-parallel-size")
        .wrong("--fp8 is not possible with products of {} rows of a sample (--seq-length){}", rows,
               context > 1 ? fmt::format(" on each of {} context ranks", context) : "")
        .right("every extent must be a multiple of {}", kUnit);
  else if (rows % (tiles * kUnit) != 0)
    problems.about("fp8", "tiled-mlp", "seq-length", "context-parallel-size")
        .wrong(
            "--fp8 is not possible with --tiled-mlp {}, which cuts the {} rows of a sample into tiles that "
            "are not multiples of {}",
            tiles, rows, kUnit)
        .right("give a divisor of {}", rows / kUnit);
}

}  // namespace

void check_tf32(const PrecisionConfig& precision, const MeshConfig& mesh, Problems& problems) {
  if (!precision.tf32) return;
  if (mesh.device != ComputeDevice::Cuda)
    problems.about("tf32", "device")
        .wrong("--tf32 needs --device cuda, because CPUs have no products in TF32")
        .right("give both, or neither");
  for (const auto& [given, option] : {std::pair{precision.bf16, "bf16"}, std::pair{precision.fp16, "fp16"},
                                      std::pair{precision.f64, "f64"}})
    if (given)
      problems.about("tf32", option)
          .wrong("--tf32 has no effect with --{}, because it rounds the factors of f32 products", option)
          .right("give one of them");
}

void check_fp8(const PretrainConfig& config, Problems& problems) {
  if (!config.precision.fp8) return;
  if (!config.precision.bf16)
    problems.about("fp8", "bf16")
        .wrong("--fp8 needs --bf16, because products are of 8 bits and everything else is bf16")
        .right("give both, or neither");
  if (config.mesh.device != ComputeDevice::Cuda)
    problems.about("fp8", "device")
        .wrong("--fp8 needs --device cuda, because CPUs have no products in 8 bits")
        .right("give both, or neither");
  const ModelConfig& model = config.model;
  if (model.num_experts)
    return problems.about("fp8", "num-experts")
        .wrong("--fp8 is not possible with --num-experts {}: products of experts are not computed in 8 bits",
               *model.num_experts)
        .right("leave out one of them");
  if (model.multi_latent_attention)
    return problems.about("fp8", "multi-latent-attention")
        .wrong("--fp8 is not possible with --multi-latent-attention: its products are not computed in 8 bits")
        .right("leave out one of them");
  const bool sound =
      problems.sound({"hidden-size", "num-attention-heads", "num-query-groups", "ffn-hidden-size",
                      "seq-length", "micro-batch-size", "tensor-model-parallel-size"});
  if (!sound || model.num_attention_heads < 1) return;
  const int64_t tensor = config.mesh.tensor_model_parallel_size;
  using Options = std::vector<std::string>;
  const auto whole = [&](const Options& options, const std::string& dim, int64_t extent) {
    if (extent % kUnit != 0)
      problems.about(options)
          .wrong("--fp8 is not possible with products of {} {}", extent, dim)
          .right("every extent must be a multiple of {}", kUnit);
  };
  const auto per_rank = [&](Options options, const char* dim, int64_t extent) {
    if (tensor > 1) options.emplace_back("tensor-model-parallel-size");
    whole(options, tensor == 1 ? dim : fmt::format("{} on each of {} tensor ranks", dim, tensor),
          extent / tensor);
  };
  const Options query_heads{"fp8", "num-attention-heads", "kv-channels", "hidden-size"};
  const Options key_value_heads{"fp8", "num-query-groups", "num-attention-heads", "kv-channels",
                                "hidden-size"};
  whole({"fp8", "hidden-size"}, "columns (--hidden-size)", model.hidden_size);
  per_rank(query_heads, "columns (query heads x their width)", model.num_attention_heads * head_width(model));
  const int64_t held = std::max(tensor, key_heads(model));  // ranks beyond the key heads hold copies
  per_rank(key_value_heads, "columns (key heads x their width)", held * head_width(model));
  per_rank({"fp8", "ffn-hidden-size"},
           model.ffn_hidden_size ? "columns (--ffn-hidden-size)" : "columns (--ffn-hidden-size, by default)",
           inner_width(model));
  check_rows(config, problems);
}

}  // namespace trifold
