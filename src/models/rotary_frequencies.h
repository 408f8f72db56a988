// The angles of rotary position embedding (Su et al., arXiv 2104.09864): pair i of the first 2n numbers of a
// head turns by base^(-i/n) radians a position. A model reaches beyond the positions it was trained with, L,
// if pairs turn more slowly; `factor` times as far in each of these ways:
//
//   linear      (Chen et al., arXiv 2306.15595) every pair turns `factor` times as slowly;
//   Llama 3.1   (arXiv 2407.21783) of L = 8192: pairs that turn fewer than once in L do so, pairs that turn
//               more than four times stay, those between are blended by their turns;
//   YaRN        (Peng et al., arXiv 2309.00071) pairs that turn fewer than beta_slow times in L do so, pairs
//               that turn more than beta_fast times stay, those between are blended by their index. Queries
//               and keys also grow by c = m(mscale) / m(mscale_all_dim), m(s) = 0.1 s ln(factor) + 1, so that
//               attention stays as sharp over more keys.
#pragma once

#include <vector>

#include "config/fields/config.h"

namespace trifold {

// Of a resolved configuration, one for each pair that is turned.
std::vector<double> rotary_frequencies(const ModelConfig& config);

// What the scores of attention are multiplied by besides 1 / sqrt(head width): c^2 of YaRN, otherwise 1.
double rotary_score_scale(const ModelConfig& config);

}  // namespace trifold
