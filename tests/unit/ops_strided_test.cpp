// Copies, sums and products of strided views against plain loops.
#include "ops/contract.h"
#include "ops/counting.h"
#include "support/views.h"
#include "unit/ops_support.h"

namespace trifold::ops_test {
namespace {

using test::Draw;
using test::FittedView;
using test::over_box;
using test::place;
using test::random_view;

TEST(StridedCopy, IsTheLoop) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(fmt::format("box {}", seed));
    Draw draw(seed);
    const Box box = draw.box(seed % 10 == 0 ? 12 : 5);
    const FittedView to = random_view(draw, box, 0);
    const FittedView from = random_view(draw, box, seed % 2 == 0 ? 0 : 4);
    const Values x = random_values(from.elements, seed);
    Values y = random_values(to.elements, seed + 1000);
    const Values before = y;
    over_box(box, [&](const AxisNumbers& i) { y[place(to.view, i)] = x[place(from.view, i)]; });
    check_everywhere(
        {y},
        [&](const OpTable& ops, Stream& stream, DType dtype) {
          const Host out(dtype, {to.elements}, before);
          ops.strided_copy(stream, out, to.view, Host(dtype, {from.elements}, x), from.view, box);
          return Outputs{out.values()};
        },
        0, 0);
  }
}

// [B, T, H, D] -> [B, H, T, D], large enough for several workers, and a transposed matrix.
TEST(StridedCopy, TransposesTensors) {
  const int64_t b = 3, t = 70, h = 12, d = 64;
  const Box heads{4, {b, h, t, d}};
  const StridedView from{0, {t * h * d, d, h * d, 1}};
  const Box matrix{2, {b * t * h, d}};
  const StridedView turned{0, {1, b * t * h}};
  const Values x = random_values(b * t * h * d, 1);
  Values of_heads(x.size()), of_matrix(x.size());
  over_box(heads,
           [&](const AxisNumbers& i) { of_heads[place(contiguous_view(heads), i)] = x[place(from, i)]; });
  over_box(matrix,
           [&](const AxisNumbers& i) { of_matrix[place(contiguous_view(matrix), i)] = x[place(turned, i)]; });
  check_everywhere(
      {of_heads, of_matrix},
      [&](const OpTable& ops, Stream& stream, DType dtype) {
        const Host in(dtype, {b * t, h * d}, x), out(dtype, {b * h, t * d}), other(dtype, {b * t * h, d});
        ops.strided_copy(stream, out, contiguous_view(heads), in, from, heads);
        ops.strided_copy(stream, other, contiguous_view(matrix), in, turned, matrix);
        return Outputs{out.values(), other.values()};
      },
      0, 0);
}

// Boxes that are copied square by square, with rests along both axes, some backwards and with other axes around.
TEST(StridedCopy, TransposesSquares) {
  for (const auto& [extents, strides] : {std::pair<Box, AxisNumbers>{{2, {37, 50}}, {1, 37}},
                                         {{2, {32, 48}}, {1, 32}},
                                         {{3, {3, 33, 20}}, {660, 1, 33}},
                                         {{3, {35, 3, 20}}, {1, 700, 35}},
                                         {{4, {2, 19, 3, 40}}, {40 * 57, 1, 19 * 40, 19}},
                                         {{2, {15, 100}}, {1, 15}}}) {
    const Box box = extents;
    SCOPED_TRACE(fmt::format("extents {}, {}, {}, {}", box.extents[0], box.extents[1], box.extents[2],
                             box.extents[3]));
    const int64_t count = box.elements();
    const Values x = random_values(count, 1);
    StridedView from{0, strides};
    from.strides[0] = -strides[0];
    from.begin = (box.extents[0] - 1) * strides[0];
    Values y(x.size());
    over_box(box, [&](const AxisNumbers& i) { y[place(contiguous_view(box), i)] = x[place(from, i)]; });
    check_everywhere(
        {y},
        [&](const OpTable& ops, Stream& stream, DType dtype) {
          const Host out(dtype, {count});
          ops.strided_copy(stream, out, contiguous_view(box), Host(dtype, {count}, x), from, box);
          return Outputs{out.values()};
        },
        0, 0);
  }
}

// Numbers that f32 would round half way between two 16-bit ones, infinities, the smallest numbers, NaN.
TEST(StridedCopy, ConvertsWithOneRounding) {
  const Values numbers{1 + 0x1p-8 + 0x1p-30,
                       1 + 0x1p-8 - 0x1p-30,
                       -1 - 0x1p-8 - 0x1p-40,
                       1 + 0x1p-11 + 0x1p-40,
                       -1 - 0x1p-11 - 0x1p-40,
                       65519.99999999,
                       65520,
                       1e300,
                       -1e300,
                       0x1p-25 + 0x1p-60,
                       0x1p-25,
                       3.25,
                       0,
                       -0.0,
                       INFINITY,
                       -INFINITY,
                       1e-45,
                       0x1.fffffefp127,
                       -7,
                       0x1p-149};
  const auto count = static_cast<int64_t>(numbers.size());
  const Box box{1, {count}};
  const StridedView forwards{0, {1}}, backwards{count - 1, {-1}};
  with_every_table([&](const OpTable& ops, Stream& stream) {
    for (DType x : {DType::F64, DType::F32, DType::BF16, DType::F16, DType::I32})
      for (DType y : {DType::F64, DType::F32, DType::BF16, DType::F16, DType::I32}) {
        const auto wide = [](DType dtype) { return dtype == DType::F64 || dtype == DType::F32; };
        const bool whole = x == DType::I32 || y == DType::I32;
        if (x != y && (whole || (!wide(x) && !wide(y)))) continue;
        SCOPED_TRACE(fmt::format("{} -> {}", name_of(x), name_of(y)));
        const Host in(x, {count}, whole ? Values(numbers.size(), -7) : numbers), out(y, {count});
        ops.strided_copy(stream, out, backwards, in, forwards, box);
        Values expected = in.values();
        std::reverse(expected.begin(), expected.end());
        EXPECT_EQ(out.values(), Host(y, {count}, expected).values());
      }
    const Host in(DType::F64, {1}, {NAN});
    for (DType y : {DType::F64, DType::F32, DType::BF16, DType::F16}) {
      const Host out(y, {1});
      ops.strided_copy(stream, out, {}, in, {}, {});
      EXPECT_TRUE(std::isnan(out.values()[0])) << name_of(y);
    }
  });
}

struct SumCase {
  Box box;
  FittedView to, from;
};

void check_sum(const SumCase& one, uint64_t seed, double f32_tolerance = 1e-6) {
  const Box& box = one.box;
  const FittedView &to = one.to, &from = one.from;
  const Values x = random_values(from.elements, seed);
  const Values before = random_values(to.elements, seed + 1000);
  Values added = before, assigned = before;
  over_box(box, [&](const AxisNumbers& i) { assigned[place(to.view, i)] = 0; });
  over_box(box, [&](const AxisNumbers& i) {
    added[place(to.view, i)] += 0.75 * x[place(from.view, i)];
    assigned[place(to.view, i)] -= 2 * x[place(from.view, i)];
  });
  check_everywhere(
      {added, assigned, assigned},
      [&](const OpTable& ops, Stream& stream, DType dtype) {
        const Host in(dtype, {from.elements}, x);
        const Host sum(dtype, {to.elements}, before), next(dtype, {to.elements}, before);
        const Host wide(DType::F64, {to.elements}, before);
        ops.strided_sum(stream, sum, to.view, in, from.view, box, 0.75, true);
        ops.strided_sum(stream, next, to.view, in, from.view, box, -2, false);
        ops.strided_sum(stream, wide, to.view, in, from.view, box, -2, false);
        return Outputs{sum.values(), next.values(), wide.values()};
      },
      f32_tolerance);
}

TEST(StridedSum, IsTheLoop) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(fmt::format("box {}", seed));
    Draw draw(seed + 500);
    SumCase one{draw.box(seed % 10 == 0 ? 10 : 5), {}, {}};
    one.to = random_view(draw, one.box, 2);
    one.from = random_view(draw, one.box, seed % 3 == 0 ? 5 : 0);
    check_sum(one, seed);
  }
}

// Sums that are divided among workers: over rows, over columns, over both ends, of everything, of single elements.
TEST(StridedSum, IsTheLoopForLargeTensors) {
  const auto check_of = [](const Box& box, const AxisNumbers& to) {
    int64_t elements = 1, x_elements = box.elements();
    for (size_t axis = 0; axis < size_t(box.rank); ++axis)
      elements += to[axis] * std::max<int64_t>(0, box.extents[axis] - 1);
    check_sum({box, {{0, to}, elements}, {contiguous_view(box), x_elements}}, 3);
  };
  check_of({2, {3000, 70}}, {0, 1});
  check_of({2, {70, 3000}}, {1, 0});
  check_of({2, {400, 700}}, {0, 1});
  check_of({3, {40, 50, 60}}, {0, 1, 0});
  check_of({3, {40, 50, 60}}, {60, 0, 1});
  check_of({1, {200000}}, {0});
  check_of({1, {100000}}, {1});
}

TEST(StridedSum, OfNoTermsIsZero) {
  with_every_table([](const OpTable& ops, Stream& stream) {
    const Host y(DType::F32, {3}, {1, 2, 3}), x(DType::F32, {0});
    const Box box{2, {0, 3}};
    ops.strided_sum(stream, y, {0, {0, 1}}, x, {0, {3, 1}}, box, 1, true);
    EXPECT_EQ(y.values(), (Values{1, 2, 3}));
    ops.strided_sum(stream, y, {0, {0, 1}}, x, {0, {3, 1}}, box, 1, false);
    EXPECT_EQ(y.values(), (Values{0, 0, 0}));
    const Host z(DType::F32, {3}, {1, 2, 3});
    ops.strided_sum(stream, z, {0, {0, 0, 1}}, x, {0, {5, 3, 1}}, {3, {2, 0, 3}}, 1, false);
    EXPECT_EQ(z.values(), (Values{0, 0, 0}));
  });
}

// Sums of 16-bit numbers are exact in f64, and rounded as results of computation in f32 are.
TEST(StridedSum, OfSixteenBits) {
  with_every_table([](const OpTable& ops, Stream& stream) {
    for (DType dtype : {DType::BF16, DType::F16}) {
      const int64_t rows = 300, columns = 19;
      const Host x(dtype, {rows, columns}, random_values(rows * columns, 4));
      const Box box{2, {rows, columns}};
      const Values numbers = x.values();
      Values expected(size_t(columns), 0);
      for (size_t i = 0; i < numbers.size(); ++i) expected[i % size_t(columns)] += numbers[i];
      const Values in_f32 = Host(DType::F32, {columns}, expected).values();
      for (DType type : {dtype, DType::F32, DType::F64}) {
        const Host y(type, {columns});
        ops.strided_sum(stream, y, {0, {0, 1}}, x, contiguous_view(box), box, 1, false);
        EXPECT_EQ(y.values(), type == DType::F64 ? expected : Host(type, {columns}, in_f32).values())
            << name_of(dtype) << " in " << name_of(type);
      }
    }
  });
}

// ---- products ----

struct ProductCase {
  int64_t outer, inner, m, n, k;
};

// The operands of a batch with gaps between rows and matrices; a is shared by inner matrices, and b by outer ones if
// `shared`.
BatchedProduct product_of(const ProductCase& one, bool transpose_a, bool transpose_b, bool shared) {
  BatchedProduct batch;
  batch.outer = one.outer;
  batch.inner = one.inner;
  batch.m = one.m;
  batch.n = one.n;
  batch.k = one.k;
  const auto place = [&](MatrixBatch& matrices, int64_t rows, int64_t columns, bool transposed) {
    if (transposed) std::swap(rows, columns);
    matrices.transposed = transposed;
    matrices.begin = 2;
    matrices.row = columns + 3;
    matrices.outer = rows * matrices.row + 1;  // inner matrices are farther apart than outer ones
    matrices.inner = matrices.outer * one.outer;
  };
  place(batch.a, one.m, one.k, transpose_a);
  place(batch.b, one.k, one.n, transpose_b);
  place(batch.c, one.m, one.n, false);
  if (shared) {
    batch.a.inner = 0;
    batch.b.outer = 0;
  }
  return batch;
}

int64_t elements_of(const MatrixBatch& batch, const ProductCase& one, int64_t rows, int64_t columns) {
  if (batch.transposed) std::swap(rows, columns);
  return batch.begin + batch.outer * (one.outer - 1) + batch.inner * (one.inner - 1) +
         batch.row * std::max<int64_t>(0, rows - 1) + columns;
}

double element(const Values& x, const MatrixBatch& batch, int64_t o, int64_t i, int64_t row, int64_t column) {
  if (batch.transposed) std::swap(row, column);
  return x[size_t(batch.begin + o * batch.outer + i * batch.inner + row * batch.row + column)];
}

Values product(const BatchedProduct& batch, const Values& a, const Values& b, Values c) {
  for (int64_t o = 0; o < batch.outer; ++o)
    for (int64_t i = 0; i < batch.inner; ++i)
      for (int64_t row = 0; row < batch.m; ++row)
        for (int64_t column = 0; column < batch.n; ++column) {
          double sum = 0;
          for (int64_t d = 0; d < batch.k; ++d)
            sum += element(a, batch.a, o, i, row, d) * element(b, batch.b, o, i, d, column);
          double& out =
              c[size_t(batch.c.begin + o * batch.c.outer + i * batch.c.inner + row * batch.c.row + column)];
          out = batch.alpha * sum + (batch.beta == 0 ? 0 : batch.beta * out);
        }
  return c;
}

void check_product(const ProductCase& one, bool transpose_a, bool transpose_b, bool shared) {
  SCOPED_TRACE(fmt::format("{} x {} of [{}, {}] x [{}, {}], transposed {} {}, shared {}", one.outer,
                           one.inner, one.m, one.k, one.k, one.n, transpose_a, transpose_b, shared));
  BatchedProduct batch = product_of(one, transpose_a, transpose_b, shared);
  const Values a = random_values(elements_of(batch.a, one, one.m, one.k), 1);
  const Values b = random_values(elements_of(batch.b, one, one.k, one.n), 2);
  const Values c = random_values(elements_of(batch.c, one, one.m, one.n), 3);
  for (const double beta : {0.0, 0.5}) {
    batch.alpha = beta == 0 ? 1 : -0.75;
    batch.beta = beta;
    check_everywhere(
        {product(batch, a, b, c)},
        [&](const OpTable& ops, Stream& stream, DType dtype) {
          const auto host = [&](const Values& values) {
            return Host(dtype, {static_cast<int64_t>(values.size())}, values);
          };
          const Host out = host(c);
          ops.batched_product(stream, out, host(a), host(b), batch);
          return Outputs{out.values()};
        },
        4e-6);
  }
}

TEST(BatchedProduct, IsTheLoop) {
  for (bool transpose_a : {false, true})
    for (bool transpose_b : {false, true})
      for (bool shared : {false, true}) {
        check_product({3, 7, 5, 9, 11}, transpose_a, transpose_b, shared);     // one worker each
        check_product({1, 2, 130, 70, 33}, transpose_a, transpose_b, shared);  // in tiles
      }
  check_product({1, 1, 600, 500, 3}, false, true, false);
  check_product({2, 3, 1, 1, 1}, false, false, false);
  check_product({2, 3, 4, 5, 0}, false, false, false);
}

TEST(BatchedProduct, OfSixteenBitsIsRoundedOnce) {
  const ProductCase one{2, 3, 9, 10, 40};
  const BatchedProduct batch = product_of(one, false, true, false);
  with_every_table([&](const OpTable& ops, Stream& stream) {
    for (DType dtype : {DType::BF16, DType::F16}) {
      const int64_t of_a = elements_of(batch.a, one, one.m, one.k);
      const int64_t of_b = elements_of(batch.b, one, one.k, one.n);
      const int64_t of_c = elements_of(batch.c, one, one.m, one.n);
      const Host a(dtype, {of_a}, random_values(of_a, 1)), b(dtype, {of_b}, random_values(of_b, 2));
      const Host narrow(dtype, {of_c}), wide(DType::F32, {of_c});
      ops.batched_product(stream, narrow, a, b, batch);
      ops.batched_product(stream, wide, a, b, batch);
      const Values exact = product(batch, a.values(), b.values(), Values(size_t(of_c), 0));
      EXPECT_LE(distance(wide.values(), exact), 1e-6);
      EXPECT_LE(distance(narrow.values(), exact), dtype == DType::BF16 ? 0x1p-8 : 0x1p-11);
    }
  });
}

// ---- contract and counts ----

struct DryRun {
  ThreadPool pool{1};
  Stream stream{Stream::Mode::Dry, pool};
};

Tensor dry(DType dtype, std::initializer_list<int64_t> extents) { return {nullptr, dtype, extents}; }

TEST(StridedContract, ViewsStayInsideTheirTensors) {
  const OpTable& ops = cpu_ops();
  DryRun run;
  const Tensor x = dry(DType::F32, {4, 3}), y = dry(DType::F32, {12});
  const Box box{2, {3, 4}};
  const auto copied = [&](const StridedView& to, const StridedView& from) {
    return error_of([&] { ops.strided_copy(run.stream, y, to, x, from, box); });
  };
  EXPECT_EQ(copied({0, {4, 1}}, {0, {1, 3}}), "");
  EXPECT_EQ(copied({0, {4, 1}}, {2, {-1, 3}}), "");
  EXPECT_EQ(copied({0, {4, 1}}, {1, {-1, 3}}),
            "strided_copy: the view of x begins at element 1 with strides [-1, 3] over extents [3, 4], so it "
            "reaches from element -1 to 10, but f32 [4, 3] has elements 0 to 11");
  EXPECT_EQ(copied({1, {4, 1}}, {0, {1, 3}}),
            "strided_copy: the view of y begins at element 1 with strides [4, 1] over extents [3, 4], so it "
            "reaches from element 1 to 12, but f32 [12] has elements 0 to 11");
  EXPECT_EQ(
      copied({0, {4, 0}}, {0, {1, 3}}),
      "strided_copy: axis 1 has stride 0 in y and extent 4, so 4 elements of x would be written to one of "
      "y; the stride must not be 0");
  EXPECT_EQ(
      copied({0, {INT64_MAX, 1}}, {0, {1, 3}}),
      "strided_copy: the view of y begins at element 0 with strides [9223372036854775807, 1] over extents "
      "[3, 4], so it reaches from element below 2^63 to above 2^63, but f32 [12] has elements 0 to 11");
  EXPECT_EQ(error_of([&] {
              ops.strided_copy(run.stream, y, {}, x, {}, {7, {}});
            }),
            "a box has rank 7, but ranks from 0 to 6 are supported");
  EXPECT_EQ(error_of([&] {
              ops.strided_copy(run.stream, y, {}, x, {}, {1, {-2}});
            }),
            "axis 0 of a box has extent -2, which must not be negative");
  EXPECT_EQ(
      error_of(
          [&] { ops.strided_copy(run.stream, dry(DType::BF16, {12}), {}, dry(DType::F16, {12}), {}, {}); }),
      "strided_copy: f16 -> bf16: both must be i32, or both floating-point and either equal or one of them "
      "f32 or f64");
  EXPECT_EQ(error_of([&] { ops.strided_sum(run.stream, dry(DType::BF16, {12}), {}, x, {}, {}, 1, false); }),
            "strided_sum: y is bf16, but for x in f32 it must be f32, f32 or f64");
}

TEST(StridedContract, MapsNeedTheirInputs) {
  const OpTable& ops = cpu_ops();
  DryRun run;
  const Tensor y = dry(DType::F32, {2, 3});
  const Box box{2, {2, 3}};
  const auto mapped = [&](MapOp op, std::vector<Tensor> x) {
    const Map map{op, 0, 0, box, {contiguous_view(box), contiguous_view(box), contiguous_view(box)}};
    return error_of([&] { ops.map(run.stream, y, x, map); });
  };
  EXPECT_EQ(mapped(MapOp::Neg, {y}), "");
  EXPECT_EQ(mapped(MapOp::Add, {y}), "map: Add has 2 inputs, but 1 are given");
  EXPECT_EQ(mapped(MapOp::Add, {y, dry(DType::F64, {6})}),
            "map: x[1] is f64, but y is f32: they must be equal");
  EXPECT_EQ(
      mapped(MapOp::Neg, {dry(DType::F32, {5})}),
      "map: the view of x[0] begins at element 0 with strides [3, 1] over extents [2, 3], so it reaches "
      "from element 0 to 5, but f32 [5] has elements 0 to 4");
  EXPECT_EQ(mapped(static_cast<MapOp>(200), {y}),
            fmt::format("there is no MapOp 200: they are 0 to {}", kMapOps - 1));
  EXPECT_EQ(
      error_of([&] {
        ops.map(run.stream, dry(DType::F32, {7}), std::vector<Tensor>{y}, Map{MapOp::Neg, 0, 0, box, {}});
      }),
      "map: y is f32 [7], but the box [2, 3] has 6 elements");
}

TEST(StridedContract, MatricesOfProductsDoNotOverlap) {
  const OpTable& ops = cpu_ops();
  DryRun run;
  const Tensor x = dry(DType::F32, {1000});
  const auto error = [&](const std::function<void(BatchedProduct&)>& change) {
    BatchedProduct batch = product_of({2, 3, 4, 5, 6}, false, false, false);
    change(batch);
    return error_of([&] { ops.batched_product(run.stream, x, x, x, batch); });
  };
  EXPECT_EQ(error([](BatchedProduct&) {}), "");
  EXPECT_EQ(error([](BatchedProduct& batch) { batch.a.row = 5; }),
            "batched_product: rows of a are 5 elements apart but 6 long; they must not overlap");
  EXPECT_EQ(
      error([](BatchedProduct& batch) { batch.c.inner = 0; }),
      "batched_product: c has 2 x 3 matrices 33 and 0 elements apart; a stride of 0 would write them to one "
      "place");
  EXPECT_EQ(error([](BatchedProduct& batch) { batch.c.transposed = true; }),
            "batched_product: c is transposed, but only a and b may be");
  EXPECT_EQ(error([](BatchedProduct& batch) { batch.m = -1; }),
            "batched_product: 2 x 3 products [-1, 6] x [6, 5]: no extent may be negative");
}

// What is broadcast or shared is counted once.
TEST(StridedCounts, CountElementsOfViews) {
  ThreadPool pool(1);
  WorkLog log;
  Stream stream(pool, log);
  const OpTable& ops = counting_ops(FusedOps::All);
  const Tensor x = dry(DType::F32, {1000}), y = dry(DType::F32, {20, 10});
  const Box box{2, {20, 10}};
  ops.map(stream, y, std::vector<Tensor>{y, x},
          Map{MapOp::Add, 1, 0, box, {contiguous_view(box), {0, {0, 1}}}});
  ops.strided_sum(stream, x, {0, {0, 1}}, y, contiguous_view(box), box, 1, true);
  ops.strided_copy(stream, y, contiguous_view(box), x, {0, {1, 0}}, box);
  BatchedProduct batch = product_of({2, 3, 4, 5, 6}, false, false, true);
  ops.batched_product(stream, x, x, x, batch);
  std::vector<double> bytes, flops;
  for (const Work& work : log.list()) {
    bytes.push_back(work.bytes);
    flops.push_back(work.flops);
  }
  EXPECT_EQ(bytes, (std::vector<double>{4 * (200 + 200 + 10), 4 * (200 + 10 + 10), 4 * (200 + 20),
                                        4 * (2 * 24 + 3 * 30 + 6 * 20)}));
  EXPECT_EQ(flops, (std::vector<double>{0, 0, 0, 2.0 * 6 * 4 * 5 * 6}));
}

// A part of no columns, as graphs concatenate it, is copied like any other.
TEST(StridedCopy, OfAnEmptyPart) {
  const Box box{2, {3, 0}};
  EXPECT_EQ(contiguous_view(box).strides[0], 1);
  ThreadPool pool(1);
  Stream stream(Stream::Mode::Inline, pool);
  const Tensor x = dry(DType::F32, {0}), y = dry(DType::F32, {0});
  cpu_ops().strided_copy(stream, y, contiguous_view(box), x, contiguous_view(box), box);
}

}  // namespace
}  // namespace trifold::ops_test
