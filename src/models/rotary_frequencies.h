// The frequencies of rotary position embedding (Su et al., arXiv 2104.09864): pair i of the first 2n columns of a head
// rotates by base^(-i/n) radians per position. A model can be extended beyond the L positions of its training if pairs
// rotate more slowly. Each of these scalings extends it by `factor`:
//
//   linear      (Chen et al., arXiv 2306.15595) every pair rotates `factor` times as slowly;
//   Llama 3.1   (arXiv 2407.21783) pairs with fewer than low_freq_factor turns in L rotate `factor` times as slowly,
//               pairs with more than high_freq_factor turns are unchanged, and pairs between are interpolated by turns;
//   YaRN        (Peng et al., arXiv 2309.00071) pairs with fewer than beta_slow turns in L rotate `factor` times as
//               slowly, pairs with more than beta_fast turns are unchanged, and pairs between are interpolated by
//               index, between whole indices unless rope_no_truncate. Queries and keys are also multiplied by c, which
//               is rotary_attention_factor or m(mscale) / m(mscale_all_dim) with m(s) = 0.1 s ln(factor) + 1, so that
//               attention stays as sharp over more keys. In latent attention, whose heads are rotated in part, only the
//               rotated part is multiplied by c, and all scores by m(mscale_all_dim)^2 (DeepSeek-V2);
//   LongRoPE    (Ding et al., arXiv 2402.13753) pair i rotates rope_short_factor[i] or rope_long_factor[i] times as
//               slowly, the latter in sequences longer than L. As an angle depends on the length, all sequences of a run
//               have the factors of its seq_length, also shorter ones. The rotated part of queries and keys is multiplied
//               by c, which is rotary_attention_factor or sqrt(1 + ln(factor) / ln(L)), for both kinds of factors.
#pragma once

#include <vector>

#include "config/fields/config.h"

namespace trifold {

// Radians per position for a resolved configuration, one for each rotated pair.
std::vector<double> rotary_frequencies(const ModelConfig& config);

// The factor of attention scores in addition to 1 / sqrt(width of a key): for YaRN c^2, or m(mscale_all_dim)^2 in
// latent attention; for LongRoPE c^2 if heads are rotated whole; otherwise 1. 1 too if norms follow the rotation, which undo
// such factors.
double rotary_score_scale(const ModelConfig& config);

// The factor of the rotated part of queries and of keys: c for LongRoPE if it is only a part of each head, or if norms
// follow the rotation, then for YaRN too; otherwise 1.
double rotary_scale(const ModelConfig& config);

// In latent attention, the factor of the rotated part of keys, and thereby of that part of the scores: c^2.
double rotary_key_scale(const ModelConfig& config);

}  // namespace trifold
