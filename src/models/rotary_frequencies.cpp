#include "models/rotary_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trifold {

namespace {

// Radians per position with the scaling of Llama 3.1.
double stretched_by_turns(const ModelConfig& config, double radians) {
  const auto positions = static_cast<double>(config.rope_scaling_original_positions);
  const double slow = config.rope_scaling_low_freq_factor, fast = config.rope_scaling_high_freq_factor;
  const double turns = positions * radians / (2 * std::numbers::pi);
  const double unscaled = std::clamp((turns - slow) / (fast - slow), 0.0, 1.0);
  return radians * (unscaled + (1 - unscaled) / config.rope_scaling_factor);
}

// YaRN's weight of the unscaled frequency for each of `pairs` pairs, from 0 (scaled) to 1 (unchanged).
class YarnBlend {
 public:
  YarnBlend(const ModelConfig& config, int64_t pairs)
      : begin_(pair_that_turns(config, pairs, config.beta_fast)),
        end_(pair_that_turns(config, pairs, config.beta_slow)) {
    if (!config.rope_no_truncate) {
      begin_ = std::floor(begin_);
      end_ = std::ceil(end_);
    }
    begin_ = std::max(0.0, begin_);
    end_ = std::min(2.0 * static_cast<double>(pairs) - 1, end_);
    if (begin_ == end_) end_ += 0.001;
  }
  double unscaled(int64_t pair) const {
    return 1 - std::clamp((static_cast<double>(pair) - begin_) / (end_ - begin_), 0.0, 1.0);
  }

 private:
  // The fractional index of a pair with `turns` turns in the original positions.
  static double pair_that_turns(const ModelConfig& config, int64_t pairs, double turns) {
    const auto positions = static_cast<double>(config.original_max_position_embeddings);
    return static_cast<double>(pairs) * std::log(positions / (turns * 2 * std::numbers::pi)) /
           std::log(config.rotary_base);
  }

  double begin_, end_;
};

// The factors of LongRoPE for sequences of the model's length; null: the model has none.
const std::vector<RopeFactor>* long_rope_factors(const ModelConfig& config) {
  if (config.rope_type != RopeType::LongRope) return nullptr;
  return config.seq_length > config.original_max_position_embeddings ? &config.rope_long_factor
                                                                     : &config.rope_short_factor;
}

// LongRoPE's c
double long_rope_growth(const ModelConfig& config) {
  const auto positions = static_cast<double>(config.original_max_position_embeddings);
  const double follows = config.rotary_scaling_factor <= 1
                             ? 1
                             : std::sqrt(1 + std::log(config.rotary_scaling_factor) / std::log(positions));
  return config.rotary_attention_factor.value_or(follows);
}

bool stretched_as(RopeType type, const ModelConfig& config) {
  return config.position_embedding_type == PositionEmbedding::Rope && config.rope_type == type;
}

// m(s)
double growth(const ModelConfig& config, double mscale) {
  return 0.1 * mscale * std::log(config.rotary_scaling_factor) + 1;
}

// YaRN's c
double yarn_growth(const ModelConfig& config) {
  return config.rotary_attention_factor.value_or(growth(config, config.mscale) /
                                                 growth(config, config.mscale_all_dim));
}

double square(double c) { return c * c; }

// LongRoPE's c, where it applies to `part` of each head.
enum class RotatedPart { Whole, Some };
double long_growth_of(RotatedPart part, const ModelConfig& config) {
  if (!stretched_as(RopeType::LongRope, config) || config.multi_latent_attention) return 1;
  const bool whole = rotated_width(config) == key_width(config);
  return whole == (part == RotatedPart::Whole) ? long_rope_growth(config) : 1;
}

// Whether norms of queries and keys follow the rotation. They undo a factor of the rotation, which must therefore not
// become a factor of the scores.
bool norms_follow(const ModelConfig& config) {
  return config.qk_layernorm && config.qk_layernorm_after_rope && !config.multi_latent_attention;
}

}  // namespace

std::vector<double> rotary_frequencies(const ModelConfig& config) {
  const int64_t pairs = rotated_width(config) / 2;
  const bool yarn = config.rope_type == RopeType::Yarn;
  const std::vector<RopeFactor>* factors = long_rope_factors(config);
  const YarnBlend blend(config, pairs);
  std::vector<double> frequencies;
  for (int64_t i = 0; i < pairs; ++i) {
    double radians = std::pow(config.rotary_base, -static_cast<double>(i) / static_cast<double>(pairs));
    radians /= config.rotary_seq_len_interpolation_factor;
    if (config.use_rope_scaling) radians = stretched_by_turns(config, radians);
    if (yarn) radians *= blend.unscaled(i) + (1 - blend.unscaled(i)) / config.rotary_scaling_factor;
    if (factors != nullptr) radians /= factors->at(static_cast<size_t>(i)).factor;
    frequencies.push_back(radians);
  }
  return frequencies;
}

double rotary_score_scale(const ModelConfig& config) {
  if (norms_follow(config)) return 1;
  if (!stretched_as(RopeType::Yarn, config)) return square(long_growth_of(RotatedPart::Whole, config));
  return square(config.multi_latent_attention ? growth(config, config.mscale_all_dim) : yarn_growth(config));
}

double rotary_scale(const ModelConfig& config) {
  if (!norms_follow(config)) return long_growth_of(RotatedPart::Some, config);
  if (stretched_as(RopeType::Yarn, config)) return yarn_growth(config);
  return stretched_as(RopeType::LongRope, config) ? long_rope_growth(config) : 1;
}

double rotary_key_scale(const ModelConfig& config) {
  if (!config.multi_latent_attention) return 1;
  if (stretched_as(RopeType::LongRope, config)) return square(long_rope_growth(config));
  return stretched_as(RopeType::Yarn, config) ? square(yarn_growth(config)) : 1;
}

}  // namespace trifold
