// Rules of upcycling: a mixture of experts computes what the dense model computed if the weights of a token's experts
// sum to 1, and nothing else is added.
#include <utility>

#include "config/subjects/validate_model.h"

namespace trifold {

void check_upcycling(const PretrainConfig& config, Problems& problems) {
  if (!config.checkpoint.moe_use_upcycling) return;
  const ModelConfig& model = config.model;
  const std::pair<const char*, bool> needed[] = {{"num-experts", !model.num_experts},
                                                 {"load", !config.checkpoint.load},
                                                 {"finetune", !config.checkpoint.finetune}};
  for (const auto& [option, missing] : needed)
    if (missing)
      problems.about("moe-use-upcycling", option)
          .wrong("--moe-use-upcycling has no effect without --{}", option)
          .right("give both, or neither");
  if (!model.num_experts) return;
  const std::pair<const char*, bool> changing[] = {
      {"moe-router-pre-softmax", model.moe_router_pre_softmax},
      {"moe-router-topk-scaling-factor", model.moe_router_topk_scaling_factor != 1},
      {"moe-shared-expert-intermediate-size", model.moe_shared_expert_intermediate_size.has_value()}};
  for (const auto& [option, given] : changing)
    if (given && problems.sound({option}))
      problems.about(option, "moe-use-upcycling")
          .wrong(
              "--{} is not possible with --moe-use-upcycling: "
              "copies would no longer compute what the network did",
              option)
          .right("leave it out");
  if (problems.sound({"hidden-size", "ffn-hidden-size", "moe-ffn-hidden-size"}) &&
      expert_width(model) != inner_width(model))
    problems.about("moe-ffn-hidden-size", "moe-use-upcycling", "ffn-hidden-size")
        .wrong(
            "--moe-ffn-hidden-size {} is not possible with --moe-use-upcycling: the network that is copied "
            "has a width of {}",
            expert_width(model), inner_width(model))
        .right("leave it out");
}

}  // namespace trifold
