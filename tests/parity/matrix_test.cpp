// A cut through the matrix of meshes, schedules and modes: every mesh of 8 ranks and every schedule at least
// once in f32 and in f64. parity_whole_matrix runs it over more steps, and all of the matrix (matrix_long_test.cpp).
#include <gtest/gtest.h>

#include "parity/matrix.h"

namespace trifold::test {
namespace {

constexpr RecomputeGranularity kNone = RecomputeGranularity::None;
constexpr RecomputeGranularity kSelective = RecomputeGranularity::Selective;
constexpr RecomputeGranularity kFull = RecomputeGranularity::Full;

void check_all(const std::vector<MatrixCase>& cases) {
  Matrix matrix;
  for (const MatrixCase& c : cases) matrix.check(c);
}

// {layers, dropout, f64}
constexpr MatrixModel kPlain{7, 0.0, false};
constexpr MatrixModel kDropout{7, 0.2, false};
constexpr MatrixModel kExact{7, 0.2, true};
constexpr MatrixModel kDeep{14, 0.2, false};
constexpr MatrixModel kDeepExact{14, 0.0, true};

TEST(Matrix, OneStage) {
  check_all({
      {{1, 8, 1}, "1f1b", 1, 2, kDropout},
      {{1, 4, 2}, "1f1b", 1, 3, kExact},
      {{1, 2, 4, true}, "1f1b", 1, 2, kDropout, kSelective},
      {{1, 1, 8}, "1f1b", 1, 2, kPlain},
      {{1, 1, 8, true}, "1f1b", 1, 2, kExact, kFull},
      {{1, 2, 4}, "interleaved", 2, 3, kExact},
      {{1, 8, 1}, "zb-v", 2, 2, kDropout},
      {{1, 4, 2, true}, "dualpipe-v", 2, 4, kDropout},
  });
}

TEST(Matrix, TwoStages) {
  check_all({
      {{2, 4, 1}, "gpipe", 1, 4, kDropout},
      {{2, 4, 1}, "zb-v", 2, 5, kExact},
      {{2, 2, 2}, "1f1b", 1, 5, kExact},
      {{2, 2, 2, true}, "1f1b", 1, 2, kDropout, kFull},
      {{2, 2, 2, true}, "interleaved", 2, 4, kExact},
      {{2, 2, 2}, "interleaved", 2, 5, kDropout, kSelective},
      {{2, 2, 2, true}, "zb-h1", 1, 4, kDropout, kSelective},
      {{2, 2, 2, true}, "dualpipe-v", 2, 4, kExact},
      {{2, 1, 4}, "gpipe", 1, 4, kDropout, kFull},
      {{2, 1, 4}, "zb-h2", 1, 4, kDropout},
      {{2, 1, 4, true}, "zb-h1", 1, 5, kExact},
      {{2, 1, 4, true}, "dualpipe-v", 2, 5, kDropout, kFull},
  });
}

TEST(Matrix, FourStages) {
  check_all({
      {{4, 2, 1}, "gpipe", 1, 8, kExact},
      {{4, 2, 1}, "1f1b", 1, 3, kDropout},  // fewer micro-batches than stages
      {{4, 2, 1}, "zb-h1", 1, 8, kDropout, kFull},
      {{4, 2, 1}, "zb-v", 2, 8, kDropout, kSelective},
      {{4, 1, 2}, "1f1b", 1, 8, kDropout},
      {{4, 1, 2, true}, "interleaved", 2, 8, kDropout, kFull},
      {{4, 1, 2, true}, "zb-h2", 1, 9, kExact},
      {{4, 1, 2, true}, "zb-v", 2, 4, kExact, kFull},
      {{4, 1, 2}, "dualpipe-v", 2, 8, kDropout},
  });
}

TEST(Matrix, EightStages) {
  check_all({
      {{8, 1, 1}, "gpipe", 1, 8, kDropout},
      {{8, 1, 1}, "1f1b", 1, 1, kDropout},
      {{8, 1, 1}, "1f1b", 1, 17, kExact},
      {{8, 1, 1}, "zb-h1", 1, 8, kExact, kSelective},
      {{8, 1, 1}, "zb-h2", 1, 16, kDropout},
      {{8, 1, 1}, "interleaved", 2, 8, kDeep},  // one block a stage, the last one the head alone
      {{8, 1, 1}, "zb-v", 2, 8, kDeepExact},
      {{8, 1, 1}, "dualpipe-v", 2, 16, kDeep},
  });
}

// The head as a matrix of its own has no gradient to exchange between the first stage and the last.
TEST(Matrix, UntiedHead) {
  const MatrixModel untied{7, 0.2, false, false};
  check_all({
      {{2, 2, 2, true}, "1f1b", 1, 4, untied},
      {{4, 2, 1}, "zb-h1", 1, 4, untied},
      {{4, 1, 2}, "zb-v", 2, 4, untied, kFull},
  });
}

// Parts of the output layer on one stage, on several, and on every rank of a V or a loop.
TEST(Matrix, HeadInParts) {
  const auto model = [](int parts, bool f64, double dropout = 0.2) {
    return MatrixModel{6, dropout, f64, false, 0, false, 0, parts};
  };
  check_all({
      {{1, 1, 1}, "1f1b", 1, 2, model(4, true)},
      {{1, 1, 1}, "1f1b", 1, 2, model(2, false)},
      {{1, 2, 2}, "1f1b", 1, 2, model(4, true)},
      {{1, 1, 2, true}, "1f1b", 1, 2, model(4, true)},
      {{1, 2, 1, false, 2}, "1f1b", 1, 2, model(4, true)},
      {{2, 1, 1}, "gpipe", 1, 4, model(8, true)},
      {{2, 2, 1}, "1f1b", 1, 4, model(8, false), kNone, 2},
      {{2, 2, 2, true}, "zb-h1", 1, 4, model(8, true), kSelective},
      {{2, 1, 2}, "zb-v", 2, 4, model(16, true), kFull},
      {{4, 1, 1}, "zb-h2", 1, 8, model(16, true), kNone, 0},
      {{4, 1, 1}, "auto", 1, 8, model(16, false)},
      {{4, 1, 1}, "auto", 2, 8, model(16, true)},
      {{4, 2, 1}, "interleaved", 2, 8, model(16, false), kNone, 1},
      {{4, 1, 2, true}, "dualpipe-v", 2, 8, model(16, true)},
      {{4, 1, 1, false, 2}, "zb-v", 2, 8, model(16, true)},
      {{8, 1, 1}, "interleaved", 2, 8, model(16, true)},  // stages of parts alone
      {{2, 1, 2, true}, "zb-v", 2, 4, model(8, false, 0.0)},
      {{4, 2, 1}, "zb-h1", 1, 8, MatrixModel{6, 0.2, true, true, 0, false, 0, 16}, kNone, 2},
      {{2, 1, 2, true}, "zb-v", 2, 4, MatrixModel{6, 0.0, false, true, 0, false, 0, 8}},
  });
}

// Key heads are cut over the tensor ranks, or, where there are fewer of them than ranks, held by several.
TEST(Matrix, Llama) {
  const MatrixModel eight{7, 0.0, false, false, 8}, four{7, 0.2, true, false, 4},
      two{7, 0.2, false, false, 2}, one{7, 0.0, true, false, 1};
  check_all({
      {{2, 2, 2, true}, "1f1b", 1, 4, eight},
      {{2, 2, 2, true}, "zb-h1", 1, 4, four, kSelective},
      {{4, 1, 2}, "zb-v", 2, 8, two, kFull},
      {{1, 2, 4}, "1f1b", 1, 2, two},
      {{2, 1, 4, true}, "interleaved", 2, 4, two, kSelective},
      {{1, 1, 8, true}, "1f1b", 1, 2, two, kFull},
      {{1, 2, 4, true}, "1f1b", 1, 2, one},
      {{8, 1, 1}, "dualpipe-v", 2, 16, {14, 0.0, false, false, 2}},
  });
}

// The positions of each sample are cut over the context ranks, a run from each end.
TEST(Matrix, Context) {
  const MatrixModel llama{7, 0.2, true, false, 2}, shared{7, 0.2, false, false, 1};
  check_all({
      {{1, 1, 1, false, 2}, "1f1b", 1, 2, kExact},
      {{1, 1, 1, false, 4}, "1f1b", 1, 3, kDropout, kSelective},
      {{1, 2, 1, false, 4}, "1f1b", 1, 2, kExact, kFull},
      {{1, 1, 4, true, 2}, "1f1b", 1, 2, kExact},
      {{2, 2, 1, false, 2}, "zb-h1", 1, 4, kDropout},
      {{2, 1, 2, true, 2}, "interleaved", 2, 4, kExact, kSelective},
      {{2, 1, 2, false, 2}, "zb-v", 2, 5, llama},
      {{2, 1, 1, false, 4}, "dualpipe-v", 2, 4, kDropout, kFull},
      {{4, 1, 1, false, 2}, "gpipe", 1, 4, kPlain},
      {{4, 1, 1, false, 2}, "zb-h2", 1, 8, kExact},
      {{1, 2, 2, true, 2}, "1f1b", 1, 2, shared, kSelective},
  });
}

// Context ranks that take some heads each of all positions.
TEST(Matrix, ContextOfHeads) {
  constexpr ContextExchange kHeads = ContextExchange::AllToAll;
  const MatrixModel llama{7, 0.2, true, false, 4};
  check_all({
      {{1, 1, 1, false, 4, kHeads}, "1f1b", 1, 2, kDropout},
      {{1, 2, 1, false, 4, kHeads}, "1f1b", 1, 2, kExact, kFull},
      {{1, 1, 2, true, 2, kHeads}, "1f1b", 1, 2, llama, kSelective},
      {{2, 1, 2, true, 2, kHeads}, "zb-h1", 1, 4, kExact},
      {{4, 1, 1, false, 2, kHeads}, "zb-v", 2, 8, llama, kFull},
  });
}

// Context ranks that send keys and values round a ring.
TEST(Matrix, ContextOfRings) {
  constexpr ContextExchange kRing = ContextExchange::Ring;
  const MatrixModel llama{7, 0.2, true, false, 2}, shared{7, 0.2, false, false, 1};
  check_all({
      {{1, 1, 1, false, 2, kRing}, "1f1b", 1, 2, kExact},
      {{1, 1, 1, false, 4, kRing}, "1f1b", 1, 2, kDropout, kSelective},
      {{1, 2, 1, false, 4, kRing}, "1f1b", 1, 2, kExact, kFull},
      {{1, 1, 2, true, 4, kRing}, "1f1b", 1, 2, kExact},
      {{2, 1, 2, true, 2, kRing}, "interleaved", 2, 4, llama, kSelective},
      {{2, 1, 1, false, 4, kRing}, "zb-h1", 1, 4, kExact},
      {{4, 1, 1, false, 2, kRing}, "zb-v", 2, 8, llama, kFull},
      {{1, 2, 2, true, 2, kRing}, "1f1b", 1, 2, shared, kSelective},
  });
}

// Its second loss is divided by the pairs, its first by the masked tokens of a whole global batch, whichever
// rank has them; under sequence parallelism a sample's first row is on one of the ranks.
TEST(Matrix, Bert) {
  const MatrixModel plain{.dropout = 0, .bert = true}, exact{.dropout = 0.2, .f64 = true, .bert = true},
      dropout{.dropout = 0.2, .bert = true};
  check_all({
      {{2, 2, 2, true}, "1f1b", 1, 4, exact},
      {{1, 4, 2}, "1f1b", 1, 3, exact, kSelective},
      {{1, 2, 4, true}, "1f1b", 1, 2, dropout, kFull},
      {{4, 1, 2}, "zb-v", 2, 8, dropout, kSelective},
      {{8, 1, 1}, "zb-h1", 1, 8, plain},
      {{1, 1, 1, false, 2}, "1f1b", 1, 2, exact},
      {{1, 2, 2, true, 2}, "1f1b", 1, 2, exact, kFull},
      {{2, 1, 1, false, 4}, "zb-h1", 1, 4, dropout, kSelective},
      {{2, 1, 2, true, 2, ContextExchange::AllToAll}, "1f1b", 1, 4, exact},
      {{1, 2, 1, false, 4, ContextExchange::Ring}, "1f1b", 1, 2, exact, kSelective},
      {{2, 1, 2, true, 2, ContextExchange::Ring}, "zb-h1", 1, 4, exact, kFull},
  });
}

// Layers that cannot be divided evenly, and stages of one block: the first holds the embedding alone, the last the head
// alone.
TEST(Matrix, UnevenStages) {
  check_all({
      {{3, 1, 1}, "1f1b", 1, 5, kDropout},
      {{3, 1, 2, true}, "zb-h1", 1, 4, kExact},
      {{4, 1, 1}, "1f1b", 1, 6, {2, 0.2, false}},
      {{4, 1, 1}, "zb-h2", 1, 6, {2, 0.2, false}, kFull},
      {{2, 1, 2}, "zb-v", 2, 4, {2, 0.0, true}},
      {{3, 1, 2, true}, "auto", 1, 5, kExact},
      {{2, 2, 2}, "auto", 2, 5, kDropout, kSelective},
      {{2, 1, 1}, "interleaved", 4, 4, {6, 0.2, false}},
      {{3, 2, 1}, "interleaved", 3, 4, kDropout},
      {{5, 1, 1}, "gpipe", 1, 7, kDropout},
      {{6, 1, 1}, "dualpipe-v", 2, 12, {11, 0.2, false}},
  });
}

TEST(Matrix, SixtyFourRanks) { check_all({{{4, 4, 4, true}, "1f1b", 1, 4, kExact, kSelective}}); }

// A token's experts are the same on every mesh, so only sums are made in another order; some experts get no
// token of a micro-batch of 8.
TEST(Matrix, Experts) {
  MatrixModel exact{7, 0.2, true};
  exact.experts = 6;
  MatrixModel llama{7, 0.0, true};
  llama.experts = 20;
  llama.key_heads = 2;
  check_all({
      {{1, 4, 1}, "1f1b", 1, 2, exact, kNone, 1},
      {{1, 4, 1}, "1f1b", 1, 2, exact, kNone, 3},
      {{1, 2, 1}, "1f1b", 1, 2, llama, kFull},
      {{2, 2, 1}, "gpipe", 1, 4, exact, kSelective},
      {{2, 1, 1}, "zb-v", 2, 5, llama},
      {{4, 2, 1}, "interleaved", 2, 4, llama, kSelective, 2},
      {{4, 1, 1}, "zb-h1", 1, 8, exact, kFull},
      {{4, 1, 1}, "dualpipe-v", 2, 8, exact},
  });
}

// Spread over ranks they are the same experts.
TEST(Matrix, ExpertsOnManyRanks) {
  MatrixModel exact{7, 0.2, true};
  exact.experts = 8;
  MatrixModel llama{7, 0.0, true};
  llama.experts = 20;
  llama.key_heads = 2;
  const auto mesh = [](int pp, int dp, int ep) {
    MatrixMesh result{pp, dp, 1};
    result.ep = ep;
    return result;
  };
  check_all({
      {mesh(1, 2, 2), "1f1b", 1, 2, exact, kNone, 0},
      {mesh(1, 8, 8), "1f1b", 1, 2, exact, kSelective, 1},
      {mesh(1, 8, 4), "1f1b", 1, 2, exact, kNone, 3},
      {mesh(2, 4, 4), "1f1b", 1, 2, llama, kFull, 2},
      {mesh(2, 4, 2), "gpipe", 1, 4, exact, kSelective, 1},
      {mesh(2, 2, 2), "zb-v", 2, 5, llama, kNone, 2},
      {mesh(2, 4, 4), "zb-h2", 1, 6, exact, kSelective, 1},
      {mesh(4, 2, 2), "interleaved", 2, 4, llama, kSelective, 3},
      {mesh(4, 2, 2), "zb-h1", 1, 8, exact, kFull, 2},
      {mesh(4, 2, 2), "dualpipe-v", 2, 8, exact, kNone, 1},
      {{2, 2, 2, true, 1, ContextExchange::AllGather, 4}, "zb-h1", 1, 4, exact, kSelective, 1},
      {{2, 1, 4, true, 1, ContextExchange::AllGather, 2}, "1f1b", 1, 4, exact, kFull},
      {{1, 2, 1, false, 2, ContextExchange::AllGather, 4}, "1f1b", 1, 2, exact, kSelective, 2},
      {{2, 1, 2, true, 2, ContextExchange::Ring, 4}, "zb-h1", 1, 4, exact, kFull, 1},
  });
}

// And so are experts that are cut, on any ranks of a stage.
TEST(Matrix, PartsOfExpertsOnManyRanks) {
  MatrixModel exact{7, 0.2, true};
  exact.experts = 8;
  MatrixModel llama{7, 0.0, true};
  llama.experts = 20;
  llama.key_heads = 2;
  constexpr ContextExchange kGather = ContextExchange::AllGather;
  check_all({
      {{1, 8, 1, false, 1, kGather, 4, 2}, "1f1b", 1, 2, exact, kSelective, 3},
      {{1, 4, 2, true, 1, kGather, 1, 8}, "1f1b", 1, 2, llama, kNone, 1},
      {{1, 2, 4, true, 1, kGather, 2, 2}, "1f1b", 1, 2, exact, kFull, 2},
      {{1, 2, 2, true, 2, kGather, 2, 4}, "1f1b", 1, 2, exact, kNone, 0},
      {{2, 4, 1, false, 1, kGather, 1, 2}, "zb-h1", 1, 4, llama, kFull, 2},
      {{2, 1, 2, true, 2, ContextExchange::Ring, 2, 2}, "interleaved", 2, 4, exact, kSelective, 1},
      {{4, 2, 1, false, 1, kGather, 1, 2}, "dualpipe-v", 2, 8, exact, kNone, 3},
      {{4, 1, 2, true, 1, kGather, 1, 2}, "zb-v", 2, 8, llama, kNone, 0},
  });
}

}  // namespace
}  // namespace trifold::test
