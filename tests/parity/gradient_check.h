// GradientCheck compares the gradients of one layer with central finite differences in f64.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/compare.h"
#include "support/layer_bench.h"
#include "support/sanitizer.h"

namespace trifold::test {

constexpr double kGradientStep = 1e-5;
constexpr double kGradientTolerance = 1e-6;
// Of the elements of a tensor, one in so many is varied, which is no divisor of a row's length; of a short one, four.
// What several ranks may do wrong, a sum that is missing or made twice, is seen in most elements; a single rank's are
// all varied. A sanitizer looks at memory, for which a few suffice.
constexpr size_t every(int ranks) { return kSanitized ? 31 : ranks > 1 ? 5 : 1; }
constexpr int64_t kSamples = 2;
constexpr int64_t kPositions = 5;
constexpr int64_t kRows = kSamples * kPositions;
constexpr int64_t kWidth = 12;
constexpr int64_t kVocab = 11;

struct GradientCase {
  std::string layer;  // class name
  LayerBench::Make make;
  Placed input;          // none: the layer reads the batch
  Placed output;         // none: the layer computes the loss itself
  bool experts = false;  // ranks may share some; they must have other rows then, and on a tensor axis
  // The end of the names of parameters whose gradients differ from differences by definition; empty: none.
  std::string defined_otherwise = {};
};

struct MeshCase {
  const char* name;
  int tp;
  bool sequence_parallel;
  int sharing = 1;  // ranks that share experts
  int parts = 1;    // ranks that cut each expert
};

// The work of one rank: all of them perturb the same element of the same global tensors in the same order.
class GradientCheck {
 public:
  GradientCheck(const GradientCase& c, const MeshCase& mesh, Communicator& world)
      : case_(c),
        every_(every(world.size())),
        bench_(world, mesh.sequence_parallel, c.make, c.input, c.output, kSamples, kPositions, kVocab,
               mesh.sharing, mesh.parts),
        x_(values(c.input, "x")),
        dy_(values(c.output, "dy")) {}

  void run() {
    const ParamList& params = bench_.params();
    bench_.forward(x_, dy_);
    const Values dx = bench_.backward(dy_, false);
    std::vector<Values> dw;
    for (int i = 0; i < params.size(); ++i) dw.push_back(gradient({i}));
    compare_split(dx, dw);

    Values expected;
    for (size_t e = 0; e < x_.size(); e += step(x_.size()))
      expected.push_back(difference(x_[e], [&](double value) { x_[e] = value; }));
    EXPECT_LT(relative_error(varied(dx), expected), kGradientTolerance) << case_.layer << " dx";
    for (int i = 0; i < params.size(); ++i) {
      if (params[{i}].tied_to) continue;  // its gradient was added to that of the values' owner
      if (params[{i}].frozen || is_defined_otherwise(params[{i}].shard.name)) continue;
      expected.clear();
      for (size_t e = 0; e < bench_.weight({i}).size(); e += step(bench_.weight({i}).size()))
        expected.push_back(
            difference(bench_.weight({i})[e], [&](double v) { bench_.set_weight({i}, e, v); }));
      EXPECT_LT(relative_error(varied(dw[static_cast<size_t>(i)]), expected), kGradientTolerance)
          << case_.layer << " " << params[{i}].shard.name;
    }
  }

 private:
  using Values = LayerBench::Values;

  static Values values(const Placed& tensor, const char* name) {
    return tensor.cut == Placed::Cut::None ? Values{} : LayerBench::random(tensor.global.elements(), name);
  }

  // Frozen parameters have none.
  Values gradient(ParamId id) { return bench_.params()[id].frozen ? Values() : bench_.grad(id); }

  bool is_defined_otherwise(const std::string& name) const {
    return !case_.defined_otherwise.empty() && name.find(case_.defined_otherwise) != std::string::npos;
  }

  // One element alone may have no gradient, as the first of the biases of keys.
  size_t step(size_t elements) const { return std::clamp(elements / 4, size_t{1}, every_); }

  // The elements of a gradient that are compared.
  Values varied(const Values& all) const {
    Values some;
    for (size_t e = 0; e < all.size(); e += step(all.size())) some.push_back(all[e]);
    return some;
  }

  // The two halves apart give the very bits of both together.
  void compare_split(const Values& dx, const std::vector<Values>& dw) {
    bench_.forward(x_, dy_);
    EXPECT_EQ(bench_.backward(dy_, true), dx) << case_.layer;
    for (size_t i = 0; i < dw.size(); ++i)
      EXPECT_EQ(gradient({static_cast<int>(i)}), dw[i]) << case_.layer << " parameter " << i;
  }

  template <class Set>
  double difference(double middle, const Set& set) {
    set(middle + kGradientStep);
    const double above = bench_.forward(x_, dy_);
    set(middle - kGradientStep);
    const double below = bench_.forward(x_, dy_);
    set(middle);
    return (above - below) / (2 * kGradientStep);
  }

  const GradientCase& case_;
  const size_t every_;
  LayerBench bench_;
  Values x_, dy_;
};

}  // namespace trifold::test
