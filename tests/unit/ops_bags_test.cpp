// Lookups in embedding tables, their order by row, and the update of touched rows against plain loops.
#include <algorithm>
#include <map>

#include "unit/ops_support.h"

namespace trifold::ops_test {
namespace {

// Bags of one table: some empty, some long, with duplicates inside a bag and between bags.
struct Bags {
  int64_t rows, width, bags;
  Values table, ids, offsets, weights;

  Bags(int64_t rows_, int64_t width_, int64_t bags_, uint64_t seed)
      : rows(rows_), width(width_), bags(bags_) {
    const PhiloxKey key = philox_key(seed, "bags");
    uint64_t at = 0;
    table = random_values(rows * width, seed);
    offsets.push_back(0);
    for (int64_t b = 0; b < bags; ++b) {
      const uint32_t length = philox_word(key, at++) % 5;
      for (uint32_t i = 0; i < length; ++i) {
        ids.push_back(philox_word(key, at++) % static_cast<uint32_t>(rows));
        weights.push_back(0.25 + philox_word(key, at++) % 7);
      }
      offsets.push_back(static_cast<double>(ids.size()));
    }
  }
  int64_t lookups() const { return static_cast<int64_t>(ids.size()); }
};

Values pooled(const Bags& bags, bool weighted) {
  Values y(static_cast<size_t>(bags.bags * bags.width));
  for (int64_t b = 0; b < bags.bags; ++b)
    for (auto i = static_cast<size_t>(bags.offsets[static_cast<size_t>(b)]);
         i < static_cast<size_t>(bags.offsets[static_cast<size_t>(b) + 1]); ++i)
      for (int64_t c = 0; c < bags.width; ++c)
        y[static_cast<size_t>(b * bags.width + c)] +=
            (weighted ? bags.weights[i] : 1) *
            bags.table[static_cast<size_t>(static_cast<int64_t>(bags.ids[i]) * bags.width + c)];
  return y;
}

// The tensors of `bags` and its sorted form.
struct BagTensors {
  Host table, ids, offsets, weights, row, begin, bag, weight, count, scratch;
  bool weighted;
  int64_t rows, n;
  BagTensors(const Bags& bags, DType dtype, bool weighted_)
      : table(dtype, {bags.rows, bags.width}, bags.table),
        ids(DType::I32, {bags.lookups()}, bags.ids),
        offsets(DType::I32, {bags.bags + 1}, bags.offsets),
        weights(DType::F32, {bags.lookups()}, bags.weights),
        row(DType::I32, {bags.lookups()}),
        begin(DType::I32, {bags.lookups() + 1}),
        bag(DType::I32, {bags.lookups()}),
        weight(DType::F32, {bags.lookups()}),
        count(DType::I64, {1}),
        scratch(DType::I64, {2 * bags.lookups()}),
        weighted(weighted_),
        rows(bags.rows),
        n(bags.lookups()) {}
  BagLookup lookup(int64_t column) const {
    return {table, ids, offsets, weighted ? Tensor(weights) : Tensor{}, column};
  }
  LookupOrder order() const {
    return {rows, row, begin, bag, weighted ? Tensor(weight) : Tensor{}, count, scratch};
  }
};

TEST(EmbeddingBags, SumsTheRowsOfEachBag) {
  for (int64_t width : {1, 3, 16, 32, 48, 64, 128}) {
    for (bool weighted : {false, true}) {
      SCOPED_TRACE(fmt::format("width {}{}", width, weighted ? ", weighted" : ""));
      const Bags first(97, width, 700, 1);
      const Bags second(5, width, 700, 2);
      check_everywhere({pooled(first, weighted), pooled(second, weighted), {7, 7}},
                       [&](const OpTable& ops, Stream& stream, DType dtype) -> Outputs {
                         const BagTensors a(first, dtype, weighted);
                         const BagTensors b(second, dtype, weighted);
                         const int64_t columns = 2 * width + 1;
                         const Host y(dtype, {700, columns}, Values(static_cast<size_t>(700 * columns), 7));
                         const std::vector<BagLookup> lookups{a.lookup(width + 1), b.lookup(0)};
                         ops.embedding_bags(stream, y, lookups);
                         Outputs parts(3);
                         const Values all = y.values();
                         for (int64_t r = 0; r < 700; ++r)
                           for (int64_t c = 0; c < columns; ++c)
                             if (c == width) {
                               if (r == 0 || r == 699)
                                 parts[2].push_back(all[static_cast<size_t>(r * columns + c)]);
                             } else {
                               parts[c > width ? 0 : 1].push_back(all[static_cast<size_t>(r * columns + c)]);
                             }
                         return parts;
                       });
    }
  }
}

TEST(EmbeddingBags, SortedLookupsAreTheLookups) {
  for (int64_t rows : {1, 2, 97, 3000, 5000000}) {
    for (bool weighted : {false, true}) {
      const Bags bags(rows > 100000 ? 97 : rows, 1, 900, 3);
      Bags spread = bags;
      if (rows > 100000)
        for (double& id : spread.ids) id *= 51546;  // up to 97 * 51546 < 5e6
      spread.rows = 1;
      spread.table = {0};
      Machine machine(2);
      BagTensors held(spread, DType::F32, weighted);
      held.rows = rows;
      const LookupOrder order = held.order();
      const BagLookup lookup = held.lookup(0);
      cpu_ops().sort_lookups(machine.stream, {&order, 1}, {&lookup, 1});
      // Row -> its lookups in order.
      std::map<double, std::vector<std::pair<double, double>>> expected;
      for (int64_t b = 0; b < spread.bags; ++b)
        for (auto i = static_cast<size_t>(spread.offsets[static_cast<size_t>(b)]);
             i < static_cast<size_t>(spread.offsets[static_cast<size_t>(b) + 1]); ++i)
          expected[spread.ids[i]].emplace_back(b, weighted ? spread.weights[i] : 1);
      const auto count = static_cast<size_t>(held.count.values()[0]);
      ASSERT_EQ(count, expected.size());
      const Values row = held.row.values(), begin = held.begin.values(), bag = held.bag.values(),
                   weight = held.weight.values();
      size_t s = 0;
      for (const auto& [id, lookups] : expected) {
        ASSERT_EQ(row[s], id);
        ASSERT_EQ(begin[s + 1] - begin[s], static_cast<double>(lookups.size()));
        for (size_t i = 0; i < lookups.size(); ++i) {
          const auto at = static_cast<size_t>(begin[s]) + i;
          EXPECT_EQ(bag[at], lookups[i].first);
          if (weighted) {
            EXPECT_EQ(weight[at], lookups[i].second);
          }
        }
        ++s;
      }
    }
  }
}

// Tables of many rows: buckets, keys of 32 and 64 bits, and one row that half of the lookups name.
TEST(EmbeddingBags, ManyLookupsAreSortedByRowAndBag) {
  struct Sizes {
    int64_t rows, lookups;
  };
  for (const auto& [rows, n] :
       {Sizes{4'000'000, 40'000}, Sizes{2'000'000'000, 6'000}, Sizes{2'000'000'000, 40'000}}) {
    const Host ids(DType::I32, {n}), offsets(DType::I32, {n + 1});
    const Host row(DType::I32, {n}), begin(DType::I32, {n + 1}), bag(DType::I32, {n});
    const Host count(DType::I64, {1}), scratch(DType::I64, {2 * n});
    const BagLookup lookup{{}, ids, offsets, {}, 0};
    std::vector<std::pair<int32_t, int32_t>> expected, found;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t id = i % 2 == 0 ? rows - 1 : i * 7'919'377 % rows;
      lookup.ids.as<int32_t>()[i] = static_cast<int32_t>(id);
      lookup.offsets.as<int32_t>()[i + 1] = static_cast<int32_t>(i + 1);
      expected.emplace_back(static_cast<int32_t>(id), static_cast<int32_t>(i));
    }
    std::sort(expected.begin(), expected.end());
    Machine machine(2);
    const LookupOrder order{rows, row, begin, bag, {}, count, scratch};
    cpu_ops().sort_lookups(machine.stream, {&order, 1}, {&lookup, 1});
    const int32_t* starts = order.begin.as<int32_t>();
    for (int64_t s = 0; s < *order.count.as<int64_t>(); ++s)
      for (int64_t i = starts[s]; i < starts[s + 1]; ++i)
        found.emplace_back(order.row.as<int32_t>()[s], order.bag.as<int32_t>()[i]);
    EXPECT_EQ(found, expected) << rows << " rows, " << n << " lookups";
  }
}

struct Reference {
  Values table, state, second;
};

// Algorithm 1 of McMahan et al., for weights that begin as p instead of 0.
void ftrl_reference(Reference& r, size_t at, double g, const SparseRule& rule) {
  double &w = r.table[at], &z = r.state[at], &n = r.second[at];
  if (n == 0) z = -rule.beta / rule.alpha * w;
  const double sigma = (std::sqrt(n + g * g) - std::sqrt(n)) / rule.alpha;
  z += g - sigma * w;
  n += g * g;
  const double sign = z < 0 ? -1 : 1;
  w = std::abs(z) <= rule.l1 ? 0
                             : -(z - sign * rule.l1) / ((rule.beta + std::sqrt(n)) / rule.alpha + rule.l2);
}

// The update as the papers write it, on the summed gradient of each touched row.
void update_reference(Reference& r, const Bags& bags, bool weighted, const Values& dy,
                      const SparseRule& rule) {
  std::map<int64_t, Values> gradients;
  const auto width = static_cast<size_t>(bags.width);
  for (int64_t b = 0; b < bags.bags; ++b)
    for (auto i = static_cast<size_t>(bags.offsets[static_cast<size_t>(b)]);
         i < static_cast<size_t>(bags.offsets[static_cast<size_t>(b) + 1]); ++i) {
      Values& g = gradients[static_cast<int64_t>(bags.ids[i])];
      g.resize(width);
      for (size_t c = 0; c < width; ++c)
        g[c] += rule.grad_scale * (weighted ? bags.weights[i] : 1) * dy[static_cast<size_t>(b) * width + c];
    }
  for (const auto& [row, g] : gradients) {
    double mean = 0;
    for (double x : g) mean += x * x / static_cast<double>(width);
    if (rule.kind == SparseKind::RowwiseAdagrad) r.state[static_cast<size_t>(row)] += mean;
    for (size_t c = 0; c < width; ++c) {
      const size_t at = static_cast<size_t>(row) * width + c;
      double step = g[c];
      if (rule.kind == SparseKind::Ftrl) {
        ftrl_reference(r, at, g[c], rule);
        continue;
      }
      r.table[at] -= rule.lr * rule.weight_decay * r.table[at];
      if (rule.kind == SparseKind::Adagrad) {
        r.state[at] += g[c] * g[c];
        step = g[c] / (std::sqrt(r.state[at]) + rule.eps);
      } else if (rule.kind == SparseKind::RowwiseAdagrad) {
        step = g[c] / (std::sqrt(r.state[static_cast<size_t>(row)]) + rule.eps);
      } else if (rule.kind == SparseKind::Adam) {
        r.state[at] = rule.beta1 * r.state[at] + (1 - rule.beta1) * g[c];
        r.second[at] = rule.beta2 * r.second[at] + (1 - rule.beta2) * g[c] * g[c];
        const auto t = static_cast<double>(rule.step);
        step = r.state[at] / (1 - std::pow(rule.beta1, t)) /
               (std::sqrt(r.second[at] / (1 - std::pow(rule.beta2, t))) + rule.eps);
      }
      r.table[at] -= rule.lr * step;
    }
  }
}

TEST(SparseUpdate, EveryRuleAsInItsPaperAndUntouchedRowsKeepTheirBits) {
  for (const SparseKind kind : {SparseKind::Sgd, SparseKind::Adagrad, SparseKind::RowwiseAdagrad,
                                SparseKind::Adam, SparseKind::Ftrl}) {
    for (int64_t width : {5, 16, 64}) {
      for (bool weighted : {false, true}) {
        SCOPED_TRACE(fmt::format("kind {} width {}", static_cast<int>(kind), width));
        const Bags bags(300, width, 600, 4);
        SparseRule rule{.kind = kind, .lr = 0.1, .eps = 1e-2, .step = 1, .grad_scale = 0.5};
        rule.weight_decay = weighted ? 0.3 : 0;  // Ftrl has l2 instead
        rule.beta = 0.7;
        rule.l1 = weighted ? 0.4 : 0;
        rule.l2 = weighted ? 0.2 : 0;
        Reference expected{bags.table, Values(bags.table.size()), Values(bags.table.size())};
        if (kind == SparseKind::RowwiseAdagrad) expected.state.resize(300);
        if (kind == SparseKind::Sgd) expected.state = {};
        for (rule.step = 1; rule.step <= 3; ++rule.step)
          update_reference(expected, bags, weighted,
                           random_values(600 * width, 20 + static_cast<uint64_t>(rule.step)), rule);
        check_everywhere(
            {expected.table, expected.state},
            [&](const OpTable& ops, Stream& stream, DType dtype) -> Outputs {
              const BagTensors held(bags, dtype, weighted);
              const auto elements = static_cast<int64_t>(expected.state.size());
              const Host state(dtype, {elements});
              const Host second(dtype, {300 * width});
              const LookupOrder order = held.order();
              const BagLookup lookup = held.lookup(0);
              ops.sort_lookups(stream, {&order, 1}, {&lookup, 1});
              SparseRule step = rule;
              for (step.step = 1; step.step <= 3; ++step.step) {
                const Host dy(dtype, {600, width},
                              random_values(600 * width, 20 + static_cast<uint64_t>(step.step)));
                RowUpdate update{held.table, state, second, &order, 0, {}, 0};
                ops.update_rows(stream, dy, {&update, 1}, step);
              }
              return {held.table.values(), state.values()};
            },
            1e-5, 1e-12);
      }
    }
  }
}

// Without penalties and with beta 0 the first step is that of descent at the rate alpha / |g|, so that weights that do
// not begin as 0 are moved, not lost; a gradient of 0 changes nothing; what the penalty outweighs becomes 0.
TEST(SparseUpdate, FtrlKeepsWhatItBeganWithAndMakesZeros) {
  check_everywhere(
      {{0.01, -0.15, 0.5, 0.25}, {0, 0.0625, 0.0625, 0}, {0}},
      [](const OpTable& ops, Stream& stream, DType dtype) -> Outputs {
        const Host table(dtype, {1, 4}, {0.01, -0.1, 0.55, 0.25});
        const Host z(dtype, {1, 4}), n(dtype, {1, 4});
        const Host ids(DType::I32, {1}, {0}), offsets(DType::I32, {2}, {0, 1});
        const Host row(DType::I32, {1}), begin(DType::I32, {2}), bag(DType::I32, {1});
        const Host count(DType::I64, {1}), scratch(DType::I64, {2});
        const BagLookup lookup{table, ids, offsets, {}, 0};
        const LookupOrder order{1, row, begin, bag, {}, count, scratch};
        ops.sort_lookups(stream, {&order, 1}, {&lookup, 1});
        const RowUpdate update{table, z, n, &order, 0, {}, 0};
        SparseRule rule{.kind = SparseKind::Ftrl};
        rule.beta = 0;
        const Host dy(dtype, {1, 4}, {0, 0.25, 0.25, 0});
        ops.update_rows(stream, dy, {&update, 1}, rule);
        const Values moved = table.values(), squares = n.values();
        rule.l1 = 100;
        const Host next(dtype, {1, 4}, {0.125, 0, 0, 0});
        ops.update_rows(stream, next, {&update, 1}, rule);
        return {moved, squares, {table.values()[0]}};
      },
      1e-6, 1e-12);
}

// A row cut in two: the squares of the halves, added up, give the update of the whole row.
TEST(SparseUpdate, RowwiseAdagradOfARowThatIsCut) {
  const Bags whole(50, 32, 300, 5);
  Bags left = whole;
  left.width = 16;
  left.table.clear();
  for (int64_t r = 0; r < 50; ++r)
    for (int64_t c = 0; c < 16; ++c) left.table.push_back(whole.table[static_cast<size_t>(r * 32 + c)]);
  const Values dy = random_values(300 * 32, 6);
  const SparseRule rule{.kind = SparseKind::RowwiseAdagrad, .lr = 0.1, .grad_scale = 0.5};
  Reference expected{whole.table, Values(50), {}};
  update_reference(expected, whole, false, dy, rule);
  Values expected_left;
  for (int64_t r = 0; r < 50; ++r)
    for (int64_t c = 0; c < 16; ++c) expected_left.push_back(expected.table[static_cast<size_t>(r * 32 + c)]);
  check_everywhere(
      {expected_left, expected.state},
      [&](const OpTable& ops, Stream& stream, DType dtype) -> Outputs {
        const BagTensors held(left, dtype, false);
        const LookupOrder order = held.order();
        const BagLookup lookup = held.lookup(0);
        ops.sort_lookups(stream, {&order, 1}, {&lookup, 1});
        const Host gradient(dtype, {300, 32}, dy);
        const Host state(dtype, {50});
        const Host mine(dtype, {held.n});
        const Host others(dtype, {held.n});
        RowUpdate update{held.table, state, {}, &order, 0, mine, 32};
        ops.row_squares(stream, gradient, {&update, 1}, rule.grad_scale);
        update.column = 16;
        update.squares = others;
        ops.row_squares(stream, gradient, {&update, 1}, rule.grad_scale);
        ops.add(stream, mine, mine, others);
        update.column = 0;
        update.squares = mine;
        ops.update_rows(stream, gradient, {&update, 1}, rule);
        return {held.table.values(), state.values()};
      },
      1e-5, 1e-12);
}

TEST(SparseUpdate, RowwiseAdagradIsAdagradWhereAllColumnsAgree) {
  with_every_table([](const OpTable& ops, Stream& stream) {
    const Values rows = {1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4};
    Bags bags(4, 4, 2, 7);
    bags.table = rows;
    bags.ids = {0, 3};
    bags.offsets = {0, 1, 2};
    bags.weights = {1, 1};
    const auto run = [&](SparseKind kind) {
      const BagTensors held(bags, DType::F64, false);
      const LookupOrder order = held.order();
      const BagLookup lookup = held.lookup(0);
      ops.sort_lookups(stream, {&order, 1}, {&lookup, 1});
      const Host state(DType::F64, {kind == SparseKind::Adagrad ? 16 : 4});
      const Host dy(DType::F64, {2, 4}, Values(8, 1.0));
      for (int64_t step = 1; step <= 5; ++step) {
        const RowUpdate update{held.table, state, {}, &order, 0, {}, 0};
        ops.update_rows(stream, dy, {&update, 1}, {.kind = kind, .lr = 0.1, .step = step});
      }
      return held.table.values();
    };
    const Values full = run(SparseKind::Adagrad);
    EXPECT_LE(distance(run(SparseKind::RowwiseAdagrad), full), 1e-15);
    EXPECT_NE(full[0], 1);
    EXPECT_EQ(full[4], 2);
  });
}

TEST(SparseUpdate, GradientsOfTouchedRowsAreStored) {
  const Bags bags(40, 16, 60, 8);
  const Values dy = random_values(60 * 16, 9);
  Reference expected{Values(40 * 16), {}, {}};
  update_reference(expected, bags, true, dy, {.lr = -1});
  check_everywhere({expected.table}, [&](const OpTable& ops, Stream& stream, DType dtype) -> Outputs {
    const BagTensors held(bags, dtype, true);
    const LookupOrder order = held.order();
    const BagLookup lookup = held.lookup(0);
    ops.sort_lookups(stream, {&order, 1}, {&lookup, 1});
    const Host dense(dtype, {40, 16});
    const Host touched(dtype, {40});
    const RowUpdate update{dense, touched, {}, &order, 0, {}, 0};
    ops.row_gradients(stream, Host(dtype, {60, 16}, dy), {&update, 1});
    double count = 0;
    for (double flag : touched.values()) count += flag;
    EXPECT_EQ(count, held.count.values()[0]);
    return {dense.values()};
  });
}

}  // namespace
}  // namespace trifold::ops_test
