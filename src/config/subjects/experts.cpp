#include "config/subjects/experts.h"

#include "config/fields/number.h"
#include "config/fields/pipeline_choice.h"
#include "config/options/bounds.h"
#include "config/subjects/mesh.h"
#include "core/error.h"

namespace trifold {

namespace {

constexpr int64_t kMostExpertGroups = 64;

}  // namespace

void add_experts(OptionTable& table, ModelConfig& model) {
  table
      .add("num-experts", &model.num_experts,
           "Mixture of experts: feed-forward networks per block, "
           "of which a router selects --moe-router-topk for each token.")
      .range(1, 1 << 16)
      .absent("one network for all tokens")
      .needs("sequence-parallel",
             "because without it all tensor ranks would compute the experts of the same tokens",
             "give --sequence-parallel too")
      .provided({"tensor-model-parallel-size", AtLeast{2}})
      .compares(Relation::MultipleOf, "moe-router-num-groups")
      .compares(Relation::MultipleOf, "expert-model-parallel-size");
  table
      .add("moe-layer-freq", &model.moe_layer_freq,
           "Layers with experts: every N-th from the first on, or a list of 0 and 1 for all layers, such as "
           "[0]*3+[1]*58; the others have one network of --ffn-hidden-size.")
      .takes("N|LIST")
      .only_with("num-experts");
  table.add("moe-router-topk", &model.moe_router_topk, "Experts per token.")
      .range(1, 1 << 16)
      .only_with("num-experts")
      .compares(Relation::AtMost, "num-experts")
      .unless({"num-experts", "1"})
      .compares(Relation::MultipleOf, "moe-router-group-topk")
      .provided("num-experts");
  table.add("moe-ffn-hidden-size", &model.moe_ffn_hidden_size, "Inner width of each expert.")
      .range(1, kMaxSize)
      .absent("--ffn-hidden-size")
      .only_with("num-experts");
  table
      .add("moe-shared-expert-intermediate-size", &model.moe_shared_expert_intermediate_size,
           "Inner width of a shared expert, which processes every token.")
      .range(1, kMaxSize)
      .absent("none")
      .only_with("num-experts")
      .excludes("moe-use-upcycling", "because copies would no longer compute what the network did",
                "leave it out");
  table
      .add(
          "moe-shared-expert-gate", &model.moe_shared_expert_gate,
          "Scale the shared expert's output for a token by a logistic function of the token, as in Qwen2-MoE.")
      .only_with("num-experts")
      .only_with("moe-shared-expert-intermediate-size");
  table
      .add("moe-router-score-function", &model.moe_router_score_function,
           "Weights of the selected experts: their softmax, or their sigmoids normalized to a sum of 1.")
      .only_with("num-experts");
  table
      .add(
          "moe-router-pre-softmax", &model.moe_router_pre_softmax,
          "Apply the softmax to all experts instead of the selected ones; the weights then sum to less than 1.")
      .only_with("num-experts")
      .no_effect_with({"moe-router-score-function", "sigmoid"})
      .excludes("moe-use-upcycling", "because copies would no longer compute what the network did",
                "leave it out");
  table
      .add("moe-router-topk-scaling-factor", &model.moe_router_topk_scaling_factor,
           "Factor of the weights of the selected experts.")
      .positive()
      .only_with("num-experts")
      .excludes("moe-use-upcycling", "because copies would no longer compute what the network did",
                "leave it out");
  table
      .add("moe-router-num-groups", &model.moe_router_num_groups,
           "Groups of experts: a token selects experts only in its --moe-router-group-topk best groups.")
      .range(1, kMostExpertGroups)
      .absent("one group")
      .only_with("num-experts")
      .only_with("moe-router-group-topk");
  table
      .add("moe-router-group-topk", &model.moe_router_group_topk,
           "Groups per token: those with the largest sum of their --moe-router-topk / "
           "--moe-router-group-topk best scores.")
      .range(1, kMostExpertGroups)
      .absent("one group")
      .only_with("num-experts")
      .only_with("moe-router-num-groups")
      .compares(Relation::AtMost, "moe-router-num-groups");
  table
      .add(
          "moe-router-enable-expert-bias", &model.moe_router_enable_expert_bias,
          "Balance the load without a loss: a bias per expert is added to its score, for the selection only.")
      .only_with("num-experts")
      .needs({"moe-router-score-function", "sigmoid"},
             "because logits have no scale with which a bias is comparable")
      .excludes({"schedule", kAsynchronousSchedules}, "which updates weights inside the pipeline",
                "choose a synchronous schedule, or balance with --moe-aux-loss-coeff instead");
  table
      .add("moe-router-bias-update-rate", &model.moe_router_bias_update_rate,
           "After each step the bias of an expert rises by this if it had fewer tokens than the mean, "
           "and falls if it had more.")
      .range(0, 1)
      .only_with("num-experts")
      .only_with("moe-router-enable-expert-bias");
  table
      .add(
          "moe-router-load-balancing-type", &model.moe_router_load_balancing_type,
          "Samples over which the load-balancing loss counts the tokens of each expert: a sequence, a micro-batch, "
          "or the previous global batch. The first and the last depend on neither mesh nor micro-batch size.")
      .only_with("num-experts")
      .excludes({"schedule", kAsynchronousSchedules},
                "whose global batches overlap: none has ended when the next begins",
                "choose a synchronous schedule, or give seq_aux_loss")
      .only_for("global_aux_loss");
  table
      .add("moe-aux-loss-coeff", &model.moe_aux_loss_coeff,
           "Coefficient of the load-balancing loss; 0.01 is common.")
      .range(0, 1e6)
      .only_with("num-experts")
      .no_effect_with({"moe-router-load-balancing-type", "none"}, {},
                      "give seq_aux_loss, aux_loss or global_aux_loss, or leave the coefficient out");
  table
      .add("moe-z-loss-coeff", &model.moe_z_loss_coeff,
           "Coefficient of the router z-loss, which penalizes large logits; 0.001 is common.")
      .range(0, 1e6)
      .only_with("num-experts");
  table
      .add("moe-input-jitter-eps", &model.moe_input_jitter_eps,
           "In training, multiply the router's input by random numbers "
           "between 1 - EPS and 1 + EPS; 0.01 is common.")
      .takes("EPS")
      .range(0, 1)
      .only_with("num-experts");
  table
      .add("moe-router-force-load-balancing", &model.moe_router_force_load_balancing,
           "For benchmarks: in training, random logits in place of the router's, "
           "so that all experts are loaded evenly.")
      .only_with("num-experts");
  table
      .add(
          "moe-expert-capacity-factor", &model.moe_expert_capacity_factor,
          "In training, an expert takes from each sequence at most this many times the mean number of tokens "
          "per expert; further choices are dropped.")
      .positive()
      .absent("no token is dropped")
      .only_with("num-experts");
  table
      .add("moe-token-drop-policy", &model.moe_token_drop_policy,
           "Tokens that a full expert keeps: those with the largest weights, or the first of the sequence.")
      .only_with("num-experts")
      .only_with("moe-expert-capacity-factor", "because no token is dropped");
}

// A mixture of experts computes the same function as the dense model only if the weights of a token's experts sum to 1
// and nothing else is added.
void add_upcycling(OptionTable& table, CheckpointConfig& checkpoint) {
  table
      .add("moe-use-upcycling", &checkpoint.moe_use_upcycling,
           "With --finetune: --load is a model without experts; every expert begins as a copy of its "
           "feed-forward network, so that the function stays the same.")
      .of_execution()
      .needs("num-experts")
      .needs("load")
      .needs("finetune");
}

namespace {

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

void check_experts_of_groups(const ModelConfig& model, Problems& problems) {
  const auto& groups = model.moe_router_num_groups;
  const auto& chosen = model.moe_router_group_topk;
  if (!groups || !chosen || *chosen > *groups || *model.num_experts % *groups != 0 ||
      model.moe_router_topk % *chosen != 0 ||
      !problems.sound({"moe-router-num-groups", "moe-router-group-topk", "moe-router-topk"}))
    return;
  const int64_t experts = *chosen * (*model.num_experts / *groups);
  if (model.moe_router_topk > experts)
    problems.about("moe-router-topk", "moe-router-group-topk", "moe-router-num-groups", "num-experts")
        .wrong("--moe-router-topk {} is more than the {} experts of --moe-router-group-topk {} groups",
               model.moe_router_topk, experts, *chosen)
        .right("give more groups or fewer experts per token");
}

}  // namespace

void check_experts(const ModelConfig& model, Problems& problems) {
  if (!problems.sound({"num-experts"}) || !model.num_experts) return;
  if (*model.num_experts == 1 && problems.sound({"moe-router-topk"}) && model.moe_router_topk > 1)
    problems.about("moe-router-topk", "num-experts")
        .wrong("--moe-router-topk {} is more than --num-experts 1", model.moe_router_topk)
        .right("give more experts, or leave out --num-experts, so that one network computes all tokens");
  check_layer_pattern(model, problems);
  check_experts_of_groups(model, problems);
}

// The softmax over a single expert, or over the single chosen one, is 1 for any logits, so the router would not learn.
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

// An expert is a copy of the dense model's network, so it has its width.
void check_upcycling(const PretrainConfig& config, Problems& problems) {
  const ModelConfig& model = config.model;
  if (!config.checkpoint.moe_use_upcycling || !model.num_experts) return;
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
