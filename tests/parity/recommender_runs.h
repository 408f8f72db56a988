// A short training of a small recommender on some ranks, and the distance between the results of two of them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <string>

#include "parity/recommender_bench.h"
#include "parity/whole.h"

namespace trifold::test {

constexpr int kSteps = kWhole ? 50 : 12;
constexpr int64_t kBatch =
    23;  // no number of ranks divides it: some ranks have padding, with 8 one has only that

inline ClickSchema schema(bool weighted) {
  ClickSchema schema;
  schema.dense = 5;
  schema.weighted = weighted;
  schema.tables = {{"users", 300, 1}, {"items", 57, 4}, {"tiny", 3, 1}, {"pages", 41, 2}, {"hour", 24, 1}};
  return schema;
}

inline Clicks make_batch(const ClickSchema& schema, int step) {
  Clicks clicks;
  const PhiloxKey key = philox_key(static_cast<uint64_t>(step), "placement");
  uint64_t at = 0;
  const auto word = [&](uint32_t below) { return philox_word(key, at++) % below; };
  clicks.label_count = schema.label_count();
  for (int64_t s = 0; s < kBatch; ++s) {
    for (int64_t l = 0; l < clicks.label_count; ++l) clicks.labels.push_back(word(3) == 0 ? 1.0F : 0.0F);
    if (clicks.label_count > 1 && s % 5 == 0) clicks.labels.back() = NAN;
    clicks.dense.emplace_back();
    for (int d = 0; d < schema.dense; ++d) clicks.dense.back().push_back(static_cast<float>(word(100)) / 50);
    clicks.ids.emplace_back();
    if (schema.weighted) clicks.weights.emplace_back();
    for (const ClickTable& table : schema.tables) {
      clicks.ids.back().emplace_back();
      if (schema.weighted) clicks.weights.back().emplace_back();
      for (uint32_t n = word(static_cast<uint32_t>(table.max_ids) + 1); n > 0; --n) {
        const auto rows = static_cast<uint32_t>(table.rows);
        clicks.ids.back().back().push_back(static_cast<int32_t>(word(rows) * word(rows) / rows));
        if (schema.weighted) clicks.weights.back().back().push_back(0.5F + static_cast<float>(word(8)) / 8);
      }
    }
  }
  return clicks;
}

inline RecommenderSetup setup_for(SparseKind kind, DType dtype, bool weighted) {
  RecommenderSetup setup;
  setup.schema = schema(weighted);
  setup.model = {.dense = 5, .tables = 5, .width = 6, .bottom = {9, 6}, .top = {11, 1}};
  setup.global_batch = kBatch;
  setup.dtype = dtype;
  setup.dense_optimizer.optimizer = kind == SparseKind::Adam  ? OptimizerKind::Adam
                                    : kind == SparseKind::Sgd ? OptimizerKind::Sgd
                                                              : OptimizerKind::Adagrad;
  setup.dense_optimizer.sgd_momentum = 0;
  setup.dense_optimizer.weight_decay = 0;
  setup.dense_optimizer.adagrad_eps = 1e-3;
  setup.dense_optimizer.adam_eps = 1e-3;
  setup.sparse.kind = kind;
  setup.sparse.weight_decay = kind == SparseKind::Adam ? 0.1 : 0;
  setup.sparse.l1 = 0.001;
  setup.sparse.l2 = 0.01;
  setup.sparse.eps = 1e-3;
  setup.mean = weighted;
  setup.seed = 7;
  setup.threads = 1;
  return setup;
}

// Of an update rule, for names of tests.
inline std::string test_name(SparseKind kind) {
  return kind == SparseKind::Sgd              ? "Sgd"
         : kind == SparseKind::Adagrad        ? "Adagrad"
         : kind == SparseKind::RowwiseAdagrad ? "RowwiseAdagrad"
         : kind == SparseKind::Ftrl           ? "Ftrl"
                                              : "Adam";
}

struct Result {
  std::vector<double> losses;
  Values values;
};

inline Result train(int ranks, const RecommenderSetup& setup, double lr) {
  Result result;
  std::mutex mutex;
  run_ranks(ranks, [&](Communicator& world) {
    Recommender model(world, setup);
    const auto read = [&](int step) {
      return [&, step](ClickBatchBuffer& out) {
        make_batch(setup.schema, step).read(world.rank() * model.samples(), model.samples(), out);
      };
    };
    model.fetch(read(0));
    for (int step = 0; step < kSteps; ++step) {
      const auto next = [&] {
        if (step + 1 < kSteps) model.fetch(read(step + 1));
      };
      const double loss = model.train(kBatch, step + 1, lr, lr, next);
      if (world.rank() == 0) result.losses.push_back(loss);
      model.check_replicas(fmt::format("step {}", step + 1));
    }
    const std::lock_guard lock(mutex);
    collect(model, result.values);
  });
  return result;
}

inline std::vector<TablePlacement> everywhere(PlacementKind kind, int ranks) {
  std::vector<TablePlacement> placement;
  for (int t = 0; t < 5; ++t) placement.push_back({kind, t % ranks, ranks});
  return placement;
}

inline std::vector<TablePlacement> mixed(int ranks) {
  return {{PlacementKind::Row, 1 % ranks, ranks},
          {PlacementKind::Column, 0, 2},
          {PlacementKind::Replicated, 0, 1},
          {PlacementKind::Table, ranks - 1, 1},
          {PlacementKind::Row, 0, 2}};
}

struct Gap {
  double losses = 0;
  double values = 0;
};

inline Gap gap(const Result& a, const Result& b) {
  Gap gap;
  EXPECT_EQ(a.losses.size(), b.losses.size());
  for (size_t i = 0; i < a.losses.size(); ++i)
    gap.losses = std::max(gap.losses, std::abs(a.losses[i] - b.losses[i]) / std::abs(b.losses[i]));
  EXPECT_EQ(a.values.size(), b.values.size());
  for (const auto& [name, values] : b.values) {
    double scale = 0;
    for (double v : values) scale = std::max(scale, std::abs(v));
    EXPECT_EQ(a.values.at(name).size(), values.size()) << name;
    for (size_t i = 0; i < values.size(); ++i) {
      const double distance = std::abs(a.values.at(name)[i] - values[i]) / scale;
      EXPECT_FALSE(std::isnan(distance)) << name << " element " << i << " is nobody's";
      gap.values = std::max(gap.values, distance);
    }
  }
  return gap;
}

}  // namespace trifold::test
