#include "config/subjects/attention.h"

#include <algorithm>
#include <utility>

#include "config/fields/layer_kinds.h"
#include "config/fields/layer_pattern.h"
#include "config/fields/number.h"
#include "config/options/bounds.h"
#include "config/subjects/model_family.h"
#include "core/error.h"
#include "core/function_ref.h"

namespace trifold {

namespace {

constexpr std::string_view kWidthsOfHeads =
    "leave it out, because every head has its own keys and values, of the widths "
    "--qk-head-dim, --qk-pos-emb-head-dim and --v-head-dim";

void add_latent_attention(OptionTable& table, ModelConfig& model) {
  table
      .add("multi-latent-attention", &model.multi_latent_attention,
           "Compute the keys and values of all heads from one short latent vector per token, "
           "as DeepSeek-V2 and V3 do.")
      .needs({"position-embedding-type", "rope"})
      .needs("disable-bias-linear", "because its projections have no biases");
  table.add("q-lora-rank", &model.q_lora_rank, "Latent attention: width of a latent vector for queries too.")
      .range(1, kMaxSize)
      .absent("queries have none")
      .only_with("multi-latent-attention");
  table
      .add("kv-lora-rank", &model.kv_lora_rank,
           "Latent attention: width of the latent vector of keys and values.")
      .range(1, kMaxSize)
      .only_with("multi-latent-attention");
  table
      .add("qk-head-dim", &model.qk_head_dim,
           "Latent attention: width of each head's queries and keys, without the part that rope rotates.")
      .range(1, kMaxSize)
      .only_with("multi-latent-attention");
  table
      .add("qk-pos-emb-head-dim", &model.qk_pos_emb_head_dim,
           "Latent attention: additional width that rope rotates; all heads share this part of the keys.")
      .range(2, kMaxSize)
      .only_with("multi-latent-attention");
  table.add("v-head-dim", &model.v_head_dim, "Latent attention: width of each head's values.")
      .range(1, kMaxSize)
      .only_with("multi-latent-attention");
}

void add_long_rope(OptionTable& table, ModelConfig& model) {
  table
      .add(
          "rope-short-factor", &model.rope_short_factor,
          "longrope: divisors of the frequencies of rope, one for each pair of channels, if --seq-length is at most "
          "--original-max-position-embeddings.")
      .takes("X ...")
      .only_with({"rope-type", "longrope"});
  table
      .add(
          "rope-long-factor", &model.rope_long_factor,
          "longrope: the same for a longer --seq-length. All sequences of a run have the divisors of its length.")
      .takes("X ...")
      .only_with({"rope-type", "longrope"});
}

}  // namespace

void add_attention(OptionTable& table, ModelConfig& model) {
  table.add("position-embedding-type", &model.position_embedding_type,
            "Position encoding: learned embeddings, rotary embeddings (rope), or none.");
  table
      .add("position-embedding-offset", &model.position_embedding_offset,
           "Rows of the table of learned positions before the first position's, which belong to no position "
           "(OPT and RoBERTa: 2).")
      .range(0, kMaxSize)
      .only_with({"position-embedding-type", "learned_absolute"});
  table.add("rotary-base", &model.rotary_base, "Base of the rotation angles of rope.")
      .range(1, 1e12)
      .only_with({"position-embedding-type", "rope"})
      .excludes({"rope-type", "yarn"}, "because all channels would rotate at the same rate",
                "give a larger one")
      .only_for("1");
  table.add("rotary-percent", &model.rotary_percent, "Fraction of each head's channels that rope rotates.")
      .only_with({"position-embedding-type", "rope"})
      .excludes({"rope-type", "yarn"}, {}, "leave it out")
      .excludes("multi-latent-attention", {}, kWidthsOfHeads)
      .bounds = {0, 1, true, false};
  table
      .add("use-rope-scaling", &model.use_rope_scaling,
           "Scale the frequencies of rope for more than 8192 positions, as Llama 3.1 does.")
      .only_with({"position-embedding-type", "rope"})
      .excludes("rotary-seq-len-interpolation-factor", "because each stretches rope in its own way",
                "give one of them")
      .excludes({"rope-type", "yarn|longrope"}, "because each stretches rope in its own way",
                "give one of them");
  table.add("rope-scaling-factor", &model.rope_scaling_factor, "Scaling factor of --use-rope-scaling.")
      .range(1, 1e6)
      .only_with("use-rope-scaling");
  table
      .add("rope-scaling-low-freq-factor", &model.rope_scaling_low_freq_factor,
           "--use-rope-scaling: channels that rotate less often than this within the original context are "
           "scaled by the full factor.")
      .only_with("use-rope-scaling")
      .bounds = {0, 1e6, true, false};
  table
      .add("rope-scaling-high-freq-factor", &model.rope_scaling_high_freq_factor,
           "--use-rope-scaling: channels that rotate more often than this within the original context keep "
           "their frequency.")
      .only_with("use-rope-scaling")
      .compares(Relation::Above, "rope-scaling-low-freq-factor")
      .bounds = {0, 1e6, true, false};
  table
      .add("rope-scaling-original-positions", &model.rope_scaling_original_positions,
           "--use-rope-scaling: context length of the original training.")
      .range(1, kMaxSize)
      .only_with("use-rope-scaling");
  table
      .add("rotary-seq-len-interpolation-factor", &model.rotary_seq_len_interpolation_factor,
           "Divide the positions of rope by this factor (linear position interpolation).")
      .range(1, 1e6)
      .only_with({"position-embedding-type", "rope"})
      .excludes({"rope-type", "yarn|longrope"}, "because each stretches rope in its own way",
                "give one of them");
  table
      .add("rope-type", &model.rope_type,
           "rope as it is, or scaled to longer sequences with YaRN or with LongRoPE.")
      .only_with({"position-embedding-type", "rope"});
  table
      .add("rotary-scaling-factor", &model.rotary_scaling_factor, "yarn, longrope: context extension factor.")
      .range(1, 1e6)
      .only_with({"rope-type", "yarn|longrope"});
  table
      .add("original-max-position-embeddings", &model.original_max_position_embeddings,
           "yarn, longrope: context length of the original training.")
      .range(1, kMaxSize)
      .only_with({"rope-type", "yarn|longrope"});
  add_long_rope(table, model);
  table
      .add(
          "beta-fast", &model.beta_fast,
          "yarn: channels that rotate more often than this within the original context keep their frequency.")
      .only_with({"rope-type", "yarn"})
      .compares(Relation::AtLeast, "beta-slow")
      .provided({"rope-type", "yarn"})
      .bounds = {0, 1e6, true, false};
  table
      .add("beta-slow", &model.beta_slow,
           "yarn: channels that rotate less often than this within the original context are interpolated by "
           "the full factor.")
      .only_with({"rope-type", "yarn"})
      .bounds = {0, 1e6, true, false};
  table.add("mscale", &model.mscale, "yarn: queries and keys are scaled by 1 + 0.1 x this x ln(factor).")
      .range(0, 1e3)
      .only_with({"rope-type", "yarn"})
      .no_effect_with("rotary-attention-factor");
  table
      .add("mscale-all-dim", &model.mscale_all_dim,
           "yarn: the same coefficient for the divisor of that scale.")
      .range(0, 1e3)
      .only_with({"rope-type", "yarn"});
  table
      .add("rotary-attention-factor", &model.rotary_attention_factor,
           "yarn, longrope: scale of queries and keys, which otherwise follows from other options.")
      .absent("from --mscale and --mscale-all-dim, or from --rotary-scaling-factor")
      .only_with({"rope-type", "yarn|longrope"})
      .bounds = {0, 1e3, true, false};
  table
      .add("rope-no-truncate", &model.rope_no_truncate,
           "yarn: do not round the bounds of --beta-fast and --beta-slow to whole channels.")
      .only_with({"rope-type", "yarn"});
  table
      .add("group-query-attention", &model.group_query_attention,
           "Grouped-query attention: query heads share --num-query-groups key and value heads.")
      .excludes("multi-latent-attention", {}, kWidthsOfHeads);
  table
      .add("num-query-groups", &model.num_query_groups,
           "Key and value heads; must divide --num-attention-heads.")
      .range(1, kMaxSize)
      .only_with("group-query-attention")
      .compares(Relation::Divides, "num-attention-heads")
      .provided("group-query-attention");
  table.add("kv-channels", &model.kv_channels, "Width of a head.")
      .range(1, kMaxSize)
      .absent("--hidden-size / --num-attention-heads")
      .excludes("multi-latent-attention", {}, kWidthsOfHeads);
  table
      .add("window-size", &model.window_size,
           "Attention sees only this many positions before and after a token (sliding window); -1: all.")
      .takes("LEFT,RIGHT")
      .absent("all positions");
  table
      .add(
          "window-attn-skip-freq", &model.window_attn_skip_freq,
          "Layers without the window of --window-size: every N-th, counted from 1; or a list of 1 (window) and 0 for "
          "all layers, such as [1,0]*12.")
      .takes("N|LIST")
      .absent("no layer")
      .only_with("window-size");
  table
      .add("softmax-type", &model.softmax_type,
           "learnable: a head's softmax has one more, learned logit, without a value (attention sink).")
      .excludes("multi-latent-attention")
      .only_for("learnable");
  table
      .add("attn-logit-softcapping", &model.attn_logit_softcapping,
           "Bound attention's scores smoothly: c x tanh(score / c).")
      .takes("C")
      .absent("no bound")
      .bounds = {0, 1e6, true, false};
  table
      .add("softmax-scale", &model.softmax_scale,
           "Factor of the products of queries and keys, before the softmax.")
      .takes("X")
      .absent("1 / square root of the width of keys")
      .bounds = {0, 1e6, true, false};
  table
      .add(
          "no-rope-freq", &model.no_rope_freq,
          "Layers in which rope rotates nothing: every N-th, counted from 1, or a list of 1 (nothing) and 0.")
      .takes("N|LIST")
      .absent("no layer")
      .only_with({"position-embedding-type", "rope"});
  table
      .add("window-rotary-base", &model.window_rotary_base,
           "Base of rope in layers with a window, whose frequencies are then not scaled.")
      .absent("--rotary-base")
      .only_with("window-size")
      .only_with({"position-embedding-type", "rope"})
      .range(1, 1e12);
  table.add("qk-layernorm", &model.qk_layernorm,
            "Normalize queries and keys per head; with --multi-latent-attention, the latent vectors.");
  table
      .add("qk-layernorm-across-heads", &model.qk_layernorm_across_heads,
           "Normalize the queries of all heads of a token as one row, and the keys, as in OLMo 2.")
      .only_with("qk-layernorm")
      .needs({"normalization", "RMSNorm"})
      .excludes("multi-latent-attention", "because it has no norms of heads", "leave it out");
  table
      .add("qk-layernorm-after-rope", &model.qk_layernorm_after_rope,
           "Normalize queries and keys after their rotation, not before, as in HunYuan.")
      .only_with("qk-layernorm")
      .only_with({"position-embedding-type", "rope"})
      .excludes("multi-latent-attention", "because it has no norms of heads", "leave it out");
  add_latent_attention(table, model);
}

namespace {

// `option` has the text of a pattern of layers, of which `find` returns the layers it chooses.
void check_pattern(const ModelConfig& model, const char* option, const std::string& text,
                   FunctionRef<std::vector<bool>()> find, std::string_view nothing, Problems& problems) {
  if (!problems.sound({"num-layers", option})) return;
  try {
    const std::vector<bool> layers = find();
    if (std::find(layers.begin(), layers.end(), true) == layers.end())
      problems.about(option).wrong("--{} {}: {}", option, text, nothing).right("leave it out, or change it");
  } catch (const Error& error) {
    problems.about(option, "num-layers")
        .wrong("--{} {}", option, error.what())
        .right("give a number, or a list of one 0 or 1 for each of the {} layers", model.num_layers);
  }
}

void check_layers_alike(const ModelConfig& model, Problems& problems) {
  const bool window = model.window_size && !model.window_size->covers_all();
  if (window && family_of_model(model).causal && model.window_size->right != 0)
    problems.about("window-size")
        .wrong("--window-size {} has later positions, which a model that predicts the next token cannot see",
               model.window_size->text())
        .right("give {},0", model.window_size->left);
  if (window && model.window_attn_skip_freq)
    check_pattern(
        model, "window-attn-skip-freq", *model.window_attn_skip_freq, [&] { return window_layers(model); },
        "no layer has a window", problems);
  if (model.no_rope_freq)
    check_pattern(
        model, "no-rope-freq", *model.no_rope_freq,
        [&] { return parse_layer_pattern(*model.no_rope_freq, model.num_layers, EveryNth::Last); },
        "all layers rotate", problems);
}

// Both lists of factors, because the length of the samples may change.
void check_long_rope(const ModelConfig& model, Problems& problems) {
  if (model.rope_type != RopeType::LongRope) return;
  const auto pairs = static_cast<size_t>(rotated_width(model) / 2);
  for (const auto& [option, factors] : {std::pair("rope-short-factor", &model.rope_short_factor),
                                        std::pair("rope-long-factor", &model.rope_long_factor)})
    if (factors->size() != pairs)
      problems.about(option, "rope-type")
          .wrong("--{} has {} numbers, but --rope-type longrope rotates {} pairs of channels in each head",
                 option, factors->size(), pairs)
          .right("give {} numbers", pairs);
  if (model.rotary_scaling_factor > 1 && model.original_max_position_embeddings < 2)
    problems.about("original-max-position-embeddings", "rope-type")
        .wrong("--original-max-position-embeddings {} is too short for --rope-type longrope",
               model.original_max_position_embeddings)
        .right("give at least 2");
}

}  // namespace

void check_attention(const ModelConfig& model, Problems& problems) {
  check_layers_alike(model, problems);
  const bool rope = model.position_embedding_type == PositionEmbedding::Rope;
  if (!rope || !problems.sound({"hidden-size", "num-attention-heads", "kv-channels", "rotary-percent",
                                "qk-head-dim", "qk-pos-emb-head-dim", "v-head-dim"}))
    return;
  const int64_t head = head_width(model);
  const int64_t turned = rotated_width(model);
  constexpr int64_t kMost = 1024;
  if (turned >= 2 && turned % 2 == 0 && turned <= kMost) return check_long_rope(model, problems);
  if (model.multi_latent_attention)
    problems.about("qk-pos-emb-head-dim")
        .wrong(
            "--qk-pos-emb-head-dim {} is not an even number from 2 to {}, but rope rotates pairs of channels",
            turned, kMost)
        .right("{}", turned > kMost ? "give a smaller one" : "give the next even number");
  else
    problems
        .about("position-embedding-type", "rotary-percent", "kv-channels", "hidden-size",
               "num-attention-heads")
        .wrong(
            "--position-embedding-type rope rotates pairs of channels, but {} of {} ({} of --rotary-percent) "
            "is not an even number from 2 to {}",
            turned, head, format_double(model.rotary_percent), kMost)
        .right("give another --kv-channels or --rotary-percent");
}

}  // namespace trifold
