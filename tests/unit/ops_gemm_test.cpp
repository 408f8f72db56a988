#include "ops/gemm.h"

#include "unit/ops_support.h"

namespace trifold::ops_test {
namespace {

struct Product {
  int64_t m, n, k;
};

Values reference(const Values& a, bool transpose_a, const Values& b, bool transpose_b, const Values& c,
                 Product p, double alpha, double beta) {
  Values result(c.size());
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < p.n; ++j) {
      double sum = 0;
      for (int64_t l = 0; l < p.k; ++l)
        sum += a[static_cast<size_t>(transpose_a ? l * p.m + i : i * p.k + l)] *
               b[static_cast<size_t>(transpose_b ? j * p.k + l : l * p.n + j)];
      const auto at = static_cast<size_t>(i * p.n + j);
      result[at] = alpha * sum + (beta == 0 ? 0 : beta * c[at]);
    }
  return result;
}

TEST(Gemm, AllTransposesAlphaBetaAndShapes) {
  for (Product p :
       {Product{1, 1, 1}, {5, 7, 3}, {64, 48, 32}, {97, 130, 65}, {300, 37, 200}, {33, 900, 17}}) {
    const Values a = random_values(p.m * p.k, 1);
    const Values b = random_values(p.k * p.n, 2);
    const Values c = random_values(p.m * p.n, 3);
    for (bool ta : {false, true})
      for (bool tb : {false, true})
        for (double beta : {0.0, 1.0, -0.5}) {
          const double alpha = beta == 0 ? 1 : 0.25;
          check_everywhere(
              {reference(a, ta, b, tb, c, p, alpha, beta)},
              [&](const OpTable& ops, Stream& stream, DType dtype) -> Outputs {
                // With beta 0 the old content must not matter, not even when it is not a number.
                const Host out(dtype, {p.m, p.n}, beta == 0 ? Values(c.size(), NAN) : c);
                ops.gemm(stream, out, Host(dtype, ta ? Shape{p.k, p.m} : Shape{p.m, p.k}, a), ta,
                         Host(dtype, tb ? Shape{p.n, p.k} : Shape{p.k, p.n}, b), tb, alpha, beta);
                return {out.values()};
              },
              2e-6);
        }
  }
}

TEST(Gemm, SeveralTilesAndManyDims) {
  const Product p{2 * 96, 384, 128};
  const Values a = random_values(p.m * p.k, 4);
  const Values b = random_values(p.k * p.n, 5);
  const cpu::Tiling tile = cpu::tiling_for(p.m, p.n, p.k);
  ASSERT_GT((p.m / tile.rows) * (p.n / tile.columns), 1) << "the shape no longer tests tiling";
  check_everywhere(
      {reference(a, false, b, false, Values(static_cast<size_t>(p.m * p.n)), p, 1, 0)},
      [&](const OpTable& ops, Stream& stream, DType dtype) -> Outputs {
        const Host out(dtype, {2, 96, 384});
        ops.gemm(stream, out, Host(dtype, {2, 96, 128}, a), false, Host(dtype, {128, 384}, b), false, 1, 0);
        return {out.values()};
      });
}

TEST(Gemm, TilesCoverAndAreNeverTiny) {
  for (int64_t m : {1, 17, 768, 1024, 50304})
    for (int64_t n : {1, 128, 3072, 50304})
      for (int64_t k : {1, 128, 768}) {
        const cpu::Tiling tile = cpu::tiling_for(m, n, k);
        EXPECT_GE(tile.rows, 16);
        EXPECT_GE(tile.columns, 16);
        EXPECT_LE(tile.rows, 512);
        EXPECT_LE(tile.columns, 768);
      }
}

// A worker multiplies neighbouring tiles at once, where that keeps the bits of each tile alone, which do not depend on
// the workers. At a depth of 960 it would not where the second factor is transposed.
TEST(Gemm, TilesTogetherHaveTheBitsOfEach) {
  for (const Product p : {Product{128, 600, 960}, {256, 367, 700}, {96, 769, 600}}) {
    const Host left(DType::F32, {p.m, p.k}, random_values(p.m * p.k, 6));
    const Host right(DType::F32, {p.k, p.n}, random_values(p.k * p.n, 7));
    const Tensor a = left, b = right;
    const cpu::Tiling tile = cpu::tiling_for(p.m, p.n, p.k);
    ASSERT_LT(tile.columns, p.n) << "the shape no longer has neighbours";
    for (const auto& [ta, tb] : {std::array<bool, 2>{false, false}, {true, false}, {false, true}}) {
      const Host each(DType::F32, {p.m, p.n});
      const Tensor alone = each;
      for (int64_t i = 0; i < p.m; i += tile.rows)
        for (int64_t j = 0; j < p.n; j += tile.columns)
          cpu::gemm_block(alone.as<float>() + i * p.n + j, p.n,
                          cpu::Matrix<float>{a.as<float>() + (ta ? i : i * p.k), ta ? p.m : p.k, ta},
                          cpu::Matrix<float>{b.as<float>() + (tb ? j * p.k : j), tb ? p.k : p.n, tb},
                          std::min(tile.rows, p.m - i), std::min(tile.columns, p.n - j), p.k, 1, 0);
      for (const int workers : {1, 2, 3, 5}) {
        ThreadPool pool(workers);
        Stream stream(Stream::Mode::Inline, pool);
        const Host c(DType::F32, {p.m, p.n});
        cpu_ops().gemm(stream, c, {a.data, a.dtype, ta ? Shape{p.k, p.m} : a.shape}, ta,
                       {b.data, b.dtype, tb ? Shape{p.n, p.k} : b.shape}, tb, 1, 0);
        EXPECT_EQ(c.values(), each.values()) << p.m << " x " << p.n << ", " << workers << " workers";
      }
    }
  }
}

TEST(Gemm, TilesOfARowAreOneCall) {
  std::vector<std::array<int64_t, 4>> calls;
  const auto note = [&](int64_t row, int64_t column, int64_t rows, int64_t columns) {
    calls.push_back({row, column, rows, columns});
  };
  using Calls = std::vector<std::array<int64_t, 4>>;
  // Three rows of four tiles, the last of 17 columns; the worker begins and ends within a row.
  cpu::over_tiles({128, 96}, 300, 305, 2, 11, true, note);
  EXPECT_EQ(calls, (Calls{{0, 192, 128, 113}, {128, 0, 128, 305}, {256, 0, 44, 288}}));
  calls.clear();
  cpu::over_tiles({128, 96}, 128, 193, 0, 3, true, note);  // a single column
  EXPECT_EQ(calls, (Calls{{0, 0, 128, 192}, {0, 192, 128, 1}}));
  calls.clear();
  cpu::over_tiles({512, 96}, 512, 192, 0, 2, true, note);  // many rows
  EXPECT_EQ(calls, (Calls{{0, 0, 512, 96}, {0, 96, 512, 96}}));
  calls.clear();
  cpu::over_tiles({128, 96}, 128, 192, 0, 2, false, note);
  EXPECT_EQ(calls, (Calls{{0, 0, 128, 96}, {0, 96, 128, 96}}));
}

TEST(Gemm, NothingToSum) {
  check_everywhere({{0, 0, 0, 0}, {2, 4, 6, 8}},
                   [&](const OpTable& ops, Stream& stream, DType dtype) -> Outputs {
                     const Host fresh(dtype, {2, 2}, {NAN, NAN, NAN, NAN});
                     const Host kept(dtype, {2, 2}, {1, 2, 3, 4});
                     const Host a(dtype, {2, 0});
                     const Host b(dtype, {2, 0});
                     ops.gemm(stream, fresh, a, false, b, true, 1, 0);
                     ops.gemm(stream, kept, a, false, b, true, 1, 2);
                     return {fresh.values(), kept.values()};
                   });
}

}  // namespace
}  // namespace trifold::ops_test
