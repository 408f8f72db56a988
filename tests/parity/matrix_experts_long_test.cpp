// Experts in every way to place 8 ranks: tp x cp x dp x pp for the other layers, etp x ep x copies for experts, with
// four schedules and every stage of ZeRO. Kinds of recomputation, models, exchanges of context ranks and ways of
// dispatch take turns.
#include <gtest/gtest.h>

#include "parity/matrix.h"

namespace trifold::test {
namespace {

struct Chunked {
  const char* schedule;
  int chunks;
};
constexpr Chunked kSchedules[] = {{"1f1b", 1}, {"interleaved", 2}, {"zb-h1", 1}, {"dualpipe-v", 2}};
constexpr ContextExchange kExchanges[] = {ContextExchange::AllGather, ContextExchange::Ring,
                                          ContextExchange::AllToAll};
constexpr RecomputeGranularity kGranularities[] = {
    RecomputeGranularity::None, RecomputeGranularity::Selective, RecomputeGranularity::Full};

std::vector<MatrixMesh> meshes() {
  std::vector<MatrixMesh> all;
  for (int pp = 1; pp <= 8; pp *= 2)
    for (int dp = 1; pp * dp <= 8; dp *= 2)
      for (int cp = 1; pp * dp * cp <= 8; cp *= 2)
        for (int ep = 1; pp * ep <= 8; ep *= 2)
          for (int etp = 1; pp * ep * etp <= 8; etp *= 2) {
            const int tp = 8 / (pp * dp * cp);
            const size_t turn = all.size();
            all.push_back(
                {pp, dp, tp, tp > 1, cp,
                 cp > 1 ? kExchanges[turn % std::size(kExchanges)] : ContextExchange::AllGather, ep, etp,
                 ep * etp > 1 && turn % 2 == 1 ? TokenDispatcher::AllGather : TokenDispatcher::AllToAll});
          }
  return all;
}

class ExpertMatrix : public ::testing::TestWithParam<MatrixMesh> {};

TEST_P(ExpertMatrix, IsOneCurve) {
  const MatrixMesh& mesh = GetParam();
  Matrix matrix;
  size_t turn = static_cast<size_t>(mesh.ep + mesh.dp);
  for (const Chunked& how : kSchedules)
    for (int stage = 0; stage < 4; ++stage, ++turn) {
      // Heads, of keys too, that context ranks can exchange; one block a stage at the most stages.
      MatrixModel model{mesh.pp * how.chunks > 8 ? 14 : 7, 0.2, true};
      model.experts = 8;
      if (mesh.etp % 2 == 0) model.key_heads = 8;
      if (mesh.cp == 8) model.positions = 16;  // two runs of positions for each context rank
      MatrixCase c{mesh,       how.schedule,
                   how.chunks, std::max(2, how.chunks * mesh.pp),
                   model,      kGranularities[turn % std::size(kGranularities)]};
      c.zero_stage = stage;
      c.steps = 4;
      matrix.check(c);
    }
}

INSTANTIATE_TEST_SUITE_P(EightRanks, ExpertMatrix, ::testing::ValuesIn(meshes()),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace trifold::test
