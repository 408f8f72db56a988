#include "config/subjects/validate_model.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "config/fields/number.h"
#include "config/fields/pipeline_choice.h"
#include "config/options/problems.h"
#include "config/subjects/model_family.h"
#include "config/subjects/validate_data.h"

namespace trifold {

namespace {

void check_heads(const ModelConfig& model, Problems& problems) {
  if (!model.kv_channels && !model.multi_latent_attention &&
      problems.sound({"hidden-size", "num-attention-heads"}) &&
      model.hidden_size % model.num_attention_heads != 0)
    problems.about("hidden-size", "num-attention-heads")
        .wrong("--hidden-size {} is not divisible by --num-attention-heads {}", model.hidden_size,
               model.num_attention_heads)
        .right("{}", multiples_around(model.hidden_size, model.num_attention_heads));
  if (!problems.sound({"num-attention-heads", "num-query-groups"})) return;
  if (!model.group_query_attention && model.num_query_groups != ModelConfig().num_query_groups)
    problems.about("num-query-groups", "group-query-attention")
        .wrong("--num-query-groups {} has no effect", model.num_query_groups)
        .right("it needs --group-query-attention");
  else if (model.group_query_attention && model.num_attention_heads % model.num_query_groups != 0)
    problems.about("num-query-groups", "num-attention-heads")
        .wrong("--num-query-groups {} does not divide --num-attention-heads {}", model.num_query_groups,
               model.num_attention_heads)
        .right("give a divisor of it, so that all groups have the same number of heads");
}

void check_yarn(const ModelConfig& model, Problems& problems) {
  const ModelConfig defaults;
  const bool yarn = model.rope_type == RopeType::Yarn;
  const std::pair<const char*, bool> options[] = {
      {"rotary-scaling-factor", model.rotary_scaling_factor != defaults.rotary_scaling_factor},
      {"original-max-position-embeddings",
       model.original_max_position_embeddings != defaults.original_max_position_embeddings},
      {"beta-fast", model.beta_fast != defaults.beta_fast},
      {"beta-slow", model.beta_slow != defaults.beta_slow},
      {"mscale", model.mscale != defaults.mscale},
      {"mscale-all-dim", model.mscale_all_dim != defaults.mscale_all_dim},
      {"rotary-attention-factor", model.rotary_attention_factor.has_value()},
      {"rope-no-truncate", model.rope_no_truncate}};
  for (const auto& [option, changed] : options)
    if (changed && !yarn && problems.sound({option}))
      problems.about(option, "rope-type")
          .wrong("--{} has no effect", option)
          .right("it needs --rope-type yarn");
  if (!yarn) return;
  if (model.rotary_attention_factor && model.mscale != defaults.mscale && problems.sound({"mscale"}))
    problems.about("mscale", "rotary-attention-factor")
        .wrong("--mscale has no effect with --rotary-attention-factor")
        .right("leave one of them out");
  if (problems.sound({"beta-fast", "beta-slow"}) && model.beta_fast <= model.beta_slow)
    problems.about("beta-fast", "beta-slow")
        .wrong("--beta-fast {} is not above --beta-slow {}", format_double(model.beta_fast),
               format_double(model.beta_slow))
        .right("--beta-fast must be the larger of the two");
  if (problems.sound({"rotary-percent"}) && model.rotary_percent != 1)
    problems.about("rotary-percent", "rope-type")
        .wrong("--rotary-percent {} is not possible with --rope-type yarn",
               format_double(model.rotary_percent))
        .right("leave it out");
  if (problems.sound({"rotary-base"}) && model.rotary_base == 1)
    problems.about("rotary-base", "rope-type")
        .wrong(
            "--rotary-base 1 is not possible with --rope-type yarn, "
            "because all channels would rotate at the same rate")
        .right("give a larger one");
}

// The scaling of Llama 3.1.
void check_llama_scaling(const ModelConfig& model, Problems& problems) {
  const ModelConfig defaults;
  struct Number {
    const char* option;
    double value, standard;
  };
  const Number numbers[] = {
      {"rope-scaling-factor", model.rope_scaling_factor, defaults.rope_scaling_factor},
      {"rope-scaling-low-freq-factor", model.rope_scaling_low_freq_factor,
       defaults.rope_scaling_low_freq_factor},
      {"rope-scaling-high-freq-factor", model.rope_scaling_high_freq_factor,
       defaults.rope_scaling_high_freq_factor},
      {"rope-scaling-original-positions", static_cast<double>(model.rope_scaling_original_positions),
       static_cast<double>(defaults.rope_scaling_original_positions)}};
  for (const auto& [option, value, standard] : numbers)
    if (value != standard && !model.use_rope_scaling && problems.sound({option}))
      problems.about(option, "use-rope-scaling")
          .wrong("--{} {} has no effect", option, format_double(value))
          .right("it needs --use-rope-scaling");
  if (problems.sound({"rope-scaling-low-freq-factor", "rope-scaling-high-freq-factor"}) &&
      model.rope_scaling_high_freq_factor <= model.rope_scaling_low_freq_factor)
    problems.about("rope-scaling-low-freq-factor", "rope-scaling-high-freq-factor")
        .wrong("--rope-scaling-high-freq-factor {} is not above --rope-scaling-low-freq-factor {}",
               format_double(model.rope_scaling_high_freq_factor),
               format_double(model.rope_scaling_low_freq_factor))
        .right("--rope-scaling-high-freq-factor must be the larger of the two");
}

void check_rope(const ModelConfig& model, Problems& problems) {
  const ModelConfig defaults;
  const bool yarn = model.rope_type == RopeType::Yarn;
  const bool interpolates = model.rotary_seq_len_interpolation_factor != 1;
  const bool rope = model.position_embedding_type == PositionEmbedding::Rope;
  const std::pair<const char*, bool> options[] = {
      {"rotary-base", model.rotary_base != defaults.rotary_base},
      {"rotary-percent", model.rotary_percent != defaults.rotary_percent},
      {"use-rope-scaling", model.use_rope_scaling},
      {"rotary-seq-len-interpolation-factor", interpolates},
      {"rope-type", yarn}};
  for (const auto& [option, changed] : options)
    if (changed && !rope && problems.sound({option, "position-embedding-type"}))
      problems.about(option, "position-embedding-type")
          .wrong("--{} has no effect", option)
          .right("it needs --position-embedding-type rope");
  check_llama_scaling(model, problems);
  check_yarn(model, problems);
  if (int{model.use_rope_scaling} + int{interpolates} + int{yarn} > 1)
    problems.about("use-rope-scaling", "rotary-seq-len-interpolation-factor", "rope-type")
        .wrong(
            "--use-rope-scaling, --rotary-seq-len-interpolation-factor "
            "and --rope-type yarn exclude each other")
        .right("give one of them: each stretches rope in its own way");
  if (!rope || !problems.sound({"hidden-size", "num-attention-heads", "kv-channels", "rotary-percent",
                                "qk-head-dim", "qk-pos-emb-head-dim", "v-head-dim"}))
    return;
  const int64_t head = head_width(model);
  const int64_t turned = rotated_width(model);
  constexpr int64_t kMost = 1024;
  if (turned >= 2 && turned % 2 == 0 && turned <= kMost) return;
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

void check_activation(const ModelConfig& model, Problems& problems) {
  const std::pair<const char*, bool> biases[] = {{"add-qkv-bias", model.add_qkv_bias},
                                                 {"add-attention-out-bias", model.add_attention_out_bias},
                                                 {"add-mlp-bias", model.add_mlp_bias}};
  for (const auto& [option, given] : biases)
    if (given && !model.disable_bias_linear)
      problems.about(option, "disable-bias-linear")
          .wrong("--{} has no effect without --disable-bias-linear: all linear layers have biases", option)
          .right("give both, or leave it out");
  if (model.swiglu && model.gelu != ModelConfig().gelu && problems.sound({"gelu"}))
    problems.about("gelu", "swiglu")
        .wrong("--gelu {} has no effect with --swiglu", name_of(model.gelu))
        .right("leave one of them out");
}

}  // namespace

void check_model(const ModelConfig& model, Problems& problems) {
  check_heads(model, problems);
  if (problems.sound({"model-type"})) family_of_model(model).check_model(model, problems);
  check_activation(model, problems);
  check_experts(model, problems);
  check_latent_attention(model, problems);
  check_rope(model, problems);
  const bool lengths = problems.sound({"seq-length", "max-position-embeddings"});
  if (lengths && model.seq_length > model.max_position_embeddings.value_or(model.seq_length))
    problems.about("seq-length", "max-position-embeddings")
        .wrong("--seq-length {} is more than --max-position-embeddings {}", model.seq_length,
               *model.max_position_embeddings)
        .right("give at most {} or at least {}", *model.max_position_embeddings, model.seq_length);
}

void check_task_head(const PretrainConfig& config, Problems& problems) {
  if (!has_task_head(config.model) || !problems.sound({"schedule"})) return;
  const std::optional<Schedule> schedule = chosen_schedule(config.pipeline);
  if (schedule && is_async(*schedule))
    problems.about("schedule")
        .wrong("--schedule {} does not train a task", schedule_name(*schedule))
        .right("give a synchronous schedule, such as 1f1b");
}

void check_precision(const PrecisionConfig& precision, Problems& problems) {
  std::vector<std::string> given;
  if (precision.bf16) given.emplace_back("bf16");
  if (precision.fp16) given.emplace_back("fp16");
  if (precision.f64) given.emplace_back("f64");
  if (given.size() > 1)
    problems.about(given)
        .wrong("--{} exclude each other", fmt::join(given, " and --"))
        .right("give one of them, or none for f32");
  if (precision.loss_scale && !precision.bf16 && !precision.fp16)
    problems.about("loss-scale", "fp16", "bf16")
        .wrong("--loss-scale {} has no effect", format_double(*precision.loss_scale))
        .right("it needs --fp16 (or --bf16)");
  if (precision.grad_reduce_in_bf16 && precision.f64)
    problems.about("grad-reduce-in-bf16", "f64")
        .wrong(
            "--grad-reduce-in-bf16 is not possible with --f64, because f64 is for numerical checks, which "
            "rounding to bf16 would defeat")
        .right("give one of them");
  const PrecisionConfig defaults;
  const std::pair<const char*, bool> searched[] = {
      {"initial-loss-scale", precision.initial_loss_scale != defaults.initial_loss_scale},
      {"min-loss-scale", precision.min_loss_scale != defaults.min_loss_scale},
      {"loss-scale-window", precision.loss_scale_window != defaults.loss_scale_window},
      {"hysteresis", precision.hysteresis != defaults.hysteresis}};
  for (const auto& [option, changed] : searched)
    if (changed && (!precision.fp16 || precision.loss_scale))
      problems.about(option, "fp16", "loss-scale")
          .wrong("--{} has no effect", option)
          .right("it needs --fp16 without --loss-scale");
  if (problems.sound({"initial-loss-scale", "min-loss-scale"}) &&
      precision.initial_loss_scale < precision.min_loss_scale)
    problems.about("initial-loss-scale", "min-loss-scale")
        .wrong("--initial-loss-scale {} is less than --min-loss-scale {}",
               format_double(precision.initial_loss_scale), format_double(precision.min_loss_scale))
        .right("give at least as much");
}

std::optional<std::string> given_option_of_documents(const DataConfig& data) {
  if (data.eod_mask_loss) return "eod-mask-loss";
  if (data.reset_attention_mask) return "reset-attention-mask";
  if (data.reset_position_ids) return "reset-position-ids";
  return std::nullopt;
}

std::optional<std::string> given_option_of_pairs(const DataConfig& data) {
  const DataConfig defaults;
  if (data.mask_prob != defaults.mask_prob) return "mask-prob";
  if (data.short_seq_prob != defaults.short_seq_prob) return "short-seq-prob";
  if (data.whole_word_masking) return "whole-word-masking";
  if (data.split_sentences) return "split-sentences";
  return std::nullopt;
}

}  // namespace trifold
