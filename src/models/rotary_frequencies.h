// The angles of rotary position embedding (Su et al., arXiv 2104.09864): pair i of the first 2n numbers of a
// head turns by base^(-i/n) radians a position. A model extends beyond the L positions it was trained with if pairs
// turn more slowly. Each of these ways reaches `factor` times as far:
//
//   linear      (Chen et al., arXiv 2306.15595) every pair turns `factor` times as slowly;
//   Llama 3.1   (arXiv 2407.21783) pairs that turn fewer than low_freq_factor times in L do so, pairs that turn
//               more than high_freq_factor times stay, those between are blended by their turns;
//   YaRN        (Peng et al., arXiv 2309.00071) pairs that turn fewer than beta_slow times in L do so, pairs
//               that turn more than beta_fast times stay, those between are blended by their index, counted
//               between whole pairs unless rope_no_truncate. Queries and keys also grow by c, which is
//               rotary_attention_factor or m(mscale) / m(mscale_all_dim), m(s) = 0.1 s ln(factor) + 1, so
//               that attention stays as sharp over more keys. In latent attention, whose heads are rotated in part,
//               only the rotated part grows by c, and all scores by m(mscale_all_dim)^2 (DeepSeek-V2).
#pragma once

#include <vector>

#include "config/fields/config.h"

namespace trifold {

// The angles of a resolved configuration, one per rotated pair.
std::vector<double> rotary_frequencies(const ModelConfig& config);

// The factor of attention scores in addition to 1 / sqrt(width of a key): for YaRN c^2, or m(mscale_all_dim)^2 in
// latent attention; otherwise 1.
double rotary_score_scale(const ModelConfig& config);

// In latent attention, the factor of the rotated part of keys, and so of its part of the scores: c^2.
double rotary_key_scale(const ModelConfig& config);

}  // namespace trifold
