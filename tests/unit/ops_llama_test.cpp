// SwiGLU, the root-mean-square norm and rotary position embedding: against the formulas, and backward against
// differences of forward.
#include "core/error.h"
#include "unit/ops_support.h"

namespace trifold::ops_test {
namespace {

size_t at(int64_t row, int64_t column, int64_t columns) {
  return static_cast<size_t>(row * columns + column);
}

using Extent = std::pair<int64_t, int64_t>;
const std::vector<Extent> kExtents{{1, 1}, {5, 13}, {300, 128}, {70, 771}};

const Gating kGatings[] = {{},
                           {Gating::Kind::Gelu},
                           {Gating::Kind::GeluErf},
                           {Gating::Kind::ClampedSilu, 1.702, 0.75, 1},
                           {Gating::Kind::ClampedSilu, 1}};

double gated(double gate, double up, const Gating& by) {
  const double silu = gate / (1 + std::exp(-gate));
  const double clamped = std::min(gate, by.limit);
  switch (by.kind) {
    case Gating::Kind::Silu:
      return silu * up;
    case Gating::Kind::Gelu:
      return 0.5 * gate * (1 + std::tanh(std::sqrt(2 / M_PI) * (gate + 0.044715 * std::pow(gate, 3)))) * up;
    case Gating::Kind::GeluErf:
      return 0.5 * gate * std::erfc(-gate / std::sqrt(2.0)) * up;
    case Gating::Kind::ClampedSilu:
      break;
  }
  return clamped / (1 + std::exp(-by.slope * clamped)) *
         (std::max(-by.limit, std::min(up, by.limit)) + by.offset);
}

Values gated(const Values& x, int64_t rows, int64_t columns, const Gating& by) {
  Values y;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      y.push_back(gated(x[at(r, c, 2 * columns)], x[at(r, columns + c, 2 * columns)], by));
  return y;
}

TEST(Gated, Forward) {
  for (const auto& [rows, columns] : kExtents)
    for (const Gating& by : kGatings) {
      Values x = random_values(2 * rows * columns, 1);
      for (double& v : x) v *= 3;
      if (rows > 1) {
        x[0] = -200;  // its exponential overflows
        x[1] = 200;
      }
      check_everywhere(
          {gated(x, rows, columns, by)},
          [&, r = rows, c = columns](const OpTable& ops, Stream& stream, DType dtype) -> Outputs {
            const Host y(dtype, {r, c});
            ops.gated(stream, y, Host(dtype, {r, 2 * c}, x), by);
            return {y.values()};
          });
    }
}

TEST(Gated, BackwardIsTheDerivative) {
  const int64_t rows = 3;
  const int64_t columns = 19;
  const Values x = random_values(2 * rows * columns, 1);
  const Values dy = random_values(rows * columns, 2);
  with_every_table([&](const OpTable& ops, Stream& stream) {
    for (const Gating& by : kGatings) {
      const Host in(DType::F64, {rows, 2 * columns}, x);
      const Host dx(DType::F64, {rows, 2 * columns});
      ops.gated_backward(stream, dx, Host(DType::F64, {rows, columns}, dy), in, by);
      check_gradient([&](const Values& v) { return dot(gated(v, rows, columns, by), dy); }, x, dx.values());
      ops.gated_backward(stream, in, Host(DType::F64, {rows, columns}, dy), in, by);
      EXPECT_EQ(in.values(), dx.values()) << "in place";
    }
  });
}

struct Norm {
  int64_t rows, columns;
  Values x, gain, dy;
};

Norm norm_case(int64_t rows, int64_t columns) {
  return {rows, columns, random_values(rows * columns, 1), random_values(columns, 2),
          random_values(rows * columns, 3)};
}

struct NormResult {
  Values y, rstd;
};

NormResult rms_norm(const Norm& in, double eps) {
  NormResult out;
  for (int64_t r = 0; r < in.rows; ++r) {
    double square = 0;
    for (int64_t c = 0; c < in.columns; ++c) square += std::pow(in.x[at(r, c, in.columns)], 2);
    out.rstd.push_back(1 / std::sqrt(square / static_cast<double>(in.columns) + eps));
    for (int64_t c = 0; c < in.columns; ++c)
      out.y.push_back(in.x[at(r, c, in.columns)] * out.rstd.back() * in.gain[static_cast<size_t>(c)]);
  }
  return out;
}

TEST(RmsNorm, Forward) {
  for (const auto& [rows, columns] : kExtents) {
    const Norm in = norm_case(rows, columns);
    const NormResult expected = rms_norm(in, 1e-3);
    check_everywhere(
        {expected.y, expected.rstd},
        [&](const OpTable& ops, Stream& stream, DType dtype) -> Outputs {
          const Host y(dtype, {in.rows, in.columns});
          const Host rstd(dtype, {in.rows});
          ops.rms_norm(stream, y, rstd, Host(dtype, {in.rows, in.columns}, in.x),
                       Host(dtype, {in.columns}, in.gain), 1e-3, 0);
          return {y.values(), rstd.values()};
        },
        5e-6, 1e-12);
  }
}

TEST(RmsNorm, BackwardIsTheDerivative) {
  const Norm in = norm_case(3, 11);
  const NormResult forward = rms_norm(in, 1e-3);
  with_every_table([&](const OpTable& ops, Stream& stream) {
    const DType f64 = DType::F64;
    const Host dx(f64, {3, 11});
    const Host dgain(f64, {11}, Values(11, 0.5));  // accumulated
    const Host x(f64, {3, 11}, in.x);
    const Host dy(f64, {3, 11}, in.dy);
    const Host rstd(f64, {3}, forward.rstd);
    const Host gain(f64, {11}, in.gain);
    ops.rms_norm_backward(stream, dx, dy, x, rstd, gain, 0);
    ops.rms_norm_backward_weight(stream, dgain, dy, x, rstd, true);
    const auto loss = [&](const Values& values, Values Norm::*which) {
      Norm moved = in;
      moved.*which = values;
      return dot(rms_norm(moved, 1e-3).y, in.dy);
    };
    check_gradient([&](const Values& v) { return loss(v, &Norm::x); }, in.x, dx.values());
    Values gain_gradient = dgain.values();
    for (double& value : gain_gradient) value -= 0.5;
    check_gradient([&](const Values& v) { return loss(v, &Norm::gain); }, in.gain, gain_gradient);
    ops.rms_norm_backward(stream, dy, dy, x, rstd, gain, 0);
    EXPECT_EQ(dy.values(), dx.values()) << "in place";
  });
}

TEST(RmsNorm, BackwardOfManyRowsAndColumns) {
  for (const auto& [rows, columns] : {Extent{300, 128}, {1025, 77}, {70, 771}}) {
    const Norm in = norm_case(rows, columns);
    const NormResult forward = rms_norm(in, 1e-3);
    Values dx(in.x.size());
    Values dgain(static_cast<size_t>(columns));
    for (int64_t r = 0; r < rows; ++r) {
      const double rstd = forward.rstd[static_cast<size_t>(r)];
      double along = 0;
      for (int64_t c = 0; c < columns; ++c) {
        const size_t i = at(r, c, columns);
        along += in.dy[i] * in.gain[static_cast<size_t>(c)] * in.x[i] * rstd / static_cast<double>(columns);
        dgain[static_cast<size_t>(c)] += in.dy[i] * in.x[i] * rstd;
      }
      for (int64_t c = 0; c < columns; ++c) {
        const size_t i = at(r, c, columns);
        dx[i] = rstd * (in.dy[i] * in.gain[static_cast<size_t>(c)] - in.x[i] * rstd * along);
      }
    }
    check_everywhere(
        {dx, dgain},
        [&](const OpTable& ops, Stream& stream, DType dtype) -> Outputs {
          const Shape matrix{in.rows, in.columns};
          const Host gx(dtype, matrix), ggain(dtype, {in.columns});
          const Host x(dtype, matrix, in.x), dy(dtype, matrix, in.dy), rstd(dtype, {in.rows}, forward.rstd);
          ops.rms_norm_backward(stream, gx, dy, x, rstd, Host(dtype, {in.columns}, in.gain), 0);
          ops.rms_norm_backward_weight(stream, ggain, dy, x, rstd, true);
          return {gx.values(), ggain.values()};
        },
        5e-6, 1e-12);
  }
}

// Rows of `heads` heads and some columns more, read from and written to wider matrices.
struct Turn {
  int64_t rows = 0, heads = 0, head_dim = 0, pairs = 0, more = 0;
  int64_t x_width = 0, y_width = 0, x_column = 0, y_column = 0;
  double base = 10000, scale = 1;
  std::vector<double> frequencies = {};
  Values positions = {};

  Turn& fill(double position_scale) {
    for (int64_t i = 0; i < pairs; ++i)
      frequencies.push_back(std::pow(base, -static_cast<double>(i) / static_cast<double>(pairs)));
    for (int64_t r = 0; r < rows; ++r)
      positions.push_back(std::floor(position_scale * static_cast<double>(r * r % 101) / 100));
    return *this;
  }
  int64_t columns() const { return heads * head_dim + more; }
  Rotary how(bool inverse) const {
    return {frequencies, head_dim, heads, columns(), x_column, y_column, inverse, scale};
  }
  Values turned(const Values& x, Values y, double sign) const {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns(); ++c)
        y[at(r, y_column + c, y_width)] = x[at(r, x_column + c, x_width)];
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t i = 0; i < pairs; ++i) {
          const int64_t c = h * head_dim + i;
          const double a = x[at(r, x_column + c, x_width)];
          const double b = x[at(r, x_column + c + pairs, x_width)];
          const double angle = sign * positions[static_cast<size_t>(r)] * frequencies[static_cast<size_t>(i)];
          y[at(r, y_column + c, y_width)] = scale * (a * std::cos(angle) - b * std::sin(angle));
          y[at(r, y_column + c + pairs, y_width)] = scale * (b * std::cos(angle) + a * std::sin(angle));
        }
    }
    return y;
  }
};

TEST(Rotary, TurnsPairsOfHeadsByTheirPositionAndCopiesTheRest) {
  for (Turn t : {Turn{.rows = 1, .heads = 1, .head_dim = 2, .pairs = 1, .x_width = 2, .y_width = 2},
                 Turn{.rows = 77,
                 .heads = 3,
                 .head_dim = 11,
                 .pairs = 4,
                 .more = 5,
                 .x_width = 40,
                 .y_width = 61,
                 .x_column = 2,
                 .y_column = 13,
                 .scale = 1.25},
                 Turn{.rows = 130,
                 .heads = 5,
                 .head_dim = 128,
                 .pairs = 64,
                 .more = 128,
                 .x_width = 768,
                 .y_width = 900,
                 .y_column = 100,
                 .base = 500000},
                 Turn{.rows = 9,
                 .heads = 0,
                 .more = 33,
                 .x_width = 50,
                 .y_width = 40,
                 .x_column = 17,
                 .y_column = 7}}) {
    t.fill(131071);
    const Values x = random_values(t.rows * t.x_width, 1);
    const Values y = random_values(t.rows * t.y_width, 2);
    check_everywhere(
        {t.turned(x, y, 1), t.turned(x, y, -1)},
        [&](const OpTable& ops, Stream& stream, DType dtype) {
          Outputs outputs;
          for (const bool inverse : {false, true}) {
            const Host to(dtype, {t.rows, t.y_width}, y);
            ops.rotary(stream, to, Host(dtype, {t.rows, t.x_width}, x),
                       Host(DType::I32, {t.rows}, t.positions), t.how(inverse));
            outputs.push_back(to.values());
          }
          return outputs;
        },
        2e-6, 1e-10);  // at position 131071 a unit in the last place of the angle is 1.5e-11
  }
}

TEST(Rotary, WorksInPlaceAndTheInverseIsTheAdjoint) {
  Turn t{.rows = 40,
         .heads = 3,
         .head_dim = 12,
         .pairs = 4,
         .more = 4,
         .x_width = 40,
         .y_width = 40,
         .scale = 1.5};
  t.fill(5000);
  const Values x = random_values(t.rows * 40, 1);
  const Values dy = random_values(t.rows * 40, 2);
  with_every_table([&](const OpTable& ops, Stream& stream) {
    const Host positions(DType::I32, {t.rows}, t.positions);
    const Host y(DType::F64, {t.rows, 40}, x);
    const Host dx(DType::F64, {t.rows, 40}, dy);
    ops.rotary(stream, y, y, positions, t.how(false));
    EXPECT_LE(distance(y.values(), t.turned(x, x, 1)), 1e-12);
    ops.rotary(stream, dx, dx, positions, t.how(true));
    EXPECT_NEAR(dot(y.values(), dy), dot(x, dx.values()), 1e-10);
  });
}

TEST(Rotary, RefusesColumnsThatAreNotThere) {
  Turn t{.rows = 2, .heads = 2, .head_dim = 4, .pairs = 2, .x_width = 8, .y_width = 8, .y_column = 1};
  t.fill(10);
  with_every_table([&](const OpTable& ops, Stream& stream) {
    const Host x(DType::F32, {2, 8}), y(DType::F32, {2, 8}), positions(DType::I32, {2});
    EXPECT_THROW(ops.rotary(stream, y, x, positions, t.how(false)), Error);
    Rotary how = t.how(false);
    how.y_column = 0;
    EXPECT_NO_THROW(ops.rotary(stream, y, x, positions, how));
    how.head_dim = 3;
    EXPECT_THROW(ops.rotary(stream, y, x, positions, how), Error);
  });
}

}  // namespace
}  // namespace trifold::ops_test
