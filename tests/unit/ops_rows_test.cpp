#include "unit/ops_support.h"

namespace trifold::ops_test::rows_test {
namespace {

size_t at(int64_t row, int64_t column, int64_t columns) {
  return static_cast<size_t>(row * columns + column);
}

struct Norm {
  int64_t rows, columns;
  Values x, gain, bias, dy;
};

Norm norm_case(int64_t rows, int64_t columns) {
  return {rows,
          columns,
          random_values(rows * columns, 1),
          random_values(columns, 2),
          random_values(columns, 3),
          random_values(rows * columns, 4)};
}

struct NormResult {
  Values y, mean, rstd;
};

NormResult layer_norm(const Norm& in, double eps) {
  NormResult out{in.x, Values(static_cast<size_t>(in.rows)), Values(static_cast<size_t>(in.rows))};
  for (int64_t r = 0; r < in.rows; ++r) {
    double mean = 0;
    double variance = 0;
    for (int64_t c = 0; c < in.columns; ++c)
      mean += in.x[at(r, c, in.columns)] / static_cast<double>(in.columns);
    for (int64_t c = 0; c < in.columns; ++c)
      variance += std::pow(in.x[at(r, c, in.columns)] - mean, 2) / static_cast<double>(in.columns);
    const double rstd = 1 / std::sqrt(variance + eps);
    for (int64_t c = 0; c < in.columns; ++c)
      out.y[at(r, c, in.columns)] =
          (in.x[at(r, c, in.columns)] - mean) * rstd * in.gain[static_cast<size_t>(c)] +
          in.bias[static_cast<size_t>(c)];
    out.mean[static_cast<size_t>(r)] = mean;
    out.rstd[static_cast<size_t>(r)] = rstd;
  }
  return out;
}

TEST(LayerNorm, Forward) {
  for (auto shape : {std::pair<int64_t, int64_t>{1, 2}, {5, 13}, {300, 128}, {70, 771}}) {
    const Norm in = norm_case(shape.first, shape.second);
    const NormResult expected = layer_norm(in, 1e-5);
    check_everywhere(
        {expected.y, expected.mean, expected.rstd},
        [&](const OpTable& ops, Stream& stream, DType dtype) -> Outputs {
          const Host y(dtype, {in.rows, in.columns});
          const Host mean(dtype, {in.rows});
          const Host rstd(dtype, {in.rows});
          ops.layer_norm(stream, y, mean, rstd, Host(dtype, {in.rows, in.columns}, in.x),
                         Host(dtype, {in.columns}, in.gain), Host(dtype, {in.columns}, in.bias), 1e-5, 0);
          return {y.values(), mean.values(), rstd.values()};
        },
        5e-6, 1e-12);
  }
}

TEST(LayerNorm, BackwardIsTheDerivative) {
  const Norm in = norm_case(3, 11);
  const NormResult forward = layer_norm(in, 1e-5);
  with_every_table([&](const OpTable& ops, Stream& stream) {
    const DType f64 = DType::F64;
    const Host dx(f64, {3, 11});
    const Host dgain(f64, {11}, Values(11, 0.5));  // accumulated
    const Host dbias(f64, {11}, Values(11, -2.0));
    const Host x(f64, {3, 11}, in.x);
    const Host dy(f64, {3, 11}, in.dy);
    const Host mean(f64, {3}, forward.mean);
    const Host rstd(f64, {3}, forward.rstd);
    ops.layer_norm_backward(stream, dx, dy, x, mean, rstd, Host(f64, {11}, in.gain), 0);
    ops.layer_norm_backward_weight(stream, dgain, dbias, dy, x, mean, rstd, true);
    const auto loss = [&](const Values& values, Values Norm::*which) {
      Norm moved = in;
      moved.*which = values;
      return dot(layer_norm(moved, 1e-5).y, in.dy);
    };
    check_gradient([&](const Values& v) { return loss(v, &Norm::x); }, in.x, dx.values());
    Values gain_gradient = dgain.values();
    Values bias_gradient = dbias.values();
    for (double& value : gain_gradient) value -= 0.5;
    for (double& value : bias_gradient) value += 2.0;
    check_gradient([&](const Values& v) { return loss(v, &Norm::gain); }, in.gain, gain_gradient);
    check_gradient([&](const Values& v) { return loss(v, &Norm::bias); }, in.bias, bias_gradient);
  });
}

TEST(LayerNorm, BackwardOfManyRowsAndColumns) {
  for (auto shape : {std::pair<int64_t, int64_t>{300, 128}, {1025, 77}, {70, 771}}) {
    const Norm in = norm_case(shape.first, shape.second);
    const NormResult forward = layer_norm(in, 1e-5);
    Values dx(in.x.size());
    Values dgain(static_cast<size_t>(in.columns));
    Values dbias(static_cast<size_t>(in.columns));
    for (int64_t r = 0; r < in.rows; ++r) {
      const double rstd = forward.rstd[static_cast<size_t>(r)];
      const auto normal = [&](int64_t c) {
        return (in.x[at(r, c, in.columns)] - forward.mean[static_cast<size_t>(r)]) * rstd;
      };
      const auto grad = [&](int64_t c) {
        return in.dy[at(r, c, in.columns)] * in.gain[static_cast<size_t>(c)];
      };
      double average = 0;
      double along = 0;
      for (int64_t c = 0; c < in.columns; ++c) {
        average += grad(c) / static_cast<double>(in.columns);
        along += grad(c) * normal(c) / static_cast<double>(in.columns);
        dgain[static_cast<size_t>(c)] += in.dy[at(r, c, in.columns)] * normal(c);
        dbias[static_cast<size_t>(c)] += in.dy[at(r, c, in.columns)];
      }
      for (int64_t c = 0; c < in.columns; ++c)
        dx[at(r, c, in.columns)] = rstd * (grad(c) - average - normal(c) * along);
    }
    check_everywhere(
        {dx, dgain, dbias, dbias},
        [&](const OpTable& ops, Stream& stream, DType dtype) -> Outputs {
          const Shape matrix{in.rows, in.columns};
          const Host gx(dtype, matrix);
          const Host ggain(dtype, {in.columns});
          const Host gbias(dtype, {in.columns});
          const Host sums(dtype, {in.columns});
          const Host x(dtype, matrix, in.x);
          const Host dy(dtype, matrix, in.dy);
          const Host mean(dtype, {in.rows}, forward.mean);
          const Host rstd(dtype, {in.rows}, forward.rstd);
          ops.layer_norm_backward(stream, gx, dy, x, mean, rstd, Host(dtype, {in.columns}, in.gain), 0);
          ops.layer_norm_backward_weight(stream, ggain, gbias, dy, x, mean, rstd, true);
          ops.column_sum(stream, sums, dy, true);
          return {gx.values(), ggain.values(), gbias.values(), sums.values()};
        },
        5e-6, 1e-12);
  }
}

TEST(Embedding, ForwardAndBackwardOverAPartOfTheTable) {
  const int64_t rows = 2100;
  const int64_t held = 30;
  const int64_t first_id = 50;
  for (int64_t columns : {1, 65, 128}) {
    const Values table = random_values(held * columns, 1);
    const Values dy = random_values(rows * columns, 2);
    Values ids(static_cast<size_t>(rows));
    // Ids from 45 to 85: some rows are below this part of the table and some above.
    for (size_t r = 0; r < ids.size(); ++r) ids[r] = 45 + philox_word(philox_key(1, "ids"), r) % 41;
    Values y(dy.size());
    Values accumulated = dy;
    Values dtable = table;
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t id = static_cast<int64_t>(ids[static_cast<size_t>(r)]) - first_id;
      if (id < 0 || id >= held) continue;
      for (int64_t c = 0; c < columns; ++c) {
        y[at(r, c, columns)] = table[at(id, c, columns)];
        accumulated[at(r, c, columns)] += table[at(id, c, columns)];
        dtable[at(id, c, columns)] += dy[at(r, c, columns)];
      }
    }
    check_everywhere({y, accumulated, dtable},
                     [&](const OpTable& ops, Stream& stream, DType dtype) -> Outputs {
                       const Host in(dtype, {held, columns}, table);
                       const Host words(DType::I32, {rows}, ids);
                       const Host out(dtype, {rows, columns}, Values(dy.size(), NAN));
                       const Host sum(dtype, {rows, columns}, dy);
                       const Host grad(dtype, {held, columns}, table);
                       ops.embedding(stream, out, in, words, first_id, false);
                       ops.embedding(stream, sum, in, words, first_id, true);
                       ops.embedding_backward(stream, grad, Host(dtype, {rows, columns}, dy), words,
                                              Host(DType::I32, {rows}), first_id);
                       return {out.values(), sum.values(), grad.values()};
                     });
  }
}

// The tied head's gradient may stand in the table already: what is added to it is one sum all the same.
TEST(Embedding, GradientOfAnIdIsSummedBeforeItMeetsTheTable) {
  const int64_t rows = 300, held = 7, columns = 70;
  const Values dy = random_values(rows * columns, 2), table = random_values(held * columns, 3);
  Values ids(static_cast<size_t>(rows));
  for (size_t r = 0; r < ids.size(); ++r) ids[r] = philox_word(philox_key(1, "ids"), r) % 7;
  with_every_table([&](const OpTable& ops, Stream& stream) {
    const Host words(DType::I32, {rows}, ids), order(DType::I32, {rows});
    const Host on_zero(DType::F32, {held, columns}, Values(table.size(), 0));
    const Host on_table(DType::F32, {held, columns}, table);
    for (const Host* grad : {&on_zero, &on_table})
      ops.embedding_backward(stream, *grad, Host(DType::F32, {rows, columns}, dy), words, order, 0);
    const Values sums = on_zero.values(), all = on_table.values();
    for (size_t i = 0; i < all.size(); ++i)
      ASSERT_EQ(static_cast<float>(all[i]), static_cast<float>(table[i]) + static_cast<float>(sums[i])) << i;
  });
}

}  // namespace
}  // namespace trifold::ops_test::rows_test
