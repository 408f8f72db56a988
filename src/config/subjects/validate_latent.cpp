// Rules of multi-head latent attention.
#include <utility>

#include "config/fields/number.h"
#include "config/subjects/validate_model.h"

namespace trifold {

namespace {

void check_no_latent(const ModelConfig& model, Problems& problems) {
  const ModelConfig defaults;
  const std::pair<const char*, bool> options[] = {
      {"q-lora-rank", model.q_lora_rank.has_value()},
      {"kv-lora-rank", model.kv_lora_rank != defaults.kv_lora_rank},
      {"qk-head-dim", model.qk_head_dim != defaults.qk_head_dim},
      {"qk-pos-emb-head-dim", model.qk_pos_emb_head_dim != defaults.qk_pos_emb_head_dim},
      {"v-head-dim", model.v_head_dim != defaults.v_head_dim},
      {"latent-norm-epsilon", model.latent_norm_epsilon.has_value()}};
  for (const auto& [option, changed] : options)
    if (changed && problems.sound({option}))
      problems.about(option, "multi-latent-attention")
          .wrong("--{} has no effect", option)
          .right("it needs --multi-latent-attention");
}

}  // namespace

void check_latent_attention(const ModelConfig& model, Problems& problems) {
  if (!model.multi_latent_attention) return check_no_latent(model, problems);
  const ModelConfig defaults;
  const std::pair<const char*, bool> unused[] = {
      {"kv-channels", model.kv_channels.has_value()},
      {"group-query-attention", model.group_query_attention},
      {"rotary-percent", model.rotary_percent != defaults.rotary_percent}};
  for (const auto& [option, given] : unused)
    if (given && problems.sound({option}))
      problems.about(option, "multi-latent-attention")
          .wrong("--{} is not possible with --multi-latent-attention", option)
          .right(
              "leave it out, because every head has its own keys and values, of the widths --qk-head-dim, "
              "--qk-pos-emb-head-dim and --v-head-dim");
  if (model.position_embedding_type != PositionEmbedding::Rope && problems.sound({"position-embedding-type"}))
    problems.about("position-embedding-type", "multi-latent-attention")
        .wrong("--position-embedding-type {} is not possible with --multi-latent-attention",
               name_of(model.position_embedding_type))
        .right("give --position-embedding-type rope");
  if (model.latent_norm_epsilon && !model.qk_layernorm)
    problems.about("latent-norm-epsilon", "qk-layernorm")
        .wrong("--latent-norm-epsilon has no effect without --qk-layernorm")
        .right("give both, or leave it out");
  const std::pair<const char*, bool> biases[] = {{"add-qkv-bias", model.add_qkv_bias},
                                                 {"add-attention-out-bias", model.add_attention_out_bias}};
  for (const auto& [option, given] : biases)
    if (given)
      problems.about(option, "multi-latent-attention")
          .wrong("--{} is not possible with --multi-latent-attention: its projections have no biases", option)
          .right("leave it out");
  if (!model.disable_bias_linear)
    problems.about("multi-latent-attention", "disable-bias-linear")
        .wrong("--multi-latent-attention is not possible with biases: its projections have none")
        .right("give --disable-bias-linear too");
}

}  // namespace trifold
