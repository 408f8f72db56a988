// One case in the matrix of meshes, schedules and modes, and its checks.
//
// A run on pp x dp x cp x tp ranks gives the bits of the run with the same dp, cp, tp and sequence parallelism
// on one stage, whatever the schedule and the recomputation; with experts spread over ep x etp of
// these ranks, that with the same ep and etp. Within rounding it gives the curve of one rank. A curve is all losses,
// all gradient norms and the loss on validation data at the end.
#pragma once

#include <map>
#include <string>
#include <tuple>

#include "config/fields/schedule.h"
#include "support/training.h"

namespace trifold::test {

struct MatrixMesh {
  int pp = 1, dp = 1, tp = 1;
  bool sequence_parallel = false;
  int cp = 1;
  ContextExchange exchange = ContextExchange::AllGather;
  int ep = 1;
  int etp = 1;
  TokenDispatcher dispatch = TokenDispatcher::AllToAll;  // of the run itself: it changes no bit
};

struct MatrixModel {
  int64_t layers = 7;
  double dropout = 0;
  bool f64 = false;
  bool tied = true;
  // A Llama with so many key heads, whose head is its own; 0: a GPT.
  int64_t key_heads = 0;
  bool bert = false;
  int64_t experts = 0;  // 0: one feed-forward network
  // Parts of the output layer (--pipeline-vocab-parts), also of the run that gives the bits.
  int head_parts = 1;
  int64_t positions = 8;   // of a sample
  bool documents = false;  // that do not see each other
};

struct MatrixCase {
  MatrixMesh mesh;
  std::string schedule = "1f1b";
  int chunks = 1;
  int micros = 4;  // of each data-parallel rank
  MatrixModel model;
  RecomputeGranularity recompute = RecomputeGranularity::None;
  int zero_stage = 0;  // of this run only: it changes no bit
  int steps = 0;       // 0: as many as others, in which something is learnt
};

std::string name_of(const MatrixMesh& mesh);
std::string name_of(const MatrixCase& c);

// Remembers the curves that several cases are compared with.
class Matrix {
 public:
  // `device`: of the checked runs, not of those that they are compared with.
  explicit Matrix(ComputeDevice device = ComputeDevice::Auto) : device_(device) {}

  // Adds test failures that name the case.
  void check(const MatrixCase& c);

 private:
  const Curve& reference(const MatrixCase& c, const MatrixMesh& mesh);

  // By mesh, global batch and model.
  using Key = std::tuple<int, int, ContextExchange, int, int, int, bool, int, int64_t, double, bool, bool,
                         int64_t, bool, int64_t, int, int64_t, bool, int>;
  const ComputeDevice device_;
  std::map<Key, Curve> known_;
};

}  // namespace trifold::test
