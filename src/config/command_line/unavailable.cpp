#include "config/command_line/unavailable.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

namespace trifold {
namespace {

// Options without an alternative.
constexpr std::string_view kUnavailable[] = {
    // parallelism
    "microbatch-group-size-per-virtual-pipeline-stage", "hierarchical-context-parallel-sizes",
    "use-tp-pp-dp-mapping",
    // data parallel and ZeRO
    "num-distributed-optimizer-instances", "overlap-param-gather", "overlap-param-gather-with-optimizer-step",
    "ddp-bucket-size", "ddp-num-buckets", "ddp-average-in-collective", "no-overlap-p2p-communication",
    "tp-comm-overlap", "delay-wgrad-compute", "defer-embedding-wgrad-compute",
    // model
    "attention-softmax-in-fp32", "apply-query-key-layer-scaling", "transformer-impl", "attention-backend",
    "moe-latent-size", "moe-paged-stash", "moe-enable-routing-replay", "mtp-num-layers",
    // batch and optimizer
    "rampup-batch-size", "step-batch-size-schedule", "decrease-batch-size-if-needed", "exit-duration-in-mins",
    "exit-signal-handler", "iterations-to-skip", "calculate-per-token-loss", "override-opt-param-scheduler",
    "use-checkpoint-opt-param-scheduler", "start-weight-decay", "end-weight-decay", "weight-decay-incr-style",
    "optimizer-cpu-offload", "optimizer-offload-fraction", "use-precision-aware-optimizer",
    "main-grads-dtype", "exp-avg-dtype",
    // precision
    "fp8-format", "fp8-recipe", "fp32-residual-connection",
    // recompute

    "recompute-modules", "distribute-saved-activations",
    // checkpoint
    "save-retain-interval", "ckpt-step", "pretrained-checkpoint", "no-save-optim", "no-save-rng",
    "no-load-optim", "no-load-rng", "use-checkpoint-args", "ckpt-format", "dist-ckpt-optim-fully-reshardable",
    "dist-ckpt-strictness", "no-ckpt-fully-parallel-save", "ckpt-fully-parallel-load",
    "override-ckpt-iteration",
    // data and evaluation
    "train-data-path", "valid-data-path", "test-data-path", "data-args-path", "per-split-data-args-path",
    "data-cache-path", "mock-data", "vocab-file", "merge-file", "num-workers", "dataloader-type",
    "no-mmap-bin-files", "num-dataset-builder-threads", "mid-level-dataset-surplus",
    "dataloader-fast-cache-load", "skip-train", "full-validation",
    // logging and debugging
    "log-throughput", "log-params-norm", "log-num-zeros-in-grad", "log-progress", "timing-log-level",
    "timing-log-option", "tensorboard-dir", "tensorboard-log-interval", "wandb-project", "wandb-exp-name",
    "wandb-entity", "wandb-save-dir", "profile", "profile-step-start", "profile-step-end",
    "data-parallel-random-init", "no-check-for-nan-in-loss-and-grad", "check-for-spiky-loss", "rerun-mode",
    "fake-process-group", "workers", "partitions"};

// Options with an alternative.
constexpr std::pair<std::string_view, std::string_view> kAdvice[] = {
    {"train-samples", "give --train-iters instead"},
    {"lr-decay-samples", "give --lr-decay-iters instead"},
    {"lr-warmup-samples", "give --lr-warmup-iters instead"},
    {"lr-wsd-decay-samples", "give --lr-wsd-decay-iters instead"},
    {"persistent-save-interval", "give --save-interval instead"},
    {"use-distributed-optimizer", "give --zero-stage 1 instead"},
    {"use-megatron-fsdp", "give --zero-stage 3 instead"},
    {"use-torch-fsdp2", "give --zero-stage 3 instead"},
    {"data-parallel-sharding-strategy", "give --zero-stage instead"},
    {"recompute-activations", "give --recompute-granularity selective instead"},
    {"recompute-method", "--recompute-granularity full computes every layer again: leave it out"},
    {"recompute-num-layers", "--recompute-granularity full computes every layer again: leave it out"},
    {"distributed-backend", "ranks are threads, or MPI processes under mpirun: leave it out"},
    {"moe-pad-expert-input-to-capacity",
     "--moe-expert-capacity-factor drops tokens and pads none: leave it out"},
    {"moe-expert-rank-capacity-factor",
     "--moe-buffer-factor bounds the rows of a rank, and more than that come in rounds: give it instead"},
    {"moe-layer-recompute", "give --recompute-granularity full instead"},
    {"moe-router-dtype", "routers always compute in f32, or in f64 with --f64: leave it out"},
    {"exit-on-missing-checkpoint",
     "a missing --load is always an error, and --auto-resume begins where --save has no checkpoint: leave it out"},
    {"deterministic-mode",
     "every run is deterministic, on a GPU too, unless --no-deterministic-mode is given: leave it out"},
    {"moe-per-layer-logging", "--log-json FILE has the load of every layer: give it instead"},
    {"verify-integrity", "run 'trifold inspect DIR --verify' instead"}};

// Flags, and what Trifold always does instead.
constexpr std::pair<std::string_view, std::string_view> kAlwaysDone[] = {
    {"overlap-grad-reduce", "gradient reduction always overlaps with backward"},
    {"accumulate-allreduce-grads-in-fp32", "gradients are always accumulated in f32"},
    {"moe-grouped-gemm", "the products of all experts are always one grouped product"},
    {"moe-shared-expert-overlap", "a shared expert always overlaps with the exchange of rows"},
    {"use-flash-attn", "attention never holds the whole matrix of scores"},
    {"flash-attn", "attention never holds the whole matrix of scores"},
    {"use-cpu-initialization", "weights do not depend on the device or the mesh"},
    {"fused", "the update of the optimizer is always one pass"}};

// The text for `name` in a list of pairs; empty if the list lacks it.
template <class List>
std::string_view text_for(const List& list, std::string_view name) {
  const auto* found =
      std::find_if(std::begin(list), std::end(list), [&](const auto& entry) { return entry.first == name; });
  return found == std::end(list) ? std::string_view() : found->second;
}

}  // namespace

std::optional<std::string> always_done(std::string_view name) {
  const std::string_view what = text_for(kAlwaysDone, name);
  if (what.empty()) return std::nullopt;
  return fmt::format("--{} has no effect: {}", name, what);
}

std::optional<std::string> unavailable(std::string_view name) {
  if (const std::string_view advice = text_for(kAdvice, name); !advice.empty())
    return fmt::format("--{} is not available in this version of Trifold: {}", name, advice);
  if (std::find(std::begin(kUnavailable), std::end(kUnavailable), name) != std::end(kUnavailable))
    return fmt::format("--{} is not available in this version of Trifold", name);
  return std::nullopt;
}

}  // namespace trifold
