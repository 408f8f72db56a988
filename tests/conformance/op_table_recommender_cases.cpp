// Cases of operations for recommenders.
#include <memory>

#include "conformance/op_table.h"

namespace trifold::conformance {

namespace {

void dense(std::vector<OpCase>& cases) {
  cases.push_back({"linear", entries(&OpTable::linear), false, 2, [](OpRun& run) {
                     for (bool relu : {false, true})
                       run.ops().linear(run.stream(), run.out({9, 21}), run.in({9, 33}, normal(9 * 33, 1)),
                                        run.in({21, 33}, normal(21 * 33, 2)), run.in({21}, normal(21, 3)),
                                        relu);
                   }});
  cases.push_back({"relu_backward", entries(&OpTable::relu_backward), false, 1, [](OpRun& run) {
                     for (int64_t rows : {1, 300})
                       for (int64_t columns : {3, 160}) {
                         const bool accumulate = rows > 1;
                         const Tensor dx = run.out({rows, columns}, normal(rows * columns, 1));
                         Values y = normal(rows * columns, 2);
                         for (double& x : y) x = std::max(x, 0.0);
                         run.ops().relu_backward(
                             run.stream(), dx,
                             run.out(run.wide(), {columns}, before_sum(normal(columns, 3), accumulate)), dx,
                             run.in({rows, columns}, y), accumulate);
                       }
                   }});
  cases.push_back({"cross", entries(&OpTable::cross, &OpTable::cross_backward), false, 1, [](OpRun& run) {
                     for (int64_t n : {1, 7, 2050}) {
                       const Tensor x0 = run.in({n}, normal(n, 1));
                       const Tensor u = run.in({n}, normal(n, 2));
                       const Tensor x = run.in({n}, normal(n, 3));
                       run.ops().cross(run.stream(), run.out({n}), x0, u, x);
                       run.ops().cross_backward(run.stream(), run.out({n}), run.out({n}, normal(n, 4)), x, x0,
                                                u);
                     }
                   }});
  cases.push_back(
      {"clicks", entries(&OpTable::sigmoid, &OpTable::click_loss, &OpTable::click_loss_backward), true, 1,
       [](OpRun& run) {
         for (int64_t n : {1, 9, 1030}) {
           Values logits = normal(n, 1);
           for (double& z : logits) z *= 20;
           const Tensor z = run.in({n}, logits);
           const Tensor labels = run.in(DType::F32, {n}, whole(n, 2, 2));
           const Tensor weight = run.in(DType::F32, {n}, whole(n, 3, 3));
           run.ops().sigmoid(run.stream(), run.out({n}), z);
           for (ClickLoss how : {ClickLoss::Logistic, ClickLoss::Squared}) {
             run.ops().click_loss(run.stream(), run.out({n}), z, labels, how);
             for (const Factor& scale : {Factor(0.25), Factor(0.5, run.in(DType::F64, {1}, {0.5}))})
               run.ops().click_loss_backward(run.stream(), run.out({n}), z, labels, weight, scale, how);
           }
         }
       }});
  cases.push_back({"copy_columns", entries(&OpTable::copy_columns), true, 1, [](OpRun& run) {
                     for (int64_t rows : {1, 40}) {
                       const Tensor scale = run.in({rows}, normal(rows, 1));
                       const auto& copies = run.keep<ColumnCopy>({{0, 5, 16, false, {}},
                                                                  {16, 0, 7, false, scale},
                                                                  {2, 3, 11, true, {}},
                                                                  {0, 8, 4, true, scale}});
                       run.ops().copy_columns(run.stream(), run.out({rows, 24}, normal(rows * 24, 2)),
                                              run.in({rows, 21}, normal(rows * 21, 3)), copies);
                     }
                   }});
  cases.push_back({"copy_rows", entries(&OpTable::copy_rows), true, 0, [](OpRun& run) {
                     for (int64_t width : {1, 7, 40})
                       run.ops().copy_rows(run.stream(), run.out({20, width}, normal(20 * width, 1)),
                                           run.in(DType::I32, {9}, {3, 0, 19, 8, 4, 5, 6, 11, 2}),
                                           run.in({6, width}, normal(6 * width, 2)),
                                           run.in(DType::I32, {9}, {5, 5, 0, 1, 2, 3, 4, 0, 1}));
                   }});
  cases.push_back({"inverse_root", entries(&OpTable::inverse_root), true, 1, [](OpRun& run) {
                     for (int64_t n : {1, 9, 1030}) {
                       Values x = normal(n, 1);
                       for (double& number : x) number *= number;
                       run.ops().inverse_root(run.stream(), run.out({n}), run.in({n}, x), 1e-5);
                     }
                   }});
  cases.push_back({"dot_interaction", entries(&OpTable::dot_interaction, &OpTable::dot_interaction_backward),
                   true, 4, [](OpRun& run) {
                     // Vectors of every number of lanes, whole and ragged, of several strips; more vectors than a
                     // thread holds.
                     for (const auto& [vectors, width] : {std::pair<int64_t, int64_t>{27, 128},
                                                          {1, 4},
                                                          {5, 7},
                                                          {9, 70},
                                                          {50, 3},
                                                          {8, 32},
                                                          {2, 140},
                                                          {40, 64},
                                                          {48, 6}})
                       for (bool self : {false, true}) {
                         const int64_t rows = vectors < 9 ? 9 : 3;  // several blocks, and a part of one
                         const int64_t out = width + vectors * (self ? vectors + 1 : vectors - 1) / 2;
                         const Tensor x = run.in({rows, vectors * width}, normal(rows * vectors * width, 1));
                         run.ops().dot_interaction(run.stream(), run.out({rows, out}), x, width, self);
                         run.ops().dot_interaction_backward(run.stream(), run.out({rows, vectors * width}),
                                                            run.in({rows, out}, normal(rows * out, 2)), x,
                                                            width, self);
                       }
                   }});
}

// Bags of a table: some empty, with duplicates, and all of them looking up row 0 where `hot`.
struct Bags {
  int64_t rows, width, bags;
  bool hot;
  Values ids, offsets, weights;

  Bags(int64_t rows_, int64_t width_, int64_t bags_, bool hot_, uint64_t seed)
      : rows(rows_), width(width_), bags(bags_), hot(hot_) {
    const Values lengths = whole(bags, seed, 4);
    offsets.push_back(0);
    for (double length : lengths) offsets.push_back(offsets.back() + length + (hot ? 1 : 0));
    const auto n = static_cast<int64_t>(offsets.back());
    ids = whole(n, seed + 1, rows);
    if (hot)
      for (size_t b = 0; b < lengths.size(); ++b) ids[static_cast<size_t>(offsets[b])] = 0;
    weights = whole(n, seed + 2, 5);
  }
  int64_t lookups() const { return static_cast<int64_t>(ids.size()); }
};

std::vector<Bags> some_bags() {
  return {{40, 16, 60, false, 1}, {3, 5, 90, true, 2},     {50, 130, 30, false, 3}, {70000, 2, 30, false, 6},
          {1, 1, 5, true, 4},     {900, 8, 1500, true, 5}, {2, 4, 400, true, 7}};
}

BagLookup lookup_of(OpRun& run, const Bags& bags, const Tensor& table, bool weighted, int64_t column) {
  const int64_t n = bags.lookups();
  return {table, run.in(DType::I32, {n}, bags.ids), run.in(DType::I32, {bags.bags + 1}, bags.offsets),
          weighted ? run.in(DType::F32, {n}, bags.weights) : Tensor{}, column};
}

LookupOrder order_of(OpRun& run, const Bags& bags, bool weighted) {
  const int64_t n = bags.lookups();
  return {bags.rows,
          run.in(DType::I32, {n}, Values(size_t(n), 0)),
          run.in(DType::I32, {n + 1}, Values(size_t(n) + 1, 0)),
          run.exact(DType::I32, {n}),
          weighted ? run.exact(DType::F32, {n}) : Tensor{},
          run.exact(DType::I64, {1}),
          run.in(DType::I64, {2 * n}, {})};
}

// Sorts the lookups of some tables at once; what is touched is compared through sums later, for entries of
// `row` and `begin` beyond `count` mean nothing.
struct Sorted {
  const std::vector<BagLookup>* lookups;
  const std::vector<LookupOrder>* orders;
};
Sorted sorted(OpRun& run, const std::vector<Bags>& all, bool weighted) {
  std::vector<BagLookup> lookups;
  std::vector<LookupOrder> orders;
  for (const Bags& bags : all) {
    lookups.push_back(lookup_of(run, bags, run.in({bags.rows, 1}, {}), weighted, 0));
    orders.push_back(order_of(run, bags, weighted));
  }
  const Sorted result{&run.keep(std::move(lookups)), &run.keep(std::move(orders))};
  run.ops().sort_lookups(run.stream(), *result.orders, *result.lookups);
  return result;
}

void bags(std::vector<OpCase>& cases) {
  cases.push_back(
      {"embedding_bags", entries(&OpTable::embedding_bags), true, 1, [](OpRun& run) {
         for (bool weighted : {false, true})
           for (const Bags& bags : some_bags()) {
             const int64_t size = bags.rows * bags.width;
             const Tensor table = run.in({bags.rows, bags.width}, normal(size, 5));
             const auto& lookups =
                 run.keep<BagLookup>({lookup_of(run, bags, table, weighted, 4),
                                      lookup_of(run, bags, table, !weighted, 8 + bags.width)});
             const int64_t columns = (bags.width % 4 == 0 ? 12 : 9) + 2 * bags.width;  // whole packs, or not
             run.ops().embedding_bags(run.stream(),
                                      run.out({bags.bags, columns}, normal(bags.bags * columns, 6)), lookups);
           }
       }});
  cases.push_back({"sort_lookups", entries(&OpTable::sort_lookups), true, 1, [](OpRun& run) {
                     for (bool weighted : {false, true}) sorted(run, some_bags(), weighted);
                   }});
}

// What an update is given besides its order; see RowUpdate.
enum class Given { Nothing, Squares, Touched };

// Calls update(update list, gradient) over tables of several shapes; state and second moment are compared.
void with_updates(OpRun& run, bool row_state, Given given,
                  const std::function<void(const Tensor& dy, std::span<const RowUpdate>)>& update) {
  for (bool weighted : {false, true})
    for (const Bags& one : some_bags()) {
      if (one.rows > 1000) continue;              // the tables are compared whole
      if (weighted && one.bags > 1000) continue;  // once is enough for the emulation's time
      const Sorted order = sorted(run, {one}, weighted);
      const int64_t size = one.rows * one.width;
      const int64_t column = one.width % 4 == 0 ? 4 : 3;  // whole packs, or not
      const int64_t columns = one.width + column + 4;
      Values state = whole(size, 7, 3);
      Tensor squares;
      if (given == Given::Squares) squares = run.in({one.lookups()}, whole(one.lookups(), 8, 9));
      Tensor touched;
      if (given == Given::Touched) touched = run.in({one.lookups()}, whole(one.lookups(), 11, 2));
      const auto& updates =
          run.keep<RowUpdate>({{run.out({one.rows, one.width}, normal(size, 9)),
                                run.out(row_state ? Shape{one.rows} : Shape{one.rows, one.width}, state),
                                run.out({one.rows, one.width}, state), order.orders->data(), column, squares,
                                2 * one.width, touched}});
      update(run.in({one.bags, columns}, normal(one.bags * columns, 10)), updates);
    }
}

void row_updates(std::vector<OpCase>& cases) {
  for (SparseKind kind :
       {SparseKind::Sgd, SparseKind::Adagrad, SparseKind::RowwiseAdagrad, SparseKind::Adam, SparseKind::Ftrl})
    for (Given given : {Given::Nothing, Given::Squares, Given::Touched}) {
      if (given == Given::Squares && kind != SparseKind::RowwiseAdagrad) continue;
      cases.push_back({"update_rows " + std::to_string(static_cast<int>(kind)),
                       entries(&OpTable::update_rows), true, 20, [kind, given](OpRun& run) {
                         SparseRule rule{.kind = kind, .lr = 0.1, .eps = 0.01, .step = 2, .grad_scale = 0.5};
                         rule.weight_decay = given == Given::Touched ? 0.2 : 0;
                         rule.l1 = 0.1;
                         rule.l2 = 0.3;
                         const auto update = [&](const Tensor& dy, std::span<const RowUpdate> updates) {
                           run.ops().update_rows(run.stream(), dy, updates, rule);
                         };
                         with_updates(run, kind == SparseKind::RowwiseAdagrad, given, update);
                         const RuleNumbers numbers = numbers_of(rule);
                         rule.lr = 100;
                         rule.numbers = run.in(DType::F64, {static_cast<int64_t>(kRuleNumbers)},
                                               {numbers.begin(), numbers.end()});
                         with_updates(run, kind == SparseKind::RowwiseAdagrad, given, update);
                       }});
    }
  cases.push_back({"row_gradients", entries(&OpTable::row_gradients), true, 20, [](OpRun& run) {
                     with_updates(run, true, Given::Nothing,
                                  [&](const Tensor& dy, std::span<const RowUpdate> updates) {
                                    run.ops().row_gradients(run.stream(), dy, updates);
                                  });
                   }});
  cases.push_back({"row_squares", entries(&OpTable::row_squares), true, 20, [](OpRun& run) {
                     for (bool weighted : {false, true})
                       for (const Bags& one : some_bags()) {
                         const Sorted order = sorted(run, {one}, weighted);
                         const int64_t columns = one.width + 7;
                         const auto n = static_cast<size_t>(one.lookups());
                         const auto& updates = run.keep<RowUpdate>({{run.in({one.rows, one.width}, {}),
                                                                     {},
                                                                     {},
                                                                     order.orders->data(),
                                                                     3,
                                                                     run.out({one.lookups()}, Values(n, 0)),
                                                                     0}});
                         run.ops().row_squares(run.stream(),
                                               run.in({one.bags, columns}, normal(one.bags * columns, 10)),
                                               updates, 0.5);
                       }
                   }});
}

}  // namespace

std::vector<OpCase> recommender_op_cases() {
  std::vector<OpCase> cases;
  dense(cases);
  bags(cases);
  row_updates(cases);
  return cases;
}

}  // namespace trifold::conformance
