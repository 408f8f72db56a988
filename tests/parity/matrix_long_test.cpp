// The whole matrix: every way to place 8 ranks x every synchronous schedule x several numbers of
// micro-batches x sequence parallelism x dropout x f32 and f64, with every kind of recomputation if there is dropout to
// repeat. All of it for a GPT; with dropout only for a Llama and a BERT.
#include <gtest/gtest.h>

#include "parity/matrix.h"

namespace trifold::test {
namespace {

// All schedules that this many pipeline ranks can run; with one rank those that cut the model nevertheless.
std::vector<MatrixCase> schedules(const MatrixMesh& mesh) {
  std::vector<MatrixCase> cases;
  for (const std::string_view name : schedule_names()) {
    const Schedule schedule = *find_schedule(name);
    if (is_async(schedule)) continue;
    const int chunks = schedule == Schedule::Interleaved || needs_two_chunks(schedule) ? 2 : 1;
    for (const int micros : {1, mesh.pp, 2 * mesh.pp, 2 * mesh.pp + 1}) {
      if (micros < min_micros(schedule, mesh.pp, chunks) || (micros == mesh.pp && mesh.pp == 1)) continue;
      MatrixCase c{mesh, std::string(name), chunks, micros, {}};
      // One block a stage at the most stages; else a number of layers that cannot be divided evenly.
      c.model.layers = mesh.pp * chunks > 8 ? 14 : 7;
      cases.push_back(c);
    }
  }
  return cases;
}

std::vector<MatrixMesh> meshes() {
  std::vector<MatrixMesh> all;
  for (int pp = 1; pp <= 8; pp *= 2)
    for (int dp = 1; pp * dp <= 8; dp *= 2) {
      const int tp = 8 / pp / dp;
      all.push_back({pp, dp, tp, false});
      if (tp > 1) all.push_back({pp, dp, tp, true});
    }
  return all;
}

struct Part {
  MatrixMesh mesh;
  std::string family;
  MatrixModel model;
};

std::vector<Part> parts() {
  std::vector<Part> all;
  for (const MatrixMesh& mesh : meshes())
    for (const bool f64 : {false, true}) {
      for (const double dropout : {0.0, 0.2}) all.push_back({mesh, "gpt", {.dropout = dropout, .f64 = f64}});
      // Two key heads are fewer than the ranks of some meshes.
      all.push_back({mesh, "llama", {.dropout = 0.2, .f64 = f64, .key_heads = 2}});
      all.push_back({mesh, "bert", {.dropout = 0.2, .f64 = f64, .bert = true}});
    }
  return all;
}

class WholeMatrix : public ::testing::TestWithParam<Part> {};

TEST_P(WholeMatrix, IsOneCurve) {
  const Part& part = GetParam();
  const bool recomputes = part.model.dropout > 0 && !part.model.f64;
  Matrix matrix;
  for (MatrixCase c : schedules(part.mesh)) {
    const int64_t layers = c.model.layers;
    c.model = part.model;
    c.model.layers = layers;
    matrix.check(c);
    if (!recomputes) continue;
    for (const auto mode : {RecomputeGranularity::Selective, RecomputeGranularity::Full}) {
      c.recompute = mode;
      matrix.check(c);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EightRanks, WholeMatrix, ::testing::ValuesIn(parts()), [](const auto& test) {
  const Part& part = test.param;
  return part.family + "_" + name_of(part.mesh) + (part.model.dropout > 0 ? "_dropout" : "") +
         (part.model.f64 ? "_f64" : "_f32");
});

}  // namespace
}  // namespace trifold::test
