// Cases of operations on strided views, softmax and batched products.
#include <array>
#include <cmath>
#include <limits>

#include "conformance/op_table.h"
#include "support/views.h"

namespace trifold::conformance {

namespace {

using test::Draw;
using test::FittedView;
using test::random_view;

Tensor numbers(OpRun& run, DType dtype, int64_t count, uint64_t seed) {
  return run.in(dtype, {count}, normal(count, seed));
}

// The types that strided_copy converts the type under test to and from.
constexpr DType kWideTypes[] = {DType::F32, DType::F64};

void copies_of_views(OpRun& run) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    Draw draw(seed);
    const Box box = draw.box(6);
    const FittedView to = random_view(draw, box, 0), from = random_view(draw, box, 4);
    const auto copy = [&](DType y, DType x) {
      run.ops().strided_copy(run.stream(), run.exact(y, {to.elements}), to.view,
                             numbers(run, x, from.elements, seed), from.view, box);
    };
    copy(run.dtype(), run.dtype());
    for (DType wide : kWideTypes) {
      copy(wide, run.dtype());
      copy(run.dtype(), wide);
    }
    run.ops().strided_copy(run.stream(), run.exact(DType::I32, {to.elements}), to.view,
                           run.in(DType::I32, {from.elements}, whole(from.elements, seed, 1000)), from.view,
                           box);
  }
}

void sum(OpRun& run, const Box& box, const FittedView& to, const FittedView& from, uint64_t seed) {
  const Tensor x = numbers(run, run.dtype(), from.elements, seed);
  for (DType y : {run.dtype(), run.wide(), DType::F64})
    for (bool accumulate : {false, true})
      run.ops().strided_sum(run.stream(), run.out(y, {to.elements}, normal(to.elements, seed + 1)), to.view,
                            x, from.view, box, accumulate ? 0.75 : -2, accumulate);
}

void sums_of_views(OpRun& run) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    Draw draw(seed + 100);
    const Box box = draw.box(6);
    const FittedView to = random_view(draw, box, 2);
    sum(run, box, to, random_view(draw, box, 5), seed);
  }
}

// Sums with many terms: over rows, over columns, and of everything, whole and in parts.
void long_sums(OpRun& run) {
  const auto over = [&](const Box& box, const AxisNumbers& to, int64_t elements) {
    sum(run, box, {{0, to}, elements}, {contiguous_view(box), box.elements()}, 7);
  };
  over({2, {1000, 5}}, {0, 1}, 5);
  over({2, {5, 9000}}, {1, 0}, 5);
  over({2, {300, 70}}, {1, 0}, 300);
  over({1, {20000}}, {0}, 1);
  over({3, {30, 40, 7}}, {0, 1, 0}, 40);
}

// Functions of numbers for which all of them are defined: small, positive, and some of them equal.
void every_function(OpRun& run, int64_t count, const std::array<AxisNumbers, 3>& strides, const Box& box) {
  std::array<Tensor, 3> x;
  for (size_t i = 0; i < x.size(); ++i) {
    Values values = normal(count, i + 1);
    for (size_t e = 0; e < values.size(); ++e)
      values[e] = e % 5 == 2 ? 1.5 : std::min(std::abs(values[e]), 3.0) + 0.5;
    x[i] = run.in({count}, values);
  }
  for (int number = 0; number < kMapOps; ++number) {
    const auto op = static_cast<MapOp>(number);
    run.ops().map(run.stream(), run.out({box.elements()}),
                  std::span(x).first(static_cast<size_t>(inputs_of(op))),
                  {op,
                   0.75,
                   1.25,
                   box,
                   {StridedView{0, strides[0]}, StridedView{0, strides[1]}, StridedView{0, strides[2]}}});
  }
}

void views_of_maps(OpRun& run) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    Draw draw(seed + 200);
    const Box box = draw.box(6);
    const MapOp op = std::array{MapOp::Linear, MapOp::Add, MapOp::Where}[seed % 3];
    Map map{op, 0.75, 0.25, box, {}};
    std::vector<Tensor> x;
    for (size_t i = 0; i < size_t(inputs_of(op)); ++i) {
      const FittedView from = random_view(draw, box, 4);
      map.from[i] = from.view;
      x.push_back(op == MapOp::Where && i == 0 ? run.in({from.elements}, whole(from.elements, seed, 2))
                                               : numbers(run, run.dtype(), from.elements, seed + i));
    }
    run.ops().map(run.stream(), run.out({box.elements()}), x, map);
  }
  const Box matrix{2, {40, 70}};
  const Tensor y = run.out({40, 70}, normal(2800, 1));
  run.ops().map(run.stream(), y, std::array{y, run.in({70}, normal(70, 2))},
                {MapOp::Add, -0.5, 0, matrix, {contiguous_view(matrix), StridedView{0, {0, 1}}}});
}

// One row, one column, odd ends, rows of several warps.
constexpr std::pair<int64_t, int64_t> kRows[] = {{1, 1}, {70, 3}, {5, 13}, {37, 128}, {3, 1600}, {1, 4101}};

void softmax_of_rows(OpRun& run) {
  for (const auto& [rows, columns] : kRows) {
    const Shape shape{rows, columns};
    Values x = normal(rows * columns, 1);
    for (double& number : x) number *= 4;
    for (int64_t c = 0; c < columns; ++c)
      if (rows > 1 || c % 3 == 1) x[size_t(c)] = -std::numeric_limits<double>::infinity();
    const Tensor y = run.out(shape, x);
    run.ops().softmax(run.stream(), y, y);
    const Tensor dx = run.out(shape, normal(rows * columns, 2));
    run.ops().softmax_backward(run.stream(), dx, dx, run.in(shape, normal(rows * columns, 3)));
  }
}

void log_softmax_of_rows(OpRun& run) {
  for (const auto& [rows, columns] : kRows) {
    const Shape shape{rows, columns};
    Values x = normal(rows * columns, 1);
    for (double& number : x) number *= 4;
    const Tensor y = run.out(shape, x);
    run.ops().log_softmax(run.stream(), y, y);
    Values log_probabilities = normal(rows * columns, 3);
    for (double& number : log_probabilities) number = -std::abs(number) - std::log(double(columns));
    const Tensor dx = run.out(shape, normal(rows * columns, 2));
    run.ops().log_softmax_backward(run.stream(), dx, dx, run.in(shape, log_probabilities));
  }
}

// Heads of attention in their packed order: rows of a head are `heads` heads apart.
void products_of_heads(OpRun& run) {
  const int64_t batch = 2, heads = 3, m = 21, n = 18, k = 35;
  for (bool ta : {false, true})
    for (bool tb : {false, true}) {
      BatchedProduct product{batch, heads, m, n, k, {}, {}, {}, 1, 0};
      const auto place = [&](MatrixBatch& matrices, int64_t rows, int64_t columns, bool transposed) {
        if (transposed) std::swap(rows, columns);
        matrices = {1, rows * heads * columns, columns, heads * columns, transposed};
        return 1 + batch * rows * heads * columns;
      };
      const int64_t of_a = place(product.a, m, k, ta), of_b = place(product.b, k, n, tb),
                    of_c = place(product.c, m, n, false);
      const Tensor a = run.in({of_a}, normal(of_a, 1)), b = run.in({of_b}, normal(of_b, 2));
      run.ops().batched_product(run.stream(), run.out({of_c}, normal(of_c, 3)), a, b, product);
      product.b.outer = 0;
      product.alpha = 0.5;
      product.beta = -1;
      run.ops().batched_product(run.stream(), run.out(run.wide(), {of_c}, normal(of_c, 3)), a, b, product);
    }
}

}  // namespace

std::vector<OpCase> strided_op_cases() {
  std::vector<OpCase> cases;
  cases.push_back({"strided_copy", entries(&OpTable::strided_copy), false, 1, copies_of_views});
  cases.push_back({"strided_sum", entries(&OpTable::strided_sum), false, 1, sums_of_views});
  cases.push_back({"strided_sum of many terms", entries(&OpTable::strided_sum), false, 1, long_sums});
  cases.push_back({"map", entries(&OpTable::map), false, 2, [](OpRun& run) {
                     every_function(run, 1500, {AxisNumbers{1}, {1}, {1}}, {1, {1500}});
                   }});
  cases.push_back({"map of views", entries(&OpTable::map), false, 1, views_of_maps});
  cases.push_back(
      {"softmax", entries(&OpTable::softmax, &OpTable::softmax_backward), false, 4, softmax_of_rows});
  cases.push_back({"log_softmax", entries(&OpTable::log_softmax, &OpTable::log_softmax_backward), false, 4,
                   log_softmax_of_rows});
  cases.push_back({"batched_product", entries(&OpTable::batched_product), false, 4, products_of_heads});
  return cases;
}

}  // namespace trifold::conformance
