#include <algorithm>

#include "config/number.h"
#include "config/validate_mesh.h"

namespace trifold {

namespace {

constexpr int64_t kUnit = 16;  // what the extents of a product in 8 bits are multiples of

}  // namespace

void check_tf32(const PrecisionConfig& precision, const MeshConfig& mesh, Problems& problems) {
  if (!precision.tf32) return;
  if (mesh.device != ComputeDevice::Cuda)
    problems.add("--tf32 needs --device cuda: processors have no products in TF32");
  for (const auto& [given, option] : {std::pair{precision.bf16, "--bf16"},
                                      std::pair{precision.fp16, "--fp16"}, std::pair{precision.f64, "--f64"}})
    if (given)
      problems.add("--tf32 with {}: it rounds the factors of f32 products: give one of them", option);
}

void check_fp8(const PretrainConfig& config, Problems& problems) {
  if (!config.precision.fp8) return;
  if (!config.precision.bf16)
    problems.add("--fp8 needs --bf16: products are of 8 bits, everything else is bf16");
  if (config.mesh.device != ComputeDevice::Cuda)
    problems.add("--fp8 needs --device cuda: processors have no products in 8 bits");
  const ModelConfig& model = config.model;
  const bool sound =
      problems.sound({"hidden-size", "num-attention-heads", "num-query-groups", "ffn-hidden-size",
                      "seq-length", "micro-batch-size", "tensor-model-parallel-size"});
  if (!sound || model.num_attention_heads < 1) return;
  const int64_t tensor = config.mesh.tensor_model_parallel_size;
  const auto whole = [&](const std::string& what, int64_t extent) {
    if (extent % kUnit != 0)
      problems.add("--fp8 with products of {} {}: every extent must be a multiple of {}", extent, what,
                   kUnit);
  };
  const auto per_rank = [&](const char* what, int64_t extent) {
    whole(tensor == 1 ? what : fmt::format("{} on each of {} tensor ranks", what, tensor), extent / tensor);
  };
  whole("columns (--hidden-size)", model.hidden_size);
  per_rank("columns (query heads x their width)", model.num_attention_heads * head_width(model));
  const int64_t held = std::max(tensor, key_heads(model));  // ranks beyond the key heads hold copies
  per_rank("columns (key heads x their width)", held * head_width(model));
  per_rank(model.ffn_hidden_size ? "columns (--ffn-hidden-size)" : "columns (--ffn-hidden-size, by default)",
           inner_width(model));
  whole("rows of a sample (--seq-length)", model.seq_length);  // the last micro-batch may hold one
}

}  // namespace trifold
