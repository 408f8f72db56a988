// Rules of a mixture of experts: of its model, and of the ranks that share experts.
#include <utility>

#include "core/error.h"

#include "config/fields/number.h"
#include "config/fields/pipeline_choice.h"
#include "config/subjects/validate_mesh.h"
#include "config/subjects/validate_model.h"

namespace trifold {

namespace {

void check_no_experts(const ModelConfig& model, Problems& problems) {
  const ModelConfig defaults;
  const std::pair<const char*, bool> options[] = {
      {"moe-ffn-hidden-size", model.moe_ffn_hidden_size.has_value()},
      {"moe-shared-expert-intermediate-size", model.moe_shared_expert_intermediate_size.has_value()},
      {"moe-shared-expert-gate", model.moe_shared_expert_gate},
      {"moe-layer-freq", model.moe_layer_freq != defaults.moe_layer_freq},
      {"moe-router-topk", model.moe_router_topk != defaults.moe_router_topk},
      {"moe-router-score-function", model.moe_router_score_function != defaults.moe_router_score_function},
      {"moe-router-pre-softmax", model.moe_router_pre_softmax},
      {"moe-router-topk-scaling-factor", model.moe_router_topk_scaling_factor != 1},
      {"moe-router-num-groups", model.moe_router_num_groups.has_value()},
      {"moe-router-group-topk", model.moe_router_group_topk.has_value()},
      {"moe-router-enable-expert-bias", model.moe_router_enable_expert_bias},
      {"moe-router-bias-update-rate",
       model.moe_router_bias_update_rate != defaults.moe_router_bias_update_rate},
      {"moe-router-load-balancing-type",
       model.moe_router_load_balancing_type != defaults.moe_router_load_balancing_type},
      {"moe-input-jitter-eps", model.moe_input_jitter_eps != 0},
      {"moe-router-force-load-balancing", model.moe_router_force_load_balancing},
      {"moe-aux-loss-coeff", model.moe_aux_loss_coeff != 0},
      {"moe-z-loss-coeff", model.moe_z_loss_coeff != 0},
      {"moe-expert-capacity-factor", model.moe_expert_capacity_factor.has_value()},
      {"moe-token-drop-policy", model.moe_token_drop_policy != defaults.moe_token_drop_policy}};
  for (const auto& [option, changed] : options)
    if (changed && problems.sound({option}))
      problems.about(option, "num-experts")
          .wrong("--{} has no effect", option)
          .right("it needs --num-experts");
}

void check_layer_pattern(const ModelConfig& model, Problems& problems) {
  if (!problems.sound({"num-layers", "moe-layer-freq"})) return;
  try {
    if (count_expert_layers(model) == 0)
      problems.about("moe-layer-freq", "num-experts")
          .wrong("--moe-layer-freq {}: no layer has experts", model.moe_layer_freq)
          .right("leave out --num-experts, or give the layers that have them a 1");
  } catch (const Error& error) {
    problems.about("moe-layer-freq", "num-layers")
        .wrong("--moe-layer-freq {}", error.what())
        .right("give a number, or a list of one 0 or 1 for each of the {} layers, such as [0]+[1]*{}",
               model.num_layers, std::max<int64_t>(model.num_layers - 1, 1));
  }
}

// A bias is comparable with logistic functions, which lie between 0 and 1; logits have no scale.
void check_bias(const ModelConfig& model, Problems& problems) {
  const double standard = ModelConfig().moe_router_bias_update_rate;
  if (!model.moe_router_enable_expert_bias && model.moe_router_bias_update_rate != standard)
    problems.about("moe-router-bias-update-rate", "moe-router-enable-expert-bias")
        .wrong("--moe-router-bias-update-rate {} has no effect", model.moe_router_bias_update_rate)
        .right("it needs --moe-router-enable-expert-bias");
  if (model.moe_router_enable_expert_bias && model.moe_router_score_function != RouterScore::Sigmoid)
    problems.about("moe-router-enable-expert-bias", "moe-router-score-function")
        .wrong("--moe-router-enable-expert-bias is not possible with --moe-router-score-function softmax")
        .right("give --moe-router-score-function sigmoid too");
}

void check_groups(const ModelConfig& model, Problems& problems) {
  const auto& groups = model.moe_router_num_groups;
  const auto& kept = model.moe_router_group_topk;
  if (!problems.sound({"moe-router-num-groups", "moe-router-group-topk", "moe-router-topk"})) return;
  if (groups.has_value() != kept.has_value()) {
    const char* given = groups ? "moe-router-num-groups" : "moe-router-group-topk";
    const char* missing = groups ? "moe-router-group-topk" : "moe-router-num-groups";
    problems.about(given, missing)
        .wrong("--{} {} has no effect without --{}", given, groups ? *groups : *kept, missing)
        .right("give both, or neither");
    return;
  }
  if (!groups) return;
  if (*model.num_experts % *groups != 0) {
    problems.about("num-experts", "moe-router-num-groups")
        .wrong("--num-experts {} is not divisible by --moe-router-num-groups {}", *model.num_experts, *groups)
        .right("{}", multiples_around(*model.num_experts, *groups));
    return;
  }
  const int64_t each = *model.num_experts / *groups;
  if (*kept > *groups)
    problems.about("moe-router-group-topk", "moe-router-num-groups")
        .wrong("--moe-router-group-topk {} is more than --moe-router-num-groups {}", *kept, *groups)
        .right("give at most {}", *groups);
  else if (model.moe_router_topk % *kept != 0)
    problems.about("moe-router-topk", "moe-router-group-topk")
        .wrong("--moe-router-topk {} is not divisible by --moe-router-group-topk {}", model.moe_router_topk,
               *kept)
        .right("{}", multiples_around(model.moe_router_topk, *kept));
  else if (model.moe_router_topk > *kept * each)
    problems.about("moe-router-topk", "moe-router-group-topk", "moe-router-num-groups", "num-experts")
        .wrong("--moe-router-topk {} is more than the {} experts of --moe-router-group-topk {} groups",
               model.moe_router_topk, *kept * each, *kept)
        .right("give more groups or fewer experts per token");
}

}  // namespace

void check_experts(const ModelConfig& model, Problems& problems) {
  if (!problems.sound({"num-experts"})) return;
  if (!model.num_experts) return check_no_experts(model, problems);
  if (problems.sound({"moe-router-topk"}) && model.moe_router_topk > *model.num_experts)
    problems.about("moe-router-topk", "num-experts")
        .wrong("--moe-router-topk {} is more than --num-experts {}", model.moe_router_topk,
               *model.num_experts)
        .right("give {}",
               *model.num_experts == 1
                   ? "more experts, or leave out --num-experts, so that one network computes all tokens"
                   : fmt::format("at most {}", *model.num_experts));
  if (!model.disable_bias_linear)
    problems.about("num-experts", "disable-bias-linear")
        .wrong("--num-experts {} is not possible with biases: experts have none", *model.num_experts)
        .right("give --disable-bias-linear too");
  if (model.add_mlp_bias)
    problems.about("add-mlp-bias", "num-experts")
        .wrong("--add-mlp-bias is not possible with --num-experts: experts have no biases")
        .right("leave it out");
  if (model.moe_router_pre_softmax && model.moe_router_score_function == RouterScore::Sigmoid)
    problems.about("moe-router-pre-softmax", "moe-router-score-function")
        .wrong("--moe-router-pre-softmax has no effect with --moe-router-score-function sigmoid")
        .right("leave one of them out");
  if (model.moe_shared_expert_gate && !model.moe_shared_expert_intermediate_size)
    problems.about("moe-shared-expert-gate", "moe-shared-expert-intermediate-size")
        .wrong("--moe-shared-expert-gate has no effect")
        .right("it needs --moe-shared-expert-intermediate-size");
  if (!model.moe_expert_capacity_factor && model.moe_token_drop_policy != TokenDrop::Probs)
    problems.about("moe-token-drop-policy", "moe-expert-capacity-factor")
        .wrong("--moe-token-drop-policy position has no effect: no token is dropped")
        .right("it needs --moe-expert-capacity-factor");
  if (model.moe_router_load_balancing_type == RouterBalance::None && model.moe_aux_loss_coeff != 0)
    problems.about("moe-aux-loss-coeff", "moe-router-load-balancing-type")
        .wrong("--moe-aux-loss-coeff {} has no effect with --moe-router-load-balancing-type none",
               model.moe_aux_loss_coeff)
        .right("give seq_aux_loss, aux_loss or global_aux_loss, or leave the coefficient out");
  check_layer_pattern(model, problems);
  check_bias(model, problems);
  check_groups(model, problems);
}

// The softmax over one expert, or over one that was chosen, is 1, whatever the router says.
void check_router_training(const ModelConfig& model, Problems& problems) {
  if (!problems.sound({"num-experts", "moe-router-topk"}) || !model.num_experts) return;
  if (model.moe_router_topk != 1 || model.moe_router_score_function != RouterScore::Softmax) return;
  if (*model.num_experts == 1)
    problems.about("num-experts", "moe-router-topk", "moe-router-score-function")
        .wrong(
            "--num-experts 1 trains no router: the softmax over one expert is always 1 and has no gradient")
        .right(
            "give more experts, --moe-router-score-function sigmoid, or leave out --num-experts, so that one network "
            "computes all tokens");
  else if (!model.moe_router_pre_softmax)
    problems.about("moe-router-topk", "moe-router-pre-softmax", "moe-router-score-function")
        .wrong(
            "--moe-router-topk 1 trains no router: "
            "the softmax over one chosen expert is always 1 and has no gradient")
        .right("give --moe-router-pre-softmax, --moe-router-score-function sigmoid, or --moe-router-topk 2");
}

namespace {

// A rank routes rows that no other rank has.
void check_experts_of_samples(const PretrainConfig& config, Problems& problems) {
  const int64_t experts = *config.model.num_experts;
  const int tensor = config.mesh.tensor_model_parallel_size;
  if (problems.sound({"tensor-model-parallel-size"}) && tensor > 1 && !config.mesh.sequence_parallel)
    problems.about("num-experts", "tensor-model-parallel-size", "sequence-parallel")
        .wrong(
            "--num-experts {} with --tensor-model-parallel-size {}, but without --sequence-parallel: all "
            "tensor "
            "ranks would compute the experts of the same tokens",
            experts, tensor)
        .right("give --sequence-parallel too");
}

// Counts of tokens, by which biases move after a step, and which the loss of the next one needs.
void check_counts_of_steps(const PretrainConfig& config, Problems& problems) {
  if (!problems.sound({"schedule"})) return;
  const std::optional<Schedule> schedule = chosen_schedule(config.pipeline);
  if (!schedule || !is_async(*schedule)) return;
  if (config.model.moe_router_load_balancing_type == RouterBalance::GlobalAuxLoss)
    problems.about("moe-router-load-balancing-type", "schedule")
        .wrong(
            "--moe-router-load-balancing-type global_aux_loss is not possible with --schedule {}, whose global batches "
            "overlap: none has ended when the next begins",
            schedule_name(*schedule))
        .right("choose a synchronous schedule, or give seq_aux_loss");
  if (config.model.moe_router_enable_expert_bias)
    problems.about("moe-router-enable-expert-bias", "schedule")
        .wrong(
            "--moe-router-enable-expert-bias is not possible with --schedule {}, "
            "which updates weights inside the pipeline",
            schedule_name(*schedule))
        .right("choose a synchronous schedule, or balance with --moe-aux-loss-coeff instead");
}

// " on 2 tensor x 2 context ranks", that the tokens of a micro-batch are cut over.
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

// Rows, of which the products of experts have 32-bit numbers: those of a rank's own tokens, and those that can arrive
// on it in a round (nn/exchanged_rows.h).
void check_expert_rows(const PretrainConfig& config, Problems& problems) {
  constexpr int64_t kMost = (int64_t{1} << 31) - 1;
  const ModelConfig& model = config.model;
  if (!problems.sound({"micro-batch-size", "seq-length", "moe-router-topk", "tensor-model-parallel-size",
                       "context-parallel-size"}))
    return;
  const int64_t ranks = config.mesh.expert_ranks();
  const int64_t tensor = config.mesh.tensor_model_parallel_size;  // each of which has as many tokens
  const int64_t context = config.mesh.context_parallel_size;      // and of these too
  const int64_t choices =
      std::min(model.moe_router_topk, *model.num_experts / config.mesh.expert_model_parallel_size);
  int64_t tokens = 0, own = 0, arriving = 0;
  if (__builtin_mul_overflow(config.batch.micro_batch_size, model.seq_length, &tokens)) tokens = INT64_MAX;
  tokens /= tensor * context;
  if (__builtin_mul_overflow(tokens, model.moe_router_topk, &own)) own = INT64_MAX;
  if (__builtin_mul_overflow(tokens, ranks * choices, &arriving)) arriving = INT64_MAX;
  const std::optional<double> factor = config.mesh.moe_buffer_factor;
  const bool in_rounds = factor && problems.sound({"moe-buffer-factor"}) &&
                         *factor * config.mesh.expert_tensor_parallel_size * static_cast<double>(own) <=
                             static_cast<double>(kMost);
  if (own > kMost || (arriving > kMost && !in_rounds))
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
        .right("give a smaller --micro-batch-size{}", own > kMost ? ""
                                                      : factor    ? " or --moe-buffer-factor"
                                                                  : ", or --moe-buffer-factor");
}

std::string factors_of_stage(int64_t tensor, int64_t context, int64_t data) {
  if (tensor == 1 && context == 1) return "which are data-parallel";
  return fmt::format("tensor {}{} x data {}", tensor,
                     context > 1 ? fmt::format(" x context {}", context) : "", data);
}

// Both axes of experts: with one rank there is nothing to check, with several there must be experts.
void check_without_experts(const MeshConfig& mesh, Problems& problems) {
  const std::pair<const char*, int> sizes[] = {
      {"expert-model-parallel-size", mesh.expert_model_parallel_size},
      {"expert-tensor-parallel-size", mesh.expert_tensor_parallel_size}};
  for (const auto& [option, ranks] : sizes)
    if (ranks > 1)
      problems.about(option, "num-experts")
          .wrong("--{} {} has no effect", option, ranks)
          .right("it needs --num-experts");
}

void check_cut_of_experts(const PretrainConfig& config, Problems& problems) {
  const int ranks = config.mesh.expert_model_parallel_size, parts = config.mesh.expert_tensor_parallel_size;
  if (*config.model.num_experts % ranks != 0)
    problems.about("num-experts", "expert-model-parallel-size")
        .wrong("--num-experts {} is not divisible by --expert-model-parallel-size {}",
               *config.model.num_experts, ranks)
        .right("{}", multiples_around(*config.model.num_experts, ranks));
  const int64_t width = expert_width(config.model);
  if (problems.sound({"moe-ffn-hidden-size", "ffn-hidden-size", "hidden-size"}) && width % parts != 0)
    problems.about("moe-ffn-hidden-size", "ffn-hidden-size", "expert-tensor-parallel-size")
        .wrong("the width of the experts, {}, is not divisible by --expert-tensor-parallel-size {}", width,
               parts)
        .right("{}", multiples_around(width, parts));
}

// Processors pick rows by counts that they read.
void check_device_of_dispatch(const MeshConfig& mesh, Problems& problems) {
  if (mesh.device == ComputeDevice::Cuda && mesh.moe_token_dispatcher_type == TokenDispatcher::AllGather)
    problems.about("moe-token-dispatcher-type", "device")
        .wrong("--moe-token-dispatcher-type allgather is not possible with --device cuda yet")
        .right("give --device cpu, or --moe-token-dispatcher-type alltoall");
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

// The reason why no forward and backward can take turns; empty if there may be some that do.
std::string nothing_to_overlap(const PretrainConfig& config) {
  const MeshConfig& mesh = config.mesh;
  const auto schedule = chosen_schedule(config.pipeline);  // none: from a file, which may have pairs
  if (!config.model.num_experts || mesh.expert_ranks() == 1)
    return "has no effect where no rows travel between experts: "
           "give --expert-model-parallel-size 2 or more, or leave it out";
  if (schedule && mesh.pipeline_model_parallel_size == 1)
    return "has no effect with --pipeline-model-parallel-size 1: give more pipeline ranks, or leave it out";
  if (schedule && *schedule != Schedule::DualPipeV)
    return fmt::format(
        "has no effect with --schedule {}, which pairs no forward with a backward: "
        "give --schedule dualpipe-v, or leave it out",
        schedule_name(*schedule));
  if (config.zero.zero_stage == 3)
    return "is not possible with --zero-stage 3, which cuts forwards and backwards into blocks: give --zero-stage 2 "
           "or less, or leave it out";
  if (config.zero.zero_stage == 2 && config.zero.zero_reduce == ReducePolicy::Each)
    return "is not possible with --zero-reduce each, which cuts backwards into blocks: "
           "give --zero-reduce once, or leave it out";
  if (mesh.cpu_offloading_num_layers > 0)
    return "is not possible with --cpu-offloading-num-layers, which cuts forwards and backwards into blocks: "
           "leave out one of the two";
  return {};
}

void check_overlap_of_experts(const PretrainConfig& config, Problems& problems) {
  if (!config.mesh.overlap_moe_expert_parallel_comm) return;
  const std::string reason = nothing_to_overlap(config);
  if (reason.empty()) return;
  const size_t colon = reason.rfind(": ");
  problems
      .about("overlap-moe-expert-parallel-comm", "expert-model-parallel-size", "schedule",
             "pipeline-model-parallel-size", "zero-stage", "zero-reduce", "device", "num-experts",
             "cpu-offloading-num-layers")
      .wrong("--overlap-moe-expert-parallel-comm {}", reason.substr(0, colon))
      .right("{}", reason.substr(colon + 2));
}

}  // namespace

void check_experts_mesh(const PretrainConfig& config, Problems& problems) {
  if (!problems.sound({"num-experts", "expert-model-parallel-size", "expert-tensor-parallel-size"})) return;
  const MeshConfig& mesh = config.mesh;
  check_overlap_of_experts(config, problems);
  if (mesh.expert_ranks() == 1 && mesh.moe_buffer_factor && problems.sound({"moe-buffer-factor"}))
    problems.about("moe-buffer-factor", "expert-model-parallel-size", "expert-tensor-parallel-size")
        .wrong("--moe-buffer-factor {} has no effect with --expert-model-parallel-size 1",
               *mesh.moe_buffer_factor)
        .right("leave it out, because every rank computes the rows of its own tokens");
  if (mesh.expert_ranks() == 1 && mesh.moe_token_dispatcher_type != TokenDispatcher::AllToAll)
    problems.about("moe-token-dispatcher-type", "expert-model-parallel-size", "expert-tensor-parallel-size")
        .wrong("--moe-token-dispatcher-type allgather has no effect with --expert-model-parallel-size 1")
        .right("leave it out, because every rank computes the rows of its own tokens");
  if (!config.model.num_experts) return check_without_experts(mesh, problems);
  check_experts_of_samples(config, problems);
  check_counts_of_steps(config, problems);
  check_expert_rows(config, problems);
  if (mesh.expert_ranks() == 1) return;
  check_cut_of_experts(config, problems);
  check_device_of_dispatch(mesh, problems);
  check_fold_of_experts(mesh, problems);
}

}  // namespace trifold
