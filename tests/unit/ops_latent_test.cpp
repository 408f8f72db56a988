// The heads of multi-head latent attention: packed as the formulas say, and backward as the adjoint of forward.
#include "core/error.h"
#include "unit/ops_support.h"

namespace trifold::ops_test {
namespace {

struct Latent {
  int64_t rows, heads, plain, pairs, value, width;
  double key_scale = 1;
  Values frequencies = {};
  std::vector<int> positions = {};

  int64_t turned() const { return 2 * pairs; }
  int64_t own() const { return plain + turned(); }
  void fill() {
    for (int64_t i = 0; i < pairs; ++i) frequencies.push_back(std::pow(0.5, static_cast<double>(i)));
    for (int64_t r = 0; r < rows; ++r) positions.push_back(static_cast<int>(r * 7 % 11));
  }
  LatentHeads how() const { return {frequencies, heads, plain, value, width, key_scale}; }
  // Number i of the rotated numbers from[first ...] of row r.
  double rotated(const Values& from, int64_t first, int64_t i, int64_t r) const {
    const double angle = positions[static_cast<size_t>(r)] * frequencies[static_cast<size_t>(i / 2)];
    const double a = from[static_cast<size_t>(first + i / 2 * 2)];
    const double b = from[static_cast<size_t>(first + i / 2 * 2 + 1)];
    return i % 2 == 0 ? a * std::cos(angle) - b * std::sin(angle) : b * std::cos(angle) + a * std::sin(angle);
  }
  Values packed(const Values& q, const Values& kv, const Values& key) const {
    Values out;
    for (int64_t r = 0; r < rows; ++r)
      for (int kind = 0; kind < 3; ++kind)
        for (int64_t h = 0; h < heads; ++h)
          for (int64_t c = 0; c < width; ++c) {
            const int64_t head = r * heads + h;
            const int64_t pair = head * (plain + value);
            double x = 0;
            if (kind == 2)
              x = c < value ? kv[static_cast<size_t>(pair + plain + c)] : 0;
            else if (c < plain)
              x = kind == 0 ? q[static_cast<size_t>(head * own() + c)] : kv[static_cast<size_t>(pair + c)];
            else if (c < own())
              x = kind == 0 ? rotated(q, head * own() + plain, c - plain, r)
                            : key_scale * rotated(key, r * turned(), c - plain, r);
            out.push_back(x);
          }
    return out;
  }
};

const std::vector<Latent> kShapes{
    {1, 1, 1, 1, 1, 3}, {6, 3, 4, 2, 5, 8, 1.5}, {40, 2, 0, 9, 21, 21, 0.75}, {33, 5, 16, 8, 16, 32, 1}};

TEST(LatentHeads, ArePackedAsTheFormulasSay) {
  for (Latent t : kShapes) {
    t.fill();
    const Values q = random_values(t.rows * t.heads * t.own(), 1);
    const Values kv = random_values(t.rows * t.heads * (t.plain + t.value), 2);
    const Values key = random_values(t.rows * t.turned(), 3);
    const Shape packed{t.rows, 3 * t.heads * t.width};
    check_everywhere({t.packed(q, kv, key)}, [&](const OpTable& ops, Stream& stream, DType dtype) -> Outputs {
      const Host out(dtype, packed, Values(static_cast<size_t>(packed.elements()), 7));
      ops.latent_heads(stream, out, Host(dtype, {t.rows, t.heads * t.own()}, q),
                       Host(dtype, {t.rows, t.heads * (t.plain + t.value)}, kv),
                       Host(dtype, {t.rows, t.turned()}, key),
                       Host(DType::I32, {t.rows}, Values(t.positions.begin(), t.positions.end())), t.how());
      return {out.values()};
    });
  }
}

TEST(LatentHeads, BackwardIsTheAdjoint) {
  for (Latent t : kShapes) {
    t.fill();
    const Values q = random_values(t.rows * t.heads * t.own(), 1);
    const Values kv = random_values(t.rows * t.heads * (t.plain + t.value), 2);
    const Values key = random_values(t.rows * t.turned(), 3);
    const Values dy = random_values(t.rows * 3 * t.heads * t.width, 4);
    with_every_table([&](const OpTable& ops, Stream& stream) {
      const Host dq(DType::F64, {t.rows, t.heads * t.own()}), dkey(DType::F64, {t.rows, t.turned()});
      const Host dkv(DType::F64, {t.rows, t.heads * (t.plain + t.value)});
      ops.latent_heads_backward(stream, dq, dkv, dkey, Host(DType::F64, {t.rows, 3 * t.heads * t.width}, dy),
                                Host(DType::I32, {t.rows}, Values(t.positions.begin(), t.positions.end())),
                                t.how());
      const double forward = dot(t.packed(q, kv, key), dy);
      EXPECT_NEAR(dot(q, dq.values()) + dot(kv, dkv.values()) + dot(key, dkey.values()), forward, 1e-10);
      EXPECT_GT(std::abs(forward), 1e-3);
    });
  }
}

TEST(LatentHeads, RefusesHeadsThatDoNotFit) {
  Latent t{2, 1, 4, 2, 4, 8};
  t.fill();
  const Host q(DType::F32, {2, 8}), kv(DType::F32, {2, 8}), key(DType::F32, {2, 4}),
      packed(DType::F32, {2, 24});
  const Host positions(DType::I32, {2});
  ThreadPool pool(1);
  Stream stream(Stream::Mode::Inline, pool);
  t.width = 7;
  EXPECT_THROW(cpu_ops().latent_heads(stream, packed, q, kv, key, positions, t.how()), Error);
  t.width = 8;
  t.frequencies.clear();
  EXPECT_THROW(cpu_ops().latent_heads(stream, packed, q, kv, key, positions, t.how()), Error);
}

TEST(FitColumns, CutsOrFillsWithZeros) {
  const Values x{1, 2, 3, 4, 5, 6};
  for (const auto& [width, y] : {std::pair<int64_t, Values>{2, {1, 2, 4, 5}},
                                 {3, {1, 2, 3, 4, 5, 6}},
                                 {5, {1, 2, 3, 0, 0, 4, 5, 6, 0, 0}}})
    check_everywhere({y}, [&, w = width](const OpTable& ops, Stream& stream, DType dtype) -> Outputs {
      const Host to(dtype, {2, w}, Values(static_cast<size_t>(2 * w), 9));
      ops.fit_columns(stream, to, Host(dtype, {2, 3}, x));
      return {to.values()};
    });
}

}  // namespace
}  // namespace trifold::ops_test
