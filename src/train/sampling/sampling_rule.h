// How the next token is chosen from logits. The order of the rules is that of Hugging Face's transformers: repetition
// penalty, temperature, top_k, top_p, min_p.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trifold {

struct SamplingRule {
  double temperature = 1;  // 0 takes the most likely token
  int64_t top_k = 0;       // only the k most likely tokens; 0: all
  double top_p = 1;        // only the most likely tokens that together reach this probability
  double min_p = 0;        // only tokens of at least this part of the most likely one's probability
  // Tokens that the text already has become less likely: their logits are divided by it if they are positive, and
  // multiplied otherwise (Keskar et al., "CTRL", arXiv 1909.05858). 1: no penalty.
  double repetition_penalty = 1;
};

// Draws an index from softmax(logits / temperature) restricted by top_k, top_p and min_p, with the random value `uniform`
// in [0, 1). Does not apply the penalty. A pure function; ties go to the lower index.
int64_t draw_token(std::span<const double> logits, const SamplingRule& rule, double uniform);

// Applies the repetition penalty, once for each of `tokens` that has a logit.
void penalise_repetition(std::span<double> logits, std::span<const int32_t> tokens, double penalty);

}  // namespace trifold
