#include "config/subjects/experts.h"

#include "config/fields/number.h"
#include "config/fields/pipeline_choice.h"
#include "config/options/bounds.h"
#include "config/subjects/mesh.h"
#include "core/error.h"

// The ranks that share experts; experts.cpp has the experts of the model.
namespace trifold {

namespace {

When several_expert_ranks() {
  return When("expert-model-parallel-size", AtLeast{2}).or_when("expert-tensor-parallel-size", AtLeast{2});
}

}  // namespace

void add_expert_ranks(OptionTable& table, MeshConfig& mesh) {
  table
      .add("expert-model-parallel-size", &mesh.expert_model_parallel_size,
           "Ranks of a pipeline stage over which the experts of each layer are sharded; "
           "they exchange tokens. Needs --num-experts.")
      .range(1, kMaxRanks)
      .also("ep")
      .of_execution()
      .only_with("num-experts");
  table
      .add("expert-tensor-parallel-size", &mesh.expert_tensor_parallel_size,
           "Ranks of a pipeline stage over which the inner width of each expert is sharded. "
           "Needs --num-experts.")
      .range(1, kMaxRanks)
      .also("etp")
      .of_execution()
      .only_with("num-experts");
  table
      .add("moe-token-dispatcher-type", &mesh.moe_token_dispatcher_type,
           "How tokens reach experts on other ranks: each is sent to the ranks of its experts, "
           "or all are gathered by all ranks that share experts, which is cheaper if these are fewer than "
           "--moe-router-topk. Same results.")
      .of_execution()
      .only_with(several_expert_ranks(), "because every rank computes the rows of its own tokens")
      .as_note()
      .excludes({"device", "cuda"}, "where no kernel picks rows by counts yet",
                "give --device cpu, or --moe-token-dispatcher-type alltoall")
      .only_for("allgather");
  table
      .add("moe-buffer-factor", &mesh.moe_buffer_factor,
           "Memory for the rows that the experts of a rank receive at once, as a multiple of the mean; "
           "if more arrive, they are computed in rounds, and again in backward. Needs --ep or --etp.")
      .range(0.01, 1e6)
      .absent("for all that can arrive")
      .of_execution()
      .only_with(several_expert_ranks(), "because every rank computes the rows of its own tokens")
      .as_note();
  table
      .add("overlap-moe-expert-parallel-comm", &mesh.overlap_moe_expert_parallel_comm,
           "If the schedule pairs a forward with a backward (dualpipe-v), let them alternate: each computes "
           "while the other exchanges rows with its experts. Same results, more memory.")
      .of_execution()
      .only_with(several_expert_ranks(), "because no rows are exchanged between ranks")
      .excludes({"zero-stage", "3"}, "which cuts forwards and backwards into blocks",
                "give --zero-stage 2 or less, or leave it out")
      .excludes({"zero-reduce", "each"}, "which cuts backwards into blocks",
                "give --zero-reduce once, or leave it out")
      .excludes({"cpu-offloading-num-layers", AtLeast{1}}, "which cuts forwards and backwards into blocks");
}

namespace {

// " on 2 tensor x 2 context ranks": the ranks over which the tokens of a micro-batch are sharded.
std::string ranks_of_tokens(int64_t tensor, int64_t context) {
  if (context == 1) return tensor > 1 ? fmt::format(" on {} tensor ranks", tensor) : "";
  return fmt::format(" on {}{} context ranks", tensor > 1 ? fmt::format("{} tensor x ", tensor) : "",
                     context);
}

bool both_cut(const MeshConfig& mesh) {
  return mesh.expert_model_parallel_size > 1 && mesh.expert_tensor_parallel_size > 1;
}

std::string expert_options(const MeshConfig& mesh) {
  std::string experts = fmt::format("--expert-model-parallel-size {}", mesh.expert_model_parallel_size);
  if (mesh.expert_tensor_parallel_size == 1) return experts;
  std::string parts = fmt::format("--expert-tensor-parallel-size {}", mesh.expert_tensor_parallel_size);
  return both_cut(mesh) ? experts + " x " + parts : parts;
}

// Checks that the rows of the products of experts fit 32-bit indices: a rank's own tokens, and the rows that can arrive
// in a round (nn/exchanged_rows.h).
void check_expert_rows(const PretrainConfig& config, Problems& problems) {
  constexpr int64_t kMost = (int64_t{1} << 31) - 1;
  const ModelConfig& model = config.model;
  if (!problems.sound({"micro-batch-size", "seq-length", "moe-router-topk", "tensor-model-parallel-size",
                       "context-parallel-size"}))
    return;
  const int64_t ranks = config.mesh.expert_ranks();
  const int64_t tensor = config.mesh.tensor_model_parallel_size;
  const int64_t context = config.mesh.context_parallel_size;
  const int64_t choices =
      std::min(model.moe_router_topk, *model.num_experts / config.mesh.expert_model_parallel_size);
  int64_t tokens = 0, local = 0, arriving = 0;
  if (__builtin_mul_overflow(config.batch.micro_batch_size, model.seq_length, &tokens)) tokens = INT64_MAX;
  tokens /= tensor * context;  // each rank has as many
  if (__builtin_mul_overflow(tokens, model.moe_router_topk, &local)) local = INT64_MAX;
  if (__builtin_mul_overflow(tokens, ranks * choices, &arriving)) arriving = INT64_MAX;
  const std::optional<double> factor = config.mesh.moe_buffer_factor;
  const bool in_rounds = factor && problems.sound({"moe-buffer-factor"}) &&
                         *factor * config.mesh.expert_tensor_parallel_size * static_cast<double>(local) <=
                             static_cast<double>(kMost);
  if (local > kMost || (arriving > kMost && !in_rounds))
    problems
        .about("micro-batch-size", "seq-length", "moe-router-topk", "num-experts",
               "expert-model-parallel-size", "expert-tensor-parallel-size", "tensor-model-parallel-size",
               "context-parallel-size", "moe-buffer-factor")
        .wrong(
            "--micro-batch-size {} x --seq-length {} tokens{} may give the experts of a rank more than {} "
            "rows: "
            "--moe-router-topk {}, --num-experts {}, {}{}",
            config.batch.micro_batch_size, model.seq_length, ranks_of_tokens(tensor, context), kMost,
            model.moe_router_topk, *model.num_experts, expert_options(config.mesh),
            factor ? fmt::format(", --moe-buffer-factor {}", *factor) : "")
        .right("give a smaller --micro-batch-size{}", local > kMost ? ""
                                                      : factor      ? " or --moe-buffer-factor"
                                                                    : ", or --moe-buffer-factor");
}

std::string factors_of_stage(int64_t tensor, int64_t context, int64_t data) {
  if (tensor == 1 && context == 1) return "which are data-parallel";
  return fmt::format("tensor {}{} x data {}", tensor,
                     context > 1 ? fmt::format(" x context {}", context) : "", data);
}

void check_width_of_experts(const PretrainConfig& config, Problems& problems) {
  const int parts = config.mesh.expert_tensor_parallel_size;
  const int64_t width = expert_width(config.model);
  if (problems.sound({"moe-ffn-hidden-size", "ffn-hidden-size", "hidden-size"}) && width % parts != 0)
    problems.about("moe-ffn-hidden-size", "ffn-hidden-size", "expert-tensor-parallel-size")
        .wrong("the width of the experts, {}, is not divisible by --expert-tensor-parallel-size {}", width,
               parts)
        .right("{}", multiples_around(width, parts));
}

// Both grids have the ranks of a pipeline stage.
void check_fold_of_experts(const MeshConfig& mesh, Problems& problems) {
  if (!sound_sizes(problems)) return;
  const int64_t tensor = mesh.tensor_model_parallel_size;
  const int64_t context = mesh.context_parallel_size;
  const int64_t data = data_parallel_size(mesh);
  if (tensor * context * data % mesh.expert_ranks() == 0) return;
  problems
      .about("expert-model-parallel-size", "expert-tensor-parallel-size", "ranks", "data-parallel-size",
             "pipeline-model-parallel-size", "tensor-model-parallel-size", "context-parallel-size")
      .wrong("{} does not divide the {} ranks of a pipeline stage, {}", expert_options(mesh),
             tensor * context * data, factors_of_stage(tensor, context, data))
      .right("give {} of them: they share the experts", both_cut(mesh) ? "divisors" : "a divisor");
}

// The reason why no forward and backward can alternate; empty if some pair may.
std::string nothing_to_overlap(const PretrainConfig& config) {
  const MeshConfig& mesh = config.mesh;
  const auto schedule = chosen_schedule(config.pipeline);  // none: from a file, which may have pairs
  if (schedule && mesh.pipeline_model_parallel_size == 1)
    return "has no effect with --pipeline-model-parallel-size 1: give more pipeline ranks, or leave it out";
  if (schedule && *schedule != Schedule::DualPipeV)
    return fmt::format(
        "has no effect with --schedule {}, which pairs no forward with a backward: "
        "give --schedule dualpipe-v, or leave it out",
        schedule_name(*schedule));
  return {};
}

void check_overlap_of_experts(const PretrainConfig& config, Problems& problems) {
  if (!config.mesh.overlap_moe_expert_parallel_comm || config.mesh.expert_ranks() == 1) return;
  const std::string reason = nothing_to_overlap(config);
  if (reason.empty()) return;
  const size_t colon = reason.rfind(": ");
  problems
      .about("overlap-moe-expert-parallel-comm", "expert-model-parallel-size", "schedule",
             "pipeline-model-parallel-size")
      .wrong("--overlap-moe-expert-parallel-comm {}", reason.substr(0, colon))
      .right("{}", reason.substr(colon + 2));
}

}  // namespace

void check_experts_mesh(const PretrainConfig& config, Problems& problems) {
  if (!problems.sound({"num-experts", "expert-model-parallel-size", "expert-tensor-parallel-size"})) return;
  check_overlap_of_experts(config, problems);
  if (!config.model.num_experts) return;
  check_expert_rows(config, problems);
  if (config.mesh.expert_ranks() == 1) return;
  check_width_of_experts(config, problems);
  check_fold_of_experts(config.mesh, problems);
}

}  // namespace trifold
