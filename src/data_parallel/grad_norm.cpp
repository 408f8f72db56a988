#include "data_parallel/grad_norm.h"

#include <cmath>

namespace trifold {

void add_grad_squares(const ParamList& params, const GradSink& grads, const Mesh& mesh, const OpTable& ops,
                      Tensor sums, Stream& stream) {
  const std::vector<ParamId> ids = params.by_name();
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!params.held(ids[i])) continue;
    const AxisSet replicated = params[ids[i]].shard.replicated;
    if (replicated.has(Axis::Tp) && mesh.coord(Axis::Tp) != 0) continue;  // counted by coordinate 0
    const auto at = static_cast<int64_t>(i);
    ops.sum_squares(stream, sums.rows(at, at + 1), grads.grad(ids[i]));
  }
}

std::vector<double> grad_norms(Tensor sums, const Mesh& mesh, Stream& stream) {
  Communicator& model_ranks = mesh.comm({Axis::Tp, Axis::Pp});
  if (model_ranks.size() > 1) model_ranks.all_reduce(sums, Reduce::Sum, stream);
  stream.synchronize();
  std::vector<double> norms;
  const double* next = sums.as<double>();
  for (int64_t row = 0; row < sums.dim(0); ++row) {
    double total = 0;
    for (int64_t i = 0; i < sums.dim(1); ++i) total += *next++;
    norms.push_back(std::sqrt(total));
  }
  return norms;
}

double clip_factor(double norm, double limit) {
  if (limit == 0 || norm <= limit) return 1;
  return limit / (norm + 1e-6);
}

}  // namespace trifold
