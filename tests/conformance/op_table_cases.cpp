// Cases of operations for language models.
#include <array>
#include <cmath>

#include "conformance/op_table.h"
#include "ops/narrow.h"

namespace trifold::conformance {

namespace {

struct Matrix {
  int64_t rows, columns;
  int64_t size() const { return rows * columns; }
  Shape shape() const { return {rows, columns}; }
};

// One row, one column, odd ends, rows of whole packs, a row of several warps, two that registers do not hold.
constexpr Matrix kMatrices[] = {{1, 1},    {1, 771},  {70, 3},   {5, 13},
                                {37, 128}, {3, 1600}, {1, 4500}, {1, 4101}};

using MatrixBody = std::function<void(OpRun&, const Matrix&)>;

Body each_matrix(const MatrixBody& body) {
  return [body](OpRun& run) {
    for (const Matrix& m : kMatrices) body(run, m);
  };
}

void movement(std::vector<OpCase>& cases) {
  cases.push_back({"fill and scale", entries(&OpTable::fill, &OpTable::scale), false, 1,
                   each_count([](OpRun& run, int64_t n) {
                     run.ops().fill(run.stream(), run.out({n}), 0.375);
                     run.ops().scale(run.stream(), run.out({n}, normal(n, 1)), -1.75);
                     run.ops().scale(run.stream(), run.out({n}, normal(n, 1)),
                                     Factor(-1.75, run.in(DType::F64, {1}, {0.3})));
                   })});
  cases.push_back({"copy", entries(&OpTable::copy), false, 1, each_count([](OpRun& run, int64_t n) {
                     run.ops().copy(run.stream(), run.exact(run.dtype(), {n}), run.in({n}, normal(n, 1)));
                     run.ops().copy(run.stream(), run.exact(DType::I64, {n}),
                                    run.in(DType::I64, {n}, whole(n, 2, 1000)));
                   })});
  cases.push_back({"convert", entries(&OpTable::convert), false, 1, each_count([](OpRun& run, int64_t n) {
                     const DType wide = run.wide();
                     run.ops().convert(run.stream(), run.exact(wide, {n}), run.in({n}, normal(n, 1)));
                     run.ops().convert(run.stream(), run.exact(run.dtype(), {n}),
                                       run.in(wide, {n}, normal(n, 2)));
                   })});
  cases.push_back({"add", entries(&OpTable::add), false, 1, each_count([](OpRun& run, int64_t n) {
                     run.ops().add(run.stream(), run.out({n}), run.in({n}, normal(n, 1)),
                                   run.in({n}, normal(n, 2)));
                     const Tensor y = run.out({n}, normal(n, 3));
                     run.ops().add(run.stream(), y, y, y);
                   })});
  cases.push_back({"reduce", entries(&OpTable::reduce), false, 1, each_count([](OpRun& run, int64_t n) {
                     for (Reduce how : {Reduce::Sum, Reduce::Max}) {
                       run.ops().reduce(run.stream(), run.out({n}, normal(n, 1)), run.in({n}, normal(n, 2)),
                                        how);
                       for (DType type : {DType::I32, DType::I64})
                         run.ops().reduce(run.stream(), run.exact(type, {n}, whole(n, 3, 99)),
                                          run.in(type, {n}, whole(n, 4, 99)), how);
                     }
                   })});
  cases.push_back(
      {"fill_rows", entries(&OpTable::fill_rows), false, 1, each_matrix([](OpRun& run, const Matrix& m) {
         run.ops().fill_rows(run.stream(), run.exact(run.dtype(), m.shape()),
                             run.in({m.columns}, normal(m.columns, 1)));
       })});
}

void activations(std::vector<OpCase>& cases) {
  cases.push_back({"gelu", entries(&OpTable::gelu, &OpTable::gelu_backward), false, 1,
                   each_count([](OpRun& run, int64_t n) {
                     const Tensor x = run.in({n}, normal(n, 1));
                     run.ops().gelu(run.stream(), run.out({n}), x);
                     const Tensor dx = run.out({n}, normal(n, 2));
                     run.ops().gelu_backward(run.stream(), dx, dx, x);
                   })});
  cases.push_back({"gelu_erf", entries(&OpTable::gelu_erf, &OpTable::gelu_erf_backward), false, 1,
                   each_count([](OpRun& run, int64_t n) {
                     const Tensor x = run.in({n}, normal(n, 1));
                     run.ops().gelu_erf(run.stream(), run.out({n}), x);
                     const Tensor dx = run.out({n}, normal(n, 2));
                     run.ops().gelu_erf_backward(run.stream(), dx, dx, x);
                   })});
  cases.push_back({"squared_relu", entries(&OpTable::squared_relu, &OpTable::squared_relu_backward), false, 1,
                   each_count([](OpRun& run, int64_t n) {
                     const Tensor x = run.in({n}, normal(n, 1));
                     run.ops().squared_relu(run.stream(), run.out({n}), x);
                     const Tensor dx = run.out({n}, normal(n, 2));
                     run.ops().squared_relu_backward(run.stream(), dx, dx, x);
                   })});
  cases.push_back({"rectify", entries(&OpTable::rectify, &OpTable::rectify_backward), false, 1,
                   each_count([](OpRun& run, int64_t n) {
                     run.ops().rectify(run.stream(), run.out({n}), run.in({n}, normal(n, 1)));
                     const Tensor dx = run.out({n}, normal(n, 2));
                     run.ops().rectify_backward(run.stream(), dx, dx, run.in({n}, normal(n, 3)));
                   })});
  cases.push_back({"write_forms", entries(&OpTable::write_forms), false, 1, [](OpRun& run) {
                     for (const auto& [rows, columns] :
                          {std::array<int64_t, 2>{16, 48}, {128, 128}, {144, 272}, {256, 400}}) {
                       Forms y;
                       y.rows = run.exact(DType::U8, narrow_shape(rows, columns));
                       y.turned = run.exact(DType::U8, turned_shape(rows, columns));
                       y.sums = run.out(DType::F32, sums_shape(rows, columns));
                       run.ops().write_forms(run.stream(), y,
                                             run.in(DType::BF16, {rows, columns}, normal(rows * columns, 1)));
                     }
                   }});
  cases.push_back({"tanh", entries(&OpTable::tanh, &OpTable::tanh_backward), false, 1,
                   each_count([](OpRun& run, int64_t n) {
                     const Tensor y = run.out({n}, normal(n, 1));
                     run.ops().tanh(run.stream(), y, y);
                     const Tensor dx = run.out({n}, normal(n, 2));
                     run.ops().tanh_backward(run.stream(), dx, dx, run.in({n}, normal(n, 3)));
                   })});
  cases.push_back({"gated", entries(&OpTable::gated, &OpTable::gated_backward), false, 1,
                   each_matrix([](OpRun& run, const Matrix& m) {
                     using Kind = Gating::Kind;
                     for (const Gating& gating : {Gating{}, Gating{Kind::Gelu}, Gating{Kind::GeluErf},
                                                  Gating{Kind::ClampedSilu, 1.702, 0.75, 1}}) {
                       const Tensor x = run.out({m.rows, 2 * m.columns}, normal(2 * m.size(), 1));
                       run.ops().gated(run.stream(), run.out(m.shape()), x, gating);
                       run.ops().gated_backward(run.stream(), x, run.in(m.shape(), normal(m.size(), 2)), x,
                                                gating);
                     }
                   })});
  cases.push_back({"dropout", entries(&OpTable::dropout, &OpTable::dropout_add), false, 1,
                   each_count([](OpRun& run, int64_t n) {
                     for (double probability : {0.0, 0.3})
                       for (uint64_t first : {uint64_t{0}, uint64_t{3}, (uint64_t{1} << 34) + 2}) {
                         Dropout how{probability, philox_key(7, "drop"), first};
                         if (first == 3) {  // set late
                           how.sample = run.in(DType::I64, {1}, {5});
                           how.sample_elements = 1234567891;
                         }
                         const Tensor x = run.in({n}, normal(n, 1));
                         run.ops().dropout(run.stream(), run.exact(run.dtype(), {n}), x, how);
                         run.ops().dropout_add(run.stream(), run.out({n}), run.in({n}, normal(n, 2)), x, how);
                       }
                   })});
}

// Of a parameter's gradient.
Tensor sums(OpRun& run, int64_t columns, double before, bool accumulate) {
  return run.out(run.wide(), {columns}, before_sum(Values(size_t(columns), before), accumulate));
}

void many_rows(OpRun& run, int64_t columns, bool is_layer_norm) {
  const int64_t rows = 4500;
  const Shape shape{rows, columns};
  const Tensor x = run.in(shape, normal(rows * columns, 1)), dy = run.in(shape, normal(rows * columns, 2));
  const Tensor gain = run.in({columns}, normal(columns, 3));
  const Tensor rstd = run.in(run.wide(), {rows}, Values(size_t(rows), 0.75));
  if (is_layer_norm) {
    const Tensor mean = run.in(run.wide(), {rows}, normal(rows, 4));
    run.ops().layer_norm_backward_all(run.stream(), run.out(shape), sums(run, columns, 0.5, true),
                                      sums(run, columns, -2, true), {}, dy, x, mean, rstd, gain, true, 0.5);
  } else {
    run.ops().rms_norm_backward_all(run.stream(), run.out(shape), sums(run, columns, 0.5, false), x, dy, x,
                                    rstd, gain, false, 0.5);
  }
}

void norms(std::vector<OpCase>& cases) {
  cases.push_back(
      {"layer_norm",
       entries(&OpTable::layer_norm, &OpTable::layer_norm_backward, &OpTable::layer_norm_backward_add,
               &OpTable::layer_norm_backward_weight, &OpTable::layer_norm_backward_all),
       false, 4, each_matrix([](OpRun& run, const Matrix& m) {
         const Tensor x = run.in(m.shape(), normal(m.size(), 1));
         const Tensor gain = run.in({m.columns}, normal(m.columns, 2));
         const Tensor bias = run.in({m.columns}, normal(m.columns, 3));
         const Tensor dy = run.in(m.shape(), normal(m.size(), 4));
         const Tensor mean = run.out(run.wide(), {m.rows});
         const Tensor rstd = run.out(run.wide(), {m.rows});
         // A large eps keeps the statistics of a row of one number tame.
         run.ops().layer_norm(run.stream(), run.out(m.shape()), mean, rstd, x, gain, bias, 0.01, 0.5);
         run.ops().layer_norm_backward(run.stream(), run.out(m.shape()), dy, x, mean, rstd, gain, 0.5);
         run.ops().layer_norm_backward_add(run.stream(), run.out(m.shape()),
                                           run.in(m.shape(), normal(m.size(), 5)), dy, x, mean, rstd, gain,
                                           0.5);
         for (const bool accumulate : {true, false})
           run.ops().layer_norm_backward_weight(run.stream(), sums(run, m.columns, 0.5, accumulate),
                                                sums(run, m.columns, -2, accumulate), dy, x, mean, rstd,
                                                accumulate);
         for (const bool accumulate : {true, false})
           run.ops().layer_norm_backward_all(run.stream(), run.out(m.shape()),
                                             sums(run, m.columns, 0.5, accumulate),
                                             sums(run, m.columns, -2, accumulate),
                                             accumulate ? run.in(m.shape(), normal(m.size(), 5)) : Tensor{},
                                             dy, x, mean, rstd, gain, accumulate, 0.5);
       })});
  cases.push_back({"rms_norm",
                   entries(&OpTable::rms_norm, &OpTable::rms_norm_backward, &OpTable::rms_norm_backward_add,
                           &OpTable::rms_norm_backward_weight, &OpTable::rms_norm_backward_all),
                   false, 4, each_matrix([](OpRun& run, const Matrix& m) {
                     const Tensor x = run.in(m.shape(), normal(m.size(), 1));
                     const Tensor gain = run.in({m.columns}, normal(m.columns, 2));
                     const Tensor rstd = run.out(run.wide(), {m.rows});
                     run.ops().rms_norm(run.stream(), run.out(m.shape()), rstd, x, gain, 1e-5, 0.5);
                     const Tensor dx = run.out(m.shape(), normal(m.size(), 4));
                     for (const bool accumulate : {true, false})
                       run.ops().rms_norm_backward_weight(run.stream(), sums(run, m.columns, 0.5, accumulate),
                                                          dx, x, rstd, accumulate);
                     for (const bool accumulate : {true, false})
                       run.ops().rms_norm_backward_all(
                           run.stream(), run.out(m.shape()), sums(run, m.columns, 0.5, accumulate),
                           accumulate ? Tensor{} : run.in(m.shape(), normal(m.size(), 5)), dx, x, rstd, gain,
                           accumulate, 0.5);
                     run.ops().rms_norm_backward_add(run.stream(), run.out(m.shape()),
                                                     run.in(m.shape(), normal(m.size(), 5)), dx, x, rstd,
                                                     gain, 0.5);
                     run.ops().rms_norm_backward(run.stream(), dx, dx, x, rstd, gain, 0.5);
                   })});
  // As many rows as blocks go over several times, of whole packs and not.
  cases.push_back({"rms norms of parts of rows",
                   entries(&OpTable::rms_part_sums, &OpTable::rms_part, &OpTable::rms_part_backward), false,
                   2, each_matrix([](OpRun& run, const Matrix& m) {
                     const Tensor x = run.in(m.shape(), normal(m.size(), 1)),
                                  gain = run.in({m.columns}, normal(m.columns, 2));
                     const Tensor dy = run.in(m.shape(), normal(m.size(), 3));
                     const DType wide = run.wide();
                     const Tensor rstd = run.in(wide, {m.rows}, normal(m.rows, 4)),
                                  along = run.in(wide, {m.rows}, normal(m.rows, 5));
                     run.ops().rms_part_sums(run.stream(), run.out(wide, {m.rows}), x, {}, gain, 0.5);
                     run.ops().rms_part_sums(run.stream(), run.out(wide, {m.rows}), x, dy, gain, 0.5);
                     run.ops().rms_part(run.stream(), run.out(m.shape()), x, rstd, gain, 0.5);
                     const Tensor dx = run.out(m.shape(), normal(m.size(), 3));
                     run.ops().rms_part_backward(run.stream(), dx, dx, x, rstd, along, gain, 0.5);
                   })});
  cases.push_back({"layer norms of many rows", entries(&OpTable::layer_norm_backward_all), false, 4,
                   [](OpRun& run) { many_rows(run, 8, true); }});
  cases.push_back({"rms norms of many rows", entries(&OpTable::rms_norm_backward_all), false, 4,
                   [](OpRun& run) { many_rows(run, 19, false); }});
  cases.push_back(
      {"column_sum", entries(&OpTable::column_sum), false, 1, each_matrix([](OpRun& run, const Matrix& m) {
         for (const bool accumulate : {true, false})
           run.ops().column_sum(run.stream(), sums(run, m.columns, 1, accumulate),
                                run.in(m.shape(), normal(m.size(), 1)), accumulate);
       })});
  cases.push_back({"column_sum of many rows", entries(&OpTable::column_sum), false, 1, [](OpRun& run) {
                     for (int64_t columns : {17, 16})
                       run.ops().column_sum(run.stream(), sums(run, columns, 1, true),
                                            run.in({5000, columns}, normal(5000 * columns, 1)), true);
                   }});
}

void rotary_case(OpRun& run, int64_t heads, int64_t head_dim, int64_t pairs, int64_t rows, int64_t extra) {
  Values frequencies(static_cast<size_t>(pairs));
  for (size_t i = 0; i < frequencies.size(); ++i)
    frequencies[i] = std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(pairs));
  const int64_t columns = heads * head_dim + extra;
  const int64_t width = columns + 8;
  const std::vector<double>& kept = run.keep(frequencies);
  const Tensor positions = run.in(DType::I32, {rows}, whole(rows, 5, 4000));
  const Tensor x = run.in({rows, width}, normal(rows * width, 6));
  for (bool inverse : {false, true})
    run.ops().rotary(run.stream(), run.out({rows, width}, Values(size_t(rows * width), 3)), x, positions,
                     {kept, head_dim, heads, columns, 8, 0, inverse, 1.25});
  const Tensor y = run.out({rows, width}, normal(rows * width, 7));
  run.ops().rotary(run.stream(), y, y, positions, {kept, head_dim, heads, columns, 8, 8, false});
}

void rows_by_id(std::vector<OpCase>& cases) {
  cases.push_back({"rotary", entries(&OpTable::rotary), false, 2, [](OpRun& run) {
                     rotary_case(run, 3, 16, 8, 5, 0);
                     rotary_case(run, 2, 10, 3, 4, 7);
                     rotary_case(run, 1, 160, 80, 3, 8);
                     rotary_case(run, 0, 8, 4, 3, 24);
                   }});
  cases.push_back(
      {"embedding", entries(&OpTable::embedding), false, 1, each_matrix([](OpRun& run, const Matrix& m) {
         const Tensor table = run.in({11, m.columns}, normal(11 * m.columns, 1));
         const Tensor ids = run.in(DType::I32, {m.rows}, whole(m.rows, 2, 20));  // some not held
         run.ops().embedding(run.stream(), run.exact(run.dtype(), m.shape()), table, ids, 4, false);
         run.ops().embedding(run.stream(), run.out(m.shape(), normal(m.size(), 3)), table, ids, 4, true);
         // The first id may be negative: the table begins with rows of no id.
         run.ops().embedding(run.stream(), run.exact(run.dtype(), m.shape()), table, ids, -2, false);
       })});
  const auto gradients = [](OpRun& run, int64_t rows, int64_t columns, int64_t held, int64_t limit) {
    run.ops().embedding_backward(
        run.stream(), run.out(run.wide(), {held, columns}, normal(held * columns, 1)),
        run.in({rows, columns}, normal(rows * columns, 2)), run.in(DType::I32, {rows}, whole(rows, 3, limit)),
        run.in(DType::I32, {rows}, {}), 0);
  };
  // Ids that are met once, often, more than a tile of the sort holds in all, and not at all.
  cases.push_back(
      {"embedding_backward", entries(&OpTable::embedding_backward), false, 4, [gradients](OpRun& run) {
         for (const auto& [rows, columns, held, limit] : {std::array<int64_t, 4>{1, 5, 3, 3},
                                                          {40, 8, 30, 40},
                                                          {700, 24, 9, 12},
                                                          {5000, 3, 4000, 4500},
                                                          {300, 300, 2, 2}})
           gradients(run, rows, columns, held, limit);
       }});
  // So many that CUDA's sort adds up the counts of its tiles in a kernel of its own.
  cases.push_back({"embedding_backward of many rows", entries(&OpTable::embedding_backward), true, 4,
                   [gradients](OpRun& run) { gradients(run, 70000, 1, 60000, 65000); }});
}

void cross_entropy(std::vector<OpCase>& cases) {
  cases.push_back(
      {"cross entropy",
       entries(&OpTable::softmax_stats, &OpTable::softmax_rescale, &OpTable::cross_entropy,
               &OpTable::cross_entropy_backward, &OpTable::cross_entropy_all),
       false, 4, each_matrix([](OpRun& run, const Matrix& m) {
         // The vocabulary ends within the columns, or before them.
         for (int64_t vocab : {m.columns + 2, m.columns + 2 - m.columns / 3, int64_t{1}}) {
           const int64_t first = 2;
           Values scaled = normal(m.size(), 1);
           for (double& x : scaled) x *= 4;
           const Tensor logits = run.out(m.shape(), scaled);
           const Tensor labels = run.in(DType::I32, {m.rows}, whole(m.rows, 2, m.columns + 4));
           // Without any column here, the lowest number of the type.
           const Tensor max =
               vocab <= first ? run.exact(run.wide(), {m.rows}) : run.out(run.wide(), {m.rows});
           const Tensor sum = run.out(run.wide(), {m.rows});
           const Tensor target = run.out(run.wide(), {m.rows});
           run.ops().softmax_stats(run.stream(), max, sum, target, logits, labels, first, vocab);
           if (vocab <= first) continue;
           const Tensor above = run.in(run.wide(), {m.rows}, Values(size_t(m.rows), 20));
           const Tensor rescaled = run.out(run.wide(), {m.rows}, Values(size_t(m.rows), 3e5));
           run.ops().softmax_rescale(run.stream(), rescaled, max, above);
           run.ops().cross_entropy(run.stream(), run.out(run.wide(), {m.rows}), max, sum, target);
           run.ops().cross_entropy_backward(run.stream(), logits, logits, max, sum, labels,
                                            run.in(DType::F32, {m.rows}, whole(m.rows, 3, 3)),
                                            Factor(0.5, run.in(DType::F64, {1}, {0.7})), first, vocab);
           const Tensor both = run.out(m.shape(), scaled);
           run.ops().cross_entropy_all(run.stream(), both, run.out(run.wide(), {m.rows}),
                                       run.out(run.wide(), {m.rows}), run.out(run.wide(), {m.rows}), both,
                                       labels, run.in(DType::F32, {m.rows}, whole(m.rows, 3, 3)),
                                       Factor(0.5, run.in(DType::F64, {1}, {0.7})), first, vocab);
         }
       })});
}

void products(std::vector<OpCase>& cases) {
  cases.push_back({"gemm", entries(&OpTable::gemm), false, 4, [](OpRun& run) {
                     const int64_t m = 21, n = 34, k = 40;
                     for (bool ta : {false, true})
                       for (bool tb : {false, true}) {
                         const Tensor a = run.in(ta ? Shape{k, m} : Shape{m, k}, normal(m * k, 1));
                         const Tensor b = run.in(tb ? Shape{n, k} : Shape{k, n}, normal(k * n, 2));
                         run.ops().gemm(run.stream(), run.out({m, n}), a, ta, b, tb, 1, 0);
                         run.ops().gemm(run.stream(), run.out(run.wide(), {m, n}, normal(m * n, 3)), a, ta, b,
                                        tb, 0.5, 1);
                       }
                   }});
  // A bias that is large beside the product shows where it is added twice or not at all.
  cases.push_back(
      {"products with a bias",
       entries(&OpTable::affine, &OpTable::affine_add, &OpTable::affine_gelu,
               &OpTable::affine_backward_weight),
       false, 4, [](OpRun& run) {
         for (const auto& [rows, n, k] : {std::array<int64_t, 3>{21, 34, 40}, {1, 8, 16}, {64, 24, 8}}) {
           const Tensor x = run.in({rows, k}, normal(rows * k, 1));
           const Tensor w = run.in({n, k}, normal(n * k, 2));
           const Tensor bias = run.in({n}, normal(n, 3));
           run.ops().affine(run.stream(), run.out({rows, n}), x, w, bias);
           run.ops().affine_add(run.stream(), run.out({rows, n}), run.in({rows, n}, normal(rows * n, 7)), x,
                                w, bias);
           run.ops().affine_gelu(run.stream(), run.out({rows, n}), run.out({rows, n}), x, w, bias);
           for (const bool accumulate : {true, false})
             run.ops().affine_backward_weight(
                 run.stream(), run.out(run.wide(), {n, k}, before_sum(normal(n * k, 4), accumulate)),
                 run.out(run.wide(), {n}, before_sum(normal(n, 5), accumulate)),
                 run.in({rows, n}, normal(rows * n, 6)), x, accumulate);
         }
       }});
  cases.push_back(
      {"products without a bias",
       entries(&OpTable::affine, &OpTable::affine_add, &OpTable::affine_backward_input,
               &OpTable::affine_backward_weight),
       false, 4, [](OpRun& run) {
         const int64_t rows = 21, n = 34, k = 40;
         const Tensor x = run.in({rows, k}, normal(rows * k, 1));
         const Tensor w = run.in({n, k}, normal(n * k, 2));
         const Tensor dy = run.in({rows, n}, normal(rows * n, 3));
         run.ops().affine(run.stream(), run.out({rows, n}), x, w, {});
         run.ops().affine_add(run.stream(), run.out({rows, n}), run.in({rows, n}, normal(rows * n, 6)), x, w,
                              {});
         run.ops().affine_backward_input(run.stream(), run.out({rows, k}), dy, w, 0);
         run.ops().affine_backward_input(run.stream(), run.out({rows, k}, normal(rows * k, 4)), dy, w, 1);
         for (const bool accumulate : {true, false})
           run.ops().affine_backward_weight(
               run.stream(), run.out(run.wide(), {n, k}, before_sum(normal(n * k, 5), accumulate)), {}, dy, x,
               accumulate);
       }});
  cases.push_back({"affine_backward_gelu", entries(&OpTable::affine_backward_gelu), false, 4, [](OpRun& run) {
                     const int64_t rows = 21, m = 40, n = 24;
                     run.ops().affine_backward_gelu(
                         run.stream(), run.out({rows, n}), run.in({rows, m}, normal(rows * m, 1)),
                         run.in({m, n}, normal(m * n, 2)), run.in({rows, n}, normal(rows * n, 3)));
                   }});
}

}  // namespace

std::vector<OpCase> op_cases() {
  std::vector<OpCase> cases;
  movement(cases);
  activations(cases);
  norms(cases);
  rows_by_id(cases);
  cross_entropy(cases);
  products(cases);
  for (auto* more : {attention_op_cases, sum_op_cases, update_op_cases, experts_op_cases, latent_op_cases,
                     strided_op_cases})
    for (OpCase& test : more()) cases.push_back(std::move(test));
  return cases;
}

}  // namespace trifold::conformance
