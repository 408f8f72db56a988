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
