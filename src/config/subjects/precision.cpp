#include "config/subjects/precision.h"

#include <algorithm>

#include "config/fields/schedule.h"
#include "config/options/bounds.h"
#include "config/subjects/model_family.h"

namespace trifold {

void add_tf32(OptionTable& table, PrecisionConfig& precision) {
  table
      .add(
          "tf32", &precision.tf32,
          "Use tensor cores for f32 matrix products, with operands rounded to a 10-bit mantissa; --device cuda.")
      .needs({"device", "cuda"}, "because CPUs have no products in TF32")
      .no_effect_with(When("bf16").or_when("fp16").or_when("f64"),
                      "because it rounds the factors of f32 products", "give one of them");
}

void add_precision(OptionTable& table, PrecisionConfig& precision) {
  table.group("Precision");
  table.add("bf16", &precision.bf16, "Weights and activations in bf16; f32 master weights.");
  table.add("fp16", &precision.fp16, "Weights and activations in fp16; f32 master weights and loss scaling.")
      .excludes("bf16", {}, "give one of them, or none for f32")
      .needs("loss-scale", "because updates inside the pipeline cannot be skipped",
             "give one, or --bf16 instead")
      .provided({"schedule", kAsynchronousSchedules});
  table
      .add("fp8", &precision.fp8,
           "Matrix products of linear layers in 8 bits, with --bf16: E4M3, and E5M2 for gradients unless "
           "--fp8-recipe says otherwise. Needs --device cuda and a Hopper GPU.")
      .needs("bf16", "because products are of 8 bits and everything else is bf16")
      .needs({"device", "cuda"}, "because CPUs have no products in 8 bits",
             "give it, or --fp8-recipe blockwise, which CPUs emulate")
      .provided({"fp8-recipe", "tensorwise"})
      .excludes("num-experts", "because products of experts are not computed in 8 bits")
      .excludes("multi-latent-attention", "because its products are not computed in 8 bits");
  table
      .add(
          "fp8-recipe", &precision.fp8_recipe,
          "Scales of factors in 8 bits: tensorwise, one for each tensor; blockwise, one for each 128 elements of "
          "activations and gradients and for each 128 x 128 of weights, all E4M3. CPUs emulate blockwise.")
      .only_with("fp8");
  add_tf32(table, precision);
  table.add("loss-scale", &precision.loss_scale, "Fixed loss scale, preferably a power of two.")
      .positive()
      .absent("1 for --bf16, dynamic for --fp16")
      .only_with(When("fp16").or_when("bf16"));
  table.add("initial-loss-scale", &precision.initial_loss_scale, "Initial dynamic loss scale; fp16.")
      .range(1, kMaxLossScale)
      .only_with("fp16")
      .no_effect_with("loss-scale")
      .compares(Relation::AtLeast, "min-loss-scale");
  table.add("min-loss-scale", &precision.min_loss_scale, "Smallest dynamic loss scale; fp16.")
      .range(1, kMaxLossScale)
      .only_with("fp16")
      .no_effect_with("loss-scale");
  table
      .add("loss-scale-window", &precision.loss_scale_window,
           "Double the loss scale after this many steps without overflow; fp16.")
      .range(1, kMaxCount)
      .only_with("fp16")
      .no_effect_with("loss-scale");
  table.add("hysteresis", &precision.hysteresis, "Halve the loss scale after this many overflows; fp16.")
      .range(1, kMaxCount)
      .only_with("fp16")
      .no_effect_with("loss-scale");
  table.add("f64", &precision.f64, "Compute everything in double precision, for numerical checks.")
      .excludes(When("bf16").or_when("fp16"), {}, "give one of them, or none for f32");
  table
      .add("grad-reduce-in-bf16", &precision.grad_reduce_in_bf16,
           "Send gradients to other data-parallel ranks in bf16, which halves the traffic; sums are in f32.")
      .excludes("f64", "because f64 is for numerical checks, which rounding to bf16 would defeat",
                "give one of them");
}

namespace {

constexpr int64_t kUnit = 16;  // extents of 8-bit products are multiples of this

// Extents that are parts of a tensor are multiples of this: a block with one scale lies in one sample and on one rank,
// so that scales do not depend on the mesh and the micro-batch.
int64_t unit_of_parts(const PretrainConfig& config) {
  constexpr int64_t kScaledTogether = 128;
  return has_narrow_factors(config.precision) ? kScaledTogether : kUnit;
}

std::string reason_of(int64_t unit) {
  return unit == kUnit ? ""
                       : ", so that blocks with one scale (--fp8-recipe blockwise) do not depend on ranks";
}

// Checks the rows of products; the last micro-batch may have a single sample. A context rank has two runs of rows,
// except in models that are not causal.
void check_rows(const PretrainConfig& config, Problems& problems) {
  if (!problems.sound({"context-parallel-size", "tiled-mlp"})) return;
  const int64_t context = config.mesh.context_parallel_size, tiles = config.mesh.tiled_mlp;
  const int64_t rows = config.model.seq_length / context;
  if (config.model.seq_length % context != 0) return;
  const int64_t part = unit_of_parts(config);
  const bool two_runs = context > 1 && family_of_model(config.model).causal;
  const int64_t unit = part > kUnit && two_runs ? 2 * part : part;
  if (rows % unit != 0)
    problems.about("fp8", "fp8-recipe", "seq-length", "context-parallel-size")
        .wrong("--fp8 is not possible with products of {} rows of a sample (--seq-length){}", rows,
               context > 1 ? fmt::format(" on each of {} context ranks", context) : "")
        .right("every extent must be a multiple of {}{}{}", unit,
               unit > part ? ", two runs of whole blocks" : "", reason_of(unit));
  else if (rows % (tiles * part) != 0)
    problems.about("fp8", "fp8-recipe", "tiled-mlp", "seq-length", "context-parallel-size")
        .wrong(
            "--fp8 is not possible with --tiled-mlp {}, which cuts the {} rows of a sample into tiles that "
            "are not multiples of {}",
            tiles, rows, part)
        .right("give a divisor of {}", rows / part);
}

}  // namespace

void check_fp8(const PretrainConfig& config, Problems& problems) {
  if (!config.precision.fp8) return;
  const ModelConfig& model = config.model;
  if (model.num_experts || model.multi_latent_attention) return;
  const bool sound =
      problems.sound({"hidden-size", "num-attention-heads", "num-query-groups", "ffn-hidden-size",
                      "seq-length", "micro-batch-size", "tensor-model-parallel-size"});
  if (!sound || model.num_attention_heads < 1) return;
  const int64_t tensor = config.mesh.tensor_model_parallel_size;
  using Options = std::vector<std::string>;
  const auto expect_multiple = [&](const Options& options, const std::string& dim, int64_t extent,
                                   int64_t unit) {
    if (extent % unit != 0)
      problems.about(options)
          .wrong("--fp8 is not possible with products of {} {}", extent, dim)
          .right("every extent must be a multiple of {}{}", unit, reason_of(unit));
  };
  const auto whole = [&](const Options& options, const std::string& dim, int64_t extent) {
    expect_multiple(options, dim, extent, kUnit);
  };
  const auto per_rank = [&](Options options, const char* dim, int64_t extent) {
    if (tensor == 1) return whole(options, dim, extent);
    options.emplace_back("tensor-model-parallel-size");
    options.emplace_back("fp8-recipe");
    expect_multiple(options, fmt::format("{} on each of {} tensor ranks", dim, tensor), extent / tensor,
                    unit_of_parts(config));
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
