// The matrix of context ranks: every way to place 8 ranks on the tensor, context, pipeline and data axes x every
// exchange of the context axis, in f32 and f64, for a GPT, a BERT, and a Llama with few key heads whose samples have
// documents. Schedules, recomputation, sequence parallelism and ZeRO stages alternate.
#include <gtest/gtest.h>

#include "parity/matrix.h"

namespace trifold::test {
namespace {

std::vector<MatrixMesh> context_meshes() {
  std::vector<MatrixMesh> all;
  for (int pp = 1; pp <= 8; pp *= 2)
    for (int dp = 1; pp * dp <= 8; dp *= 2)
      for (int cp = 1; pp * dp * cp <= 8; cp *= 2)
        for (const auto& exchange : Names<ContextExchange>::kAll)
          if (cp > 1 || exchange.value == ContextExchange::AllGather)
            all.push_back({pp, dp, 8 / pp / dp / cp, false, cp, exchange.value});
  return all;
}

enum class Kind { Gpt, Bert, Documents };

MatrixModel model_of(Kind kind, bool f64) {
  MatrixModel model{7, 0.2, f64};
  model.positions = 16;
  model.bert = kind == Kind::Bert;
  model.documents = kind == Kind::Documents;
  if (model.documents) model.key_heads = 2;
  return model;
}

class ContextMatrix : public ::testing::TestWithParam<std::tuple<MatrixMesh, Kind>> {};

TEST_P(ContextMatrix, IsOneCurve) {
  constexpr RecomputeGranularity kModes[] = {RecomputeGranularity::None, RecomputeGranularity::Selective,
                                             RecomputeGranularity::Full};
  const auto& [shape, kind] = GetParam();
  Matrix matrix;
  for (const bool f64 : {false, true}) {
    MatrixMesh mesh = shape;
    mesh.sequence_parallel = f64 && mesh.tp > 1;
    MatrixModel model = model_of(kind, f64);
    const auto choice = static_cast<size_t>(mesh.pp + 2 * mesh.cp + (f64 ? 1 : 0));
    MatrixCase c{mesh, "1f1b", 1, 2 * mesh.pp, model, kModes[choice % 3], static_cast<int>(choice % 4)};
    matrix.check(c);
    if (mesh.pp == 1) continue;
    c.schedule = "zb-h1";
    matrix.check(c);
    c.schedule = f64 ? "zb-v" : "interleaved";
    c.chunks = 2;
    c.recompute = kModes[(choice + 1) % 3];
    if (mesh.pp == 8) c.model.layers = 14;
    matrix.check(c);
  }
}

INSTANTIATE_TEST_SUITE_P(EightRanks, ContextMatrix,
                         ::testing::Combine(::testing::ValuesIn(context_meshes()),
                                            ::testing::Values(Kind::Gpt, Kind::Bert, Kind::Documents)),
                         [](const auto& test) {
                           const Kind kind = std::get<1>(test.param);
                           return std::string(kind == Kind::Gpt    ? "gpt_"
                                              : kind == Kind::Bert ? "bert_"
                                                                   : "documents_") +
                                  name_of(std::get<0>(test.param));
                         });

}  // namespace
}  // namespace trifold::test
