// Layers of recommender models: products with bias and ReLU, interaction, cross layers, the loss of clicks.
#include "unit/ops_support.h"

namespace trifold::ops_test {
namespace {

TEST(Linear, ProductBiasAndReluInOne) {
  for (const auto& [m, k, n] : {std::array<int64_t, 3>{1, 1, 1}, {5, 13, 17}, {300, 47, 70}, {700, 16, 1}}) {
    for (bool relu : {false, true}) {
      const Values x = random_values(m * k, 1), w = random_values(n * k, 2), bias = random_values(n, 3);
      Values y;
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          double sum = bias[static_cast<size_t>(j)];
          for (int64_t l = 0; l < k; ++l)
            sum += x[static_cast<size_t>(i * k + l)] * w[static_cast<size_t>(j * k + l)];
          y.push_back(relu ? std::max(0.0, sum) : sum);
        }
      const Shape out{m, n}, in{m, k}, weights{n, k}, row{n};
      check_everywhere({y}, [&](const OpTable& ops, Stream& stream, DType dtype) -> Outputs {
        const Host result(dtype, out);
        ops.linear(stream, result, Host(dtype, in, x), Host(dtype, weights, w), Host(dtype, row, bias), relu);
        return {result.values()};
      });
    }
  }
}

TEST(Linear, ReluBackwardMasksAndSums) {
  for (int64_t columns : {1, 30, 64, 200}) {
    const int64_t rows = 111;
    const Values dy = random_values(rows * columns, 1), y = random_values(rows * columns, 2);
    Values dx(dy.size()), db(static_cast<size_t>(columns), 0.5);
    for (size_t i = 0; i < dy.size(); ++i) {
      dx[i] = y[i] > 0 ? dy[i] : 0;
      db[i % static_cast<size_t>(columns)] += dx[i];
    }
    check_everywhere({dx, db}, [&](const OpTable& ops, Stream& stream, DType dtype) -> Outputs {
      const Host grad(dtype, {rows, columns}, dy);
      const Host sums(dtype, {columns}, Values(static_cast<size_t>(columns), 0.5));
      ops.relu_backward(stream, grad, sums, grad, Host(dtype, {rows, columns}, y), true);
      return {grad.values(), sums.values()};
    });
  }
}

// Chunks of rows have sums of their own, so the workers that share the rows do not change a bit.
TEST(Linear, ReluBackwardHasTheSameBitsOnAnyPool) {
  const int64_t rows = 1000, columns = 70;
  const Host y(DType::F32, {rows, columns}, random_values(rows * columns, 2));
  const Host dy(DType::F32, {rows, columns}, random_values(rows * columns, 1));
  Values expected;
  for (const int workers : {1, 2, 3}) {
    ThreadPool pool(workers);
    Stream stream(Stream::Mode::Inline, pool);
    const Host dx(DType::F32, {rows, columns}), db(DType::F32, {columns});
    cpu_ops().relu_backward(stream, dx, db, dy, y, false);
    if (workers == 1) expected = db.values();
    EXPECT_EQ(db.values(), expected) << workers << " workers";
  }
}

TEST(Linear, ANaNSurvivesRelu) {
  with_every_table([](const OpTable& ops, Stream& stream) {
    const Host y(DType::F32, {1, 20});
    ops.linear(stream, y, Host(DType::F32, {1, 1}, {NAN}), Host(DType::F32, {20, 1}, Values(20, 1.0)),
               Host(DType::F32, {20}), true);
    for (double v : y.values()) EXPECT_TRUE(std::isnan(v));
  });
}

Values interaction(const Values& x, int64_t rows, int64_t vectors, int64_t width, bool self) {
  Values y;
  for (int64_t b = 0; b < rows; ++b) {
    const double* v = x.data() + b * vectors * width;
    y.insert(y.end(), v, v + width);
    for (int64_t i = 0; i < vectors; ++i)
      for (int64_t j = 0; j < i + (self ? 1 : 0); ++j) {
        double sum = 0;
        for (int64_t d = 0; d < width; ++d) sum += v[i * width + d] * v[j * width + d];
        y.push_back(sum);
      }
  }
  return y;
}

// Two tables of three numbers with one dense vector, whole numbers: exact.
TEST(DotInteraction, TheOrderIsTheReferences) {
  with_every_table([](const OpTable& ops, Stream& stream) {
    const Host x(DType::F32, {1, 9}, {4, 9, 3, 1, 2, 3, 4, 5, 6});
    const Host y(DType::F32, {1, 6});
    ops.dot_interaction(stream, y, x, 3, false);
    EXPECT_EQ(y.values(), (Values{4, 9, 3, 31, 79, 32}));  // (1,0), (2,0), (2,1)
    const Host with_self(DType::F32, {1, 9});
    ops.dot_interaction(stream, with_self, x, 3, true);
    EXPECT_EQ(with_self.values(), (Values{4, 9, 3, 106, 31, 14, 79, 32, 77}));
  });
}

TEST(DotInteraction, ForwardAndBackward) {
  for (const auto& [rows, vectors, width] :
       {std::array<int64_t, 3>{3, 1, 4}, {7, 4, 2}, {50, 27, 16}, {9, 27, 33}, {4, 40, 128}}) {
    for (bool self : {false, true}) {
      SCOPED_TRACE(fmt::format("{} vectors of {}", vectors, width));
      const Values x = random_values(rows * vectors * width, 1);
      const Values y = interaction(x, rows, vectors, width, self);
      const Values dy = random_values(static_cast<int64_t>(y.size()), 2);
      // d/dv_i of sum dy v_i . v_j is dy v_j, of both positions.
      Values dx(x.size());
      const int64_t out = static_cast<int64_t>(y.size()) / rows;
      for (int64_t b = 0; b < rows; ++b) {
        const double* g = dy.data() + b * out;
        for (int64_t d = 0; d < width; ++d) dx[static_cast<size_t>(b * vectors * width + d)] += *g++;
        for (int64_t i = 0; i < vectors; ++i)
          for (int64_t j = 0; j < i + (self ? 1 : 0); ++j, ++g)
            for (int64_t d = 0; d < width; ++d) {
              const auto at = [d, base = b * vectors * width, step = width](int64_t v) {
                return static_cast<size_t>(base + v * step + d);
              };
              dx[at(i)] += *g * x[at(j)];
              dx[at(j)] += *g * x[at(i)];
            }
      }
      const Shape in{rows, vectors * width}, result{rows, out};
      const int64_t columns = width;
      check_everywhere(
          {y, dx},
          [&](const OpTable& ops, Stream& stream, DType dtype) -> Outputs {
            const Host input(dtype, in, x);
            const Host forward(dtype, result);
            const Host backward(dtype, in);
            ops.dot_interaction(stream, forward, input, columns, self);
            ops.dot_interaction_backward(stream, backward, Host(dtype, result, dy), input, columns, self);
            return {forward.values(), backward.values()};
          },
          4e-6);
    }
  }
}

TEST(Cross, ForwardAndBackward) {
  const int64_t n = 20011;
  const Values x0 = random_values(n, 1), u = random_values(n, 2), x = random_values(n, 3),
               dy = random_values(n, 4), before = random_values(n, 5);
  Values y, du, dx0;
  for (size_t i = 0; i < x.size(); ++i) {
    y.push_back(x0[i] * u[i] + x[i]);
    du.push_back(dy[i] * x0[i]);
    dx0.push_back(before[i] + dy[i] * u[i]);
  }
  check_everywhere({y, du, dx0}, [&](const OpTable& ops, Stream& stream, DType dtype) -> Outputs {
    const Host a(dtype, {n}, x0), b(dtype, {n}, u), c(dtype, {n}, x), out(dtype, {n}), grad(dtype, {n}),
        sum(dtype, {n}, before);
    ops.cross(stream, out, a, b, c);
    ops.cross_backward(stream, grad, sum, Host(dtype, {n}, dy), a, b);
    return {out.values(), grad.values(), sum.values()};
  });
}

TEST(ClickLossTest, ValuesGradientsAndExtremes) {
  const int64_t n = 5000;
  Values z = random_values(n, 1), labels, weights;
  for (size_t i = 0; i < z.size(); ++i) {
    z[i] *= i % 7 == 0 ? 30 : 2;
    labels.push_back(i % 3 == 0 ? 1 : 0);
    weights.push_back(i % 5 == 0 ? 0 : 1);
  }
  for (const ClickLoss how : {ClickLoss::Logistic, ClickLoss::Squared}) {
    Values loss, dz, probability;
    for (size_t i = 0; i < z.size(); ++i) {
      const double p = 1 / (1 + std::exp(-z[i]));
      const double gap = p - labels[i];
      probability.push_back(p);
      loss.push_back(how == ClickLoss::Squared
                         ? gap * gap
                         : std::max(z[i], 0.0) - z[i] * labels[i] + std::log1p(std::exp(-std::abs(z[i]))));
      dz.push_back(weights[i] * 0.25 * (how == ClickLoss::Squared ? 2 * gap * p * (1 - p) : gap));
    }
    check_everywhere({loss, dz, probability},
                     [&](const OpTable& ops, Stream& stream, DType dtype) -> Outputs {
                       const Host in(dtype, {n}, z), out(dtype, {n}), grad(dtype, {n}), p(dtype, {n});
                       const Host label(DType::F32, {n}, labels), weight(DType::F32, {n}, weights);
                       ops.click_loss(stream, out, in, label, how);
                       ops.click_loss_backward(stream, grad, in, label, weight, 0.25, how);
                       ops.sigmoid(stream, p, in);
                       return {out.values(), grad.values(), p.values()};
                     });
  }
  with_every_table([](const OpTable& ops, Stream& stream) {
    const Host out(DType::F32, {4}), grad(DType::F32, {4});
    const Host in(DType::F32, {4}, {1e30, -1e30, 1e30, NAN}), label(DType::F32, {4}, {1, 0, 0, 0}),
        weight(DType::F32, {4}, {1, 1, 1, 1});
    ops.click_loss(stream, out, in, label, ClickLoss::Logistic);
    EXPECT_EQ(out.values()[0], 0);
    EXPECT_EQ(out.values()[1], 0);
    EXPECT_EQ(static_cast<float>(out.values()[2]), 1e30F);
    EXPECT_TRUE(std::isnan(out.values()[3]));
    ops.click_loss_backward(stream, grad, in, label, weight, 1, ClickLoss::Logistic);
    EXPECT_EQ(grad.values()[0], 0);
    EXPECT_EQ(grad.values()[2], 1);
    EXPECT_TRUE(std::isnan(grad.values()[3]));
  });
}

TEST(CopyColumns, CopiesScalesAndAdds) {
  const Values x = random_values(3 * 4, 1);
  check_everywhere({{9, x[2], x[3] + 2 * x[0], 9, x[6], x[7] - x[4], 9, x[10], x[11] + 0.5 * x[8]}},
                   [&](const OpTable& ops, Stream& stream, DType dtype) -> Outputs {
                     const Host y(dtype, {3, 3}, Values(9, 9.0)), scale(dtype, {3}, {2, -1, 0.5});
                     const std::vector<ColumnCopy> copies{{1, 2, 2, false, {}}, {2, 0, 1, true, scale}};
                     ops.copy_columns(stream, y, Host(dtype, {3, 4}, x), copies);
                     return {y.values()};
                   });
}

TEST(CopyRows, FromAndToAnyRows) {
  check_everywhere({{9, 9, 5, 6, 1, 2}}, [&](const OpTable& ops, Stream& stream, DType dtype) -> Outputs {
    const Host y(dtype, {3, 2}, Values(6, 9.0)), x(dtype, {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
    const Host to(DType::I32, {2}, {2, 1}), from(DType::I32, {2}, {0, 2});
    ops.copy_rows(stream, y, to, x, from);
    return {y.values()};
  });
}

TEST(InverseRoot, OfASumWithEps) {
  check_everywhere({{0.5, 1 / std::sqrt(0.75), 2}},
                   [&](const OpTable& ops, Stream& stream, DType dtype) -> Outputs {
                     const Host y(dtype, {3}), x(dtype, {3}, {3.75, 0.5, 0});
                     ops.inverse_root(stream, y, x, 0.25);
                     return {y.values()};
                   });
}

}  // namespace
}  // namespace trifold::ops_test
