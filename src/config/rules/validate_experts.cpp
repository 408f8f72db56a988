// Checks of the options of a mixture of experts.
#include <utility>

#include "config/fields/number.h"
#include "config/rules/validate_model.h"

namespace trifold {

namespace {

void check_no_experts(const ModelConfig& model, Problems& problems) {
  const ModelConfig defaults;
  const std::pair<const char*, bool> options[] = {
      {"moe-ffn-hidden-size", model.moe_ffn_hidden_size.has_value()},
      {"moe-shared-expert-intermediate-size", model.moe_shared_expert_intermediate_size.has_value()},
      {"moe-router-topk", model.moe_router_topk != defaults.moe_router_topk},
      {"moe-router-score-function", model.moe_router_score_function != defaults.moe_router_score_function},
      {"moe-router-pre-softmax", model.moe_router_pre_softmax},
      {"moe-router-topk-scaling-factor", model.moe_router_topk_scaling_factor != 1},
      {"moe-aux-loss-coeff", model.moe_aux_loss_coeff != 0},
      {"moe-z-loss-coeff", model.moe_z_loss_coeff != 0}};
  for (const auto& [option, changed] : options)
    if (changed && problems.sound({option}))
      problems.about(option, "num-experts")
          .wrong("--{} has no effect", option)
          .right("it needs --num-experts");
}

}  // namespace

void check_experts(const ModelConfig& model, Problems& problems) {
  if (!problems.sound({"num-experts"})) return;
  if (!model.num_experts) return check_no_experts(model, problems);
  if (problems.sound({"moe-router-topk"}) && model.moe_router_topk > *model.num_experts)
    problems.about("moe-router-topk", "num-experts")
        .wrong("--moe-router-topk {} is more than --num-experts {}", model.moe_router_topk,
               *model.num_experts)
        .right("give at most {}", *model.num_experts);
  if (!model.disable_bias_linear)
    problems.about("num-experts", "disable-bias-linear")
        .wrong("--num-experts {} is not possible with biases: experts have none", *model.num_experts)
        .right("give --disable-bias-linear too");
  if (model.moe_router_pre_softmax && model.moe_router_score_function == RouterScore::Sigmoid)
    problems.about("moe-router-pre-softmax", "moe-router-score-function")
        .wrong("--moe-router-pre-softmax has no effect with --moe-router-score-function sigmoid")
        .right("leave one of them out");
}

// Of one chosen expert the softmax over the chosen is 1, whatever the router says.
void check_router_training(const ModelConfig& model, Problems& problems) {
  if (!problems.sound({"num-experts", "moe-router-topk"}) || !model.num_experts) return;
  if (model.moe_router_topk == 1 && model.moe_router_score_function == RouterScore::Softmax &&
      !model.moe_router_pre_softmax)
    problems.about("moe-router-topk", "moe-router-pre-softmax", "moe-router-score-function")
        .wrong(
            "--moe-router-topk 1 trains no router: the softmax over one chosen expert is always 1 and has no "
            "gradient")
        .right("give --moe-router-pre-softmax, --moe-router-score-function sigmoid, or --moe-router-topk 2");
}

}  // namespace trifold
