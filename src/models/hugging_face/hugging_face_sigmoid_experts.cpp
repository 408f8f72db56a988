// Experts that are chosen by sigmoids with a selection bias, in groups, after some dense layers: DeepSeek-V3 and GLM-4.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/read_json.h"
#include "models/hugging_face/hugging_face_family.h"

namespace trifold {

namespace {

using nlohmann::json;

// transformers scores a group by this many of its best experts.
constexpr int64_t kScoredExperts = 2;

int64_t dense_layers(const ModelConfig& model) { return model.num_layers - count_expert_layers(model); }

// Dense layers come first.
bool dense_first(const ModelConfig& model) {
  const std::vector<bool> experts = expert_layers(model);
  return std::is_sorted(experts.begin(), experts.end());
}

bool groups_as_theirs(int64_t groups, int64_t chosen_groups, int64_t choices) {
  return groups == 1 || choices == kScoredExperts * chosen_groups;
}

void read_expert_groups(ConfigReader& from, ModelConfig& model) {
  const int64_t groups = from.size("n_group"), chosen = from.size("topk_group");
  if (groups < 1 || *model.num_experts % groups != 0)
    return from.problem(fmt::format("'n_group' is {}; a divisor of 'n_routed_experts', {}, is needed", groups,
                                    *model.num_experts));
  if (chosen < 1 || chosen > groups)
    return from.problem(
        fmt::format("'topk_group' is {}; a number from 1 to 'n_group', {}, is needed", chosen, groups));
  if (groups == 1) return;
  model.moe_router_num_groups = groups;
  model.moe_router_group_topk = chosen;
  if (!groups_as_theirs(groups, chosen, model.moe_router_topk))
    from.problem(
        fmt::format("'num_experts_per_tok' is {} with 'topk_group' {}; only twice 'topk_group' is supported, "
                    "because groups are scored by their two best experts",
                    model.moe_router_topk, chosen));
}

}  // namespace

void read_sigmoid_experts(ConfigReader& from, ModelConfig& model) {
  const char* const experts = "n_routed_experts";
  model.num_experts = from.size(experts);
  constexpr int64_t kMostNetworks = 1 << 20;  // each has its own tensors
  constexpr int64_t kMostLayers = 1 << 16;
  if (model.num_layers > kMostLayers ||
      *model.num_experts > kMostNetworks / std::max<int64_t>(1, model.num_layers))
    return from.problem(fmt::format("'{}' is {}: over {} layers that makes more than {} experts",
                                    from.name_of(experts), *model.num_experts, model.num_layers,
                                    kMostNetworks));
  model.moe_router_topk = read_choices(from, experts, *model.num_experts);
  model.moe_ffn_hidden_size = from.size("moe_intermediate_size");
  const int64_t shared = from.size("n_shared_experts");
  if (shared > 0) model.moe_shared_expert_intermediate_size = shared * *model.moe_ffn_hidden_size;
  if (shared == 0 || shared > *model.num_experts + 1024)
    from.problem(fmt::format("'n_shared_experts' is {}; from 1 to {} are supported", shared,
                             *model.num_experts + 1024));
  model.moe_router_score_function = RouterScore::Sigmoid;
  model.moe_router_enable_expert_bias = true;
  model.moe_router_topk_scaling_factor = from.number("routed_scaling_factor");
  const int64_t dense = from.size("first_k_dense_replace");
  if (dense >= model.num_layers)
    from.problem(fmt::format("'first_k_dense_replace' is {}; fewer than the {} layers are supported", dense,
                             model.num_layers));
  else if (dense > 0)
    model.moe_layer_freq = fmt::format("[0]*{}+[1]*{}", dense, model.num_layers - dense);
  read_expert_groups(from, model);
  read_modules(from, model);
  // With one choice, Trifold does not divide the weight by the sum.
  if (from.flag("norm_topk_prob") != (model.moe_router_topk > 1))
    from.problem(fmt::format("'norm_topk_prob' is {} with {} experts per token; only {} is supported",
                             printable_json(from.value("norm_topk_prob")), model.moe_router_topk,
                             model.moe_router_topk > 1));
  if (!from.knows("aux_loss_alpha")) return;
  model.moe_aux_loss_coeff = from.number("aux_loss_alpha");
  if (!from.flag("seq_aux") && model.moe_aux_loss_coeff > 0)
    model.moe_router_load_balancing_type = RouterBalance::AuxLoss;
}

void write_sigmoid_experts(json& config, const ModelConfig& model) {
  config["n_routed_experts"] = *model.num_experts;
  config["num_experts_per_tok"] = model.moe_router_topk;
  config["moe_intermediate_size"] = expert_width(model);
  config["n_shared_experts"] = *model.moe_shared_expert_intermediate_size / expert_width(model);
  config["routed_scaling_factor"] = model.moe_router_topk_scaling_factor;
  config["first_k_dense_replace"] = dense_layers(model);
  config["n_group"] = model.moe_router_num_groups.value_or(1);
  config["topk_group"] = model.moe_router_group_topk.value_or(1);
  config["norm_topk_prob"] = model.moe_router_topk > 1;
  write_modules(config, model);
}

std::vector<std::string> sigmoid_experts_miss(const ModelConfig& model, std::vector<std::string> missing) {
  if (!model.num_experts) {
    missing.emplace_back("--num-experts");
    return missing;
  }
  const int64_t shared = model.moe_shared_expert_intermediate_size.value_or(0);
  return not_met(
      {{model.moe_router_score_function == RouterScore::Sigmoid, "--moe-router-score-function sigmoid"},
       {model.moe_router_enable_expert_bias, "--moe-router-enable-expert-bias"},
       {shared > 0 && shared % expert_width(model) == 0,
        "a --moe-shared-expert-intermediate-size that is a multiple of --moe-ffn-hidden-size"},
       {dense_first(model), "a --moe-layer-freq of dense layers, then layers with experts"},
       {groups_as_theirs(model.moe_router_num_groups.value_or(1), model.moe_router_group_topk.value_or(1),
                         model.moe_router_topk),
        "a --moe-router-topk of twice --moe-router-group-topk"}},
      std::move(missing));
}

std::vector<TensorNames::Entry> sigmoid_expert_names() {
  return {
      {"mlp.router.weight", {"mlp.gate.weight"}},
      {"mlp.router.bias", {"mlp.gate.e_score_correction_bias"}},
      gated_experts(true),
      gated_experts(false),
      {"mlp.shared.up.weight", {"mlp.shared_experts.gate_proj.weight", "mlp.shared_experts.up_proj.weight"}},
      {"mlp.shared.down.weight", {"mlp.shared_experts.down_proj.weight"}}};
}

}  // namespace trifold
