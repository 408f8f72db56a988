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

bool stretched_as_yarn(const ModelConfig& config) {
  return config.position_embedding_type == PositionEmbedding::Rope && config.rope_type == RopeType::Yarn;
}

// m(s)
double growth(const ModelConfig& config, double mscale) {
  return 0.1 * mscale * std::log(config.rotary_scaling_factor) + 1;
}

// c^2
double growth_of_rotated(const ModelConfig& config) {
  const double c = config.rotary_attention_factor.value_or(growth(config, config.mscale) /
                                                           growth(config, config.mscale_all_dim));
  return c * c;
}

}  // namespace

std::vector<double> rotary_frequencies(const ModelConfig& config) {
  const int64_t pairs = rotated_width(config) / 2;
  const bool yarn = config.rope_type == RopeType::Yarn;
  const YarnBlend blend(config, pairs);
  std::vector<double> frequencies;
  for (int64_t i = 0; i < pairs; ++i) {
    double radians = std::pow(config.rotary_base, -static_cast<double>(i) / static_cast<double>(pairs));
    radians /= config.rotary_seq_len_interpolation_factor;
    if (config.use_rope_scaling) radians = stretched_by_turns(config, radians);
    if (yarn) radians *= blend.unscaled(i) + (1 - blend.unscaled(i)) / config.rotary_scaling_factor;
    frequencies.push_back(radians);
  }
  return frequencies;
}

double rotary_score_scale(const ModelConfig& config) {
  if (!stretched_as_yarn(config)) return 1;
  if (!config.multi_latent_attention) return growth_of_rotated(config);
  const double all = growth(config, config.mscale_all_dim);
  return all * all;
}

double rotary_key_scale(const ModelConfig& config) {
  return stretched_as_yarn(config) && config.multi_latent_attention ? growth_of_rotated(config) : 1;
}

}  // namespace trifold
