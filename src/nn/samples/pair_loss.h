// PairLoss: the loss of pairs of answers to one prompt, of which the first is preferred (Rafailov et al., "Direct
// Preference Optimization", NeurIPS 2023). Samples 2i and 2i + 1 of a micro-batch are the preferred and the rejected
// answer of pair i.
//
// With the log-likelihood p of an answer and the reference's, q (Batch::sample_values), an answer has the reward
// r = beta (p - q), and a pair the margin m = r of the preferred - r of the rejected answer. The loss of a pair is
//
//   Sigmoid  -(1 - e) log sigmoid(m) - e log sigmoid(-m), where e is the probability that the answers are swapped (Mitchell,
//            "A note on DPO with noisy preferences", 2023)
//   Ipo      (m / beta - 1 / (2 beta))^2 (Azar et al., "A general theoretical paradigm to understand learning from human
//            preferences", AISTATS 2024); loss weights of 1 / tokens make p and q means over the tokens of an answer
//
// and counts with Batch::pair_weight of its first sample, so that losses are means over pairs. The loss terms below are
// shown: rewards of both answers, the margin, and the share of pairs whose margin is positive.
#pragma once

#include "config/fields/model_config.h"
#include "nn/samples/sample_loss.h"

namespace trifold {

class PairLoss final : public SampleLoss {
 public:
  static constexpr const char* kChosen = "reward_chosen";
  static constexpr const char* kRejected = "reward_rejected";
  static constexpr const char* kMargin = "reward_margin";
  static constexpr const char* kAccuracy = "reward_accuracy";

  PairLoss(BlockBuilder& builder, const PairLossConfig& config);
  void add(Run& run, Tensor sums) const override;
  void find_factors(Run& run, Tensor factors, Tensor sums) const override;

 private:
  // f64 [P], P = S/2 pairs
  struct Pairs {
    Tensor chosen, rejected;  // rewards
    Tensor margins, weights;
  };
  Pairs find_pairs(Run& run, Tensor sums) const;
  Tensor losses(Run& run, Tensor margins) const;
  Tensor slopes(Run& run, Tensor margins) const;  // derivatives of the losses with respect to the margins

  PairLossConfig config_;
  LossTermId chosen_, rejected_, margin_, accuracy_;
};

}  // namespace trifold
