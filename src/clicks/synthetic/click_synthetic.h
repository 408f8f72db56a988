// SyntheticClicks: random clicks from a planted model whose best possible AUC is known. For benchmarks, tests and the
// quickstart: a pure function of (seed, sample).
//
// Features, all independent of each other:
//   dense d     count c = floor(3 u / (1 - u)), u uniform: heavy-tailed like counts of events; stored as
//               x = ln(c + 1)
//   table t     ids by a Zipf law (zipf_law.h). A table with max_ids > 1 has 1 to max_ids ids, uniformly. With
//               probability `missing` a bag is empty.
// Planted model: label = 1 with probability sigmoid(z),
//   z = bias + sum_d w_d (x_d - mean) + sum_t sum_{ids of t} a_t(id) + sum_pairs g s_i s_j
//   a_t(id) uniform with standard deviation table_effect / sqrt(max_ids); w_d is +-dense_effect / sd(x);
//   pairs are tables (0,1), (2,3), ...; s_t = +-1 is a sign of the first id, 0 for an empty bag; g is
//   +-pair_effect. `bias` is such that positive_rate of all samples are clicked.
//
// a and g are multiples of 1/256.
//
// No model can rank better than z, the Bayes score. Its distribution f is the convolution of the independent parts
// (each pair: a mixture of four), computed on a grid of 1/256; then
//   best AUC = P(z+ > z-) + P(z+ = z-) / 2,  z+ ~ f sigma / rate, z- ~ f (1 - sigma) / (1 - rate),
// which is the AUC of the population, not of a sample. Effects of tables lie exactly on the grid; effects of
// dense values are split linearly, which changes the AUC by less than 1e-4. Ranks beyond the first 2^18 of a table are
// treated together, as if their effects were uniformly distributed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "clicks/click_source.h"
#include "clicks/synthetic/click_optimum.h"
#include "clicks/synthetic/zipf_law.h"
#include "core/random.h"

namespace trifold {

struct SyntheticClickSpec {
  int dense = 13;
  std::vector<ClickTable> tables;
  int64_t samples = 0;
  uint64_t seed = 0;
  double zipf = 1.05;  // at least 0 (uniform)
  double positive_rate = 0.25;
  double table_effect = 0.3;
  double dense_effect = 0.2;
  double pair_effect = 0.3;
  double missing = 0;     // in [0, 1)
  bool weighted = false;  // ids carry weights in [0.5, 1.5), which the planted model ignores
  int labels = 1;         // labels per sample, drawn independently from the same score
  bool constant = false;  // all features are the same in every sample: no model reaches more than 0.5
};

class SyntheticClicks final : public ClickSource {
 public:
  // BadInput for an invalid schema or rates. Takes up to some tenths of a second.
  explicit SyntheticClicks(SyntheticClickSpec spec);

  // label1, label2 ...; a single one has no name.
  static std::vector<std::string> label_names(int labels);

  const ClickSchema& schema() const override { return schema_; }
  int64_t samples() const override { return spec_.samples; }
  void fill(std::span<const int64_t> positions, ClickPart& out) const override;

  const ClickOptimum& optimum() const { return optimum_; }
  // The planted scores z of samples [first, first + count): the best possible prediction.
  std::vector<double> scores(int64_t first, int64_t count) const;

 private:
  // How the ids of a table are drawn, and their effects.
  struct Plant {
    PhiloxKey draw;    // ids of the samples
    PhiloxKey effect;  // effects of the ids
    PhiloxKey sign;
    ZipfLaw law{1, 0};
    double scale = 0;  // largest |a|
    double pair = 0;   // g; 0 if the table has no partner
    bool second = false;
  };
  // The distribution of a bag's score, by the sign of its first id; the shares add up to 1.
  struct SignedScores {
    ScoreDistribution plus, minus, none;
  };

  void plant();
  SignedScores signed_scores(int table) const;
  ScoreDistribution table_score(int table) const;
  ScoreDistribution pair_score(int table) const;                           // for `table` and the next
  double fill_sample(int64_t sample, int64_t slot, ClickPart& out) const;  // returns its score
  double fill_bag(int table, int64_t sample, int64_t slot, ClickPart& out, int& sign) const;
  double fill_dense(int64_t sample, int64_t slot, ClickPart& out) const;
  const ZipfLaw& law(int table) const { return plants_[static_cast<size_t>(table)].law; }
  double effect(int table, int64_t row) const;
  int sign_of(int table, int64_t row) const;

  SyntheticClickSpec spec_;
  ClickSchema schema_;
  std::vector<Plant> plants_;
  PhiloxKey dense_key_;
  std::vector<PhiloxKey> label_keys_;
  std::vector<double> dense_weight_;
  double dense_mean_ = 0;
  ClickOptimum optimum_;
};

}  // namespace trifold
