#include "clicks/synthetic/click_synthetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "clicks/synthetic/click_optimum.h"
#include "core/error.h"

namespace trifold {

namespace {

constexpr double kUnit = 1.0 / 4294967296.0;

// The uniform number in (0, 1) of a 32-bit word.
double unit(uint32_t word) { return (word + 0.5) * kUnit; }

// ln(count + 1) of one dense feature: 65536 equally likely values.
double dense_value(uint32_t word) {
  const double u = ((word >> 16) + 0.5) / 65536.0;
  return std::log1p(std::floor(3.0 * u / (1.0 - u)));
}

double on_grid(double score) {
  return std::round(score / ScoreDistribution::kStep) * ScoreDistribution::kStep;
}

}  // namespace

std::vector<std::string> SyntheticClicks::label_names(int labels) {
  std::vector<std::string> names;
  for (int l = 1; labels > 1 && l <= labels; ++l) names.push_back(fmt::format("label{}", l));
  return names;
}

SyntheticClicks::SyntheticClicks(SyntheticClickSpec spec) : spec_(std::move(spec)) {
  schema_ = {spec_.dense, spec_.tables, "log1p", spec_.weighted};
  schema_.labels = label_names(spec_.labels);
  check_schema(schema_);
  if (spec_.samples < 1)
    bad_input("synthetic clicks: there are {} samples; at least 1 is needed", spec_.samples);
  if (!(spec_.positive_rate > 0 && spec_.positive_rate < 1))
    bad_input("synthetic clicks: the fraction of positives is {}; it must be between 0 and 1",
              spec_.positive_rate);
  if (!(spec_.missing >= 0 && spec_.missing < 1))
    bad_input("synthetic clicks: the fraction of missing bags is {}; it must be at least 0 and less than 1",
              spec_.missing);
  if (!(spec_.zipf >= 0 && spec_.zipf < 10))
    bad_input("synthetic clicks: the Zipf exponent is {}; it must be at least 0 and less than 10",
              spec_.zipf);
  for (const double effect : {spec_.table_effect, spec_.dense_effect, spec_.pair_effect})
    if (!(effect >= 0 && effect <= 5))
      bad_input("synthetic clicks: the effect is {}; effects must be from 0 to 5", effect);
  plant();
}

void SyntheticClicks::plant() {
  const int tables = schema_.table_count();
  const PhiloxKey signs = philox_key(spec_.seed, "signs of effects");
  for (int t = 0; t < tables; ++t) {
    const ClickTable& table = schema_.table(t);
    Plant plant;
    plant.law = ZipfLaw(table.rows, spec_.zipf);
    plant.draw = philox_key(spec_.seed, "ids of " + table.name);
    plant.effect = philox_key(spec_.seed, "effects of " + table.name);
    plant.sign = philox_key(spec_.seed, "signs of " + table.name);
    plant.scale = spec_.constant ? 0 : spec_.table_effect * std::sqrt(3.0 / table.max_ids);
    const bool has_partner = (t ^ 1) < tables;
    const bool minus = (philox_word(signs, static_cast<uint64_t>(t / 2)) & 1U) != 0;
    if (has_partner && !spec_.constant) plant.pair = on_grid(minus ? -spec_.pair_effect : spec_.pair_effect);
    plant.second = (t & 1) != 0;
    plants_.push_back(plant);
  }
  dense_key_ = philox_key(spec_.seed, "dense numbers");
  for (int l = 0; l < spec_.labels; ++l)
    label_keys_.push_back(philox_key(spec_.seed, l == 0 ? "labels" : fmt::format("labels {}", l)));
  double square = 0;
  for (uint32_t i = 0; i < 65536; ++i) {
    const double x = dense_value(i << 16);
    dense_mean_ += x / 65536;
    square += x * x / 65536;
  }
  const double deviation = std::sqrt(square - dense_mean_ * dense_mean_);
  const PhiloxKey dense_signs = philox_key(spec_.seed, "signs of dense effects");
  for (int d = 0; d < spec_.dense; ++d) {
    const bool minus = (philox_word(dense_signs, static_cast<uint64_t>(d)) & 1U) != 0;
    const double size = spec_.constant ? 0 : spec_.dense_effect / deviation;
    dense_weight_.push_back(minus ? -size : size);
  }

  ScoreDistribution score;
  for (const double weight : dense_weight_) {
    ScoreDistribution part(ScoreDistribution::Empty{});
    for (uint32_t i = 0; i < 65536; ++i) part.add(weight * (dense_value(i << 16) - dense_mean_), 1.0 / 65536);
    score.convolve(part);
  }
  for (int t = 0; t < tables; t += 2) score.convolve(t + 1 < tables ? pair_score(t) : table_score(t));
  optimum_ = score.optimum(spec_.positive_rate);
}

// The scores of a bag by the sign of its first id.
SyntheticClicks::SignedScores SyntheticClicks::signed_scores(int table) const {
  constexpr int64_t kExactRanks = int64_t{1} << 18;
  const ClickTable& spec = schema_.table(table);
  const auto empty = ScoreDistribution::Empty{};
  ScoreDistribution by_sign[2] = {ScoreDistribution(empty), ScoreDistribution(empty)};
  const int64_t exact = std::min(spec.rows, kExactRanks);
  double below = 0;
  for (int64_t rank = 0; rank < exact; ++rank) {
    const double up_to = law(table).share_below(rank + 1);
    const int64_t row = law(table).row_of(rank);
    by_sign[sign_of(table, row) > 0 ? 1 : 0].add(effect(table, row), up_to - below);
    below = up_to;
  }
  const double scale = plants_[static_cast<size_t>(table)].scale;
  constexpr int kTailParts = 512;
  if (spec.rows > exact)
    for (int i = 0; i < kTailParts; ++i)
      for (ScoreDistribution& one : by_sign)
        one.add(scale * ((2 * i + 1.0) / kTailParts - 1), (1 - below) / (2 * kTailParts));

  ScoreDistribution any = by_sign[0];
  any.mix(by_sign[1], 1);
  SignedScores scores{ScoreDistribution(empty), ScoreDistribution(empty), ScoreDistribution(empty)};
  ScoreDistribution rest;  // for the ids after the first
  for (int length = 1; length <= spec.max_ids; ++length) {
    const double share = (1 - spec_.missing) / spec.max_ids;
    for (int s = 0; s < 2; ++s) {
      ScoreDistribution bag = by_sign[s];
      bag.convolve(rest);
      (s == 0 ? scores.minus : scores.plus).mix(bag, share);
    }
    rest.convolve(any);
  }
  scores.none.add(0, spec_.missing);
  return scores;
}

ScoreDistribution SyntheticClicks::table_score(int table) const {
  SignedScores scores = signed_scores(table);
  scores.plus.mix(scores.minus, 1);
  scores.plus.mix(scores.none, 1);
  return scores.plus;
}

ScoreDistribution SyntheticClicks::pair_score(int table) const {
  const SignedScores a = signed_scores(table);
  const SignedScores b = signed_scores(table + 1);
  const double g = plants_[static_cast<size_t>(table)].pair;
  ScoreDistribution sum(ScoreDistribution::Empty{});
  const auto add = [&](const ScoreDistribution& x, const ScoreDistribution& y, double shift) {
    ScoreDistribution both = x;
    both.convolve(y);
    ScoreDistribution offset(ScoreDistribution::Empty{});
    offset.add(shift, 1);
    both.convolve(offset);
    sum.mix(both, 1);
  };
  add(a.plus, b.plus, g);
  add(a.minus, b.minus, g);
  add(a.plus, b.minus, -g);
  add(a.minus, b.plus, -g);
  for (const ScoreDistribution* other : {&b.plus, &b.minus, &b.none}) add(a.none, *other, 0);
  for (const ScoreDistribution* other : {&a.plus, &a.minus}) add(*other, b.none, 0);
  return sum;
}

double SyntheticClicks::effect(int table, int64_t row) const {
  const Plant& plant = plants_[static_cast<size_t>(table)];
  if (plant.scale == 0) return 0;
  return on_grid(plant.scale * (2 * unit(philox_word(plant.effect, static_cast<uint64_t>(row))) - 1));
}

int SyntheticClicks::sign_of(int table, int64_t row) const {
  const uint32_t word =
      philox_word(plants_[static_cast<size_t>(table)].sign, static_cast<uint64_t>(row / 32));
  return (word >> (row % 32) & 1U) != 0 ? 1 : -1;
}

double SyntheticClicks::fill_dense(int64_t sample, int64_t slot, ClickPart& out) const {
  if (spec_.constant) return 0;
  float* dense = out.dense(slot);
  double score = 0;
  const auto blocks = static_cast<uint64_t>((spec_.dense + 3) / 4);
  for (int d = 0; d < spec_.dense; d += 4) {
    const auto words =
        philox(dense_key_, static_cast<uint64_t>(sample) * blocks + static_cast<uint64_t>(d / 4));
    for (int k = 0; k < 4 && d + k < spec_.dense; ++k) {
      const double x = dense_value(words[static_cast<size_t>(k)]);
      dense[d + k] = static_cast<float>(x);
      score += dense_weight_[static_cast<size_t>(d + k)] * (x - dense_mean_);
    }
  }
  return score;
}

// Word 0 of a sample decides whether the bag is missing, word 1 its length; ids follow, then weights.
double SyntheticClicks::fill_bag(int table, int64_t sample, int64_t slot, ClickPart& out, int& sign) const {
  const ClickTable& spec = schema_.table(table);
  const Plant& plant = plants_[static_cast<size_t>(table)];
  sign = 0;
  if (spec_.constant) {
    *out.bag(table, slot, 1) = 0;
    if (spec_.weighted) *out.bag_weights(table, 1) = 1;
    return 0;
  }
  const auto words_each = static_cast<uint64_t>(2 + 2 * spec.max_ids);
  const uint64_t first = static_cast<uint64_t>(sample) * ((words_each + 3) / 4 * 4);
  std::array<uint32_t, 4> block = philox(plant.draw, first / 4);  // the last block computed
  uint64_t block_number = first / 4;
  const auto word = [&](uint64_t index) {
    if ((first + index) / 4 != block_number) block = philox(plant.draw, block_number = (first + index) / 4);
    return block[(first + index) % 4];
  };
  if (spec_.missing > 0 && unit(word(0)) < spec_.missing) return 0;
  const int count = spec.max_ids == 1 ? 1 : 1 + static_cast<int>(unit(word(1)) * spec.max_ids);
  int32_t* ids = out.bag(table, slot, count);
  double score = 0;
  for (int k = 0; k < count; ++k) {
    const int64_t row = law(table).row_of(law(table).rank_of(unit(word(2 + static_cast<uint64_t>(k)))));
    ids[k] = static_cast<int32_t>(row);
    score += effect(table, row);
  }
  if (plant.pair != 0) sign = sign_of(table, ids[0]);
  if (spec_.weighted) {
    float* weights = out.bag_weights(table, count);
    for (int k = 0; k < count; ++k)
      weights[k] = static_cast<float>(0.5 + unit(word(2 + static_cast<uint64_t>(spec.max_ids + k))));
  }
  return score;
}

double SyntheticClicks::fill_sample(int64_t sample, int64_t slot, ClickPart& out) const {
  double score = optimum_.bias + fill_dense(sample, slot, out);
  int sign_before = 0;
  for (int t = 0; t < schema_.table_count(); ++t) {
    int sign = 0;
    score += fill_bag(t, sample, slot, out, sign);
    const Plant& plant = plants_[static_cast<size_t>(t)];
    if (plant.second) score += plant.pair * sign_before * sign;
    sign_before = sign;
  }
  for (size_t l = 0; l < label_keys_.size(); ++l) {
    const double luck = unit(philox_word(label_keys_[l], static_cast<uint64_t>(sample)));
    out.label(slot, static_cast<int64_t>(l)) = luck < logistic(score) ? 1.0F : 0.0F;
  }
  return score;
}

void SyntheticClicks::fill(std::span<const int64_t> positions, ClickPart& out) const {
  for (size_t i = 0; i < positions.size(); ++i) fill_sample(positions[i], static_cast<int64_t>(i), out);
}

std::vector<double> SyntheticClicks::scores(int64_t first, int64_t count) const {
  std::vector<double> scores;
  ClickBatchBuffer out(schema_, count);
  out.fill(first, count, count, [&](ClickPart& all) {
    for (int64_t i = 0; i < count; ++i) scores.push_back(fill_sample(first + i, i, all));
  });
  return scores;
}

}  // namespace trifold
