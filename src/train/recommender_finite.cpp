// Where the first number of a recommender's step that is infinite or NaN is.
#include <cmath>

#include "ops/host_copy.h"
#include "train/recommender.h"

namespace trifold {

namespace {

// The first element of columns [begin, end) of a matrix that is not finite; -1: there is none.
int64_t first_bad(Tensor matrix, int64_t begin, int64_t end) {
  if (matrix.data == nullptr || matrix.elements() == 0) return -1;
  const int64_t stride = matrix.last_dim();
  const int64_t rows = matrix.elements() / stride;
  return dispatch_wide_float(matrix.dtype, [&](auto zero) -> int64_t {
    using T = decltype(zero);
    const T* all = matrix.as<T>();
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = begin; c < end; ++c)
        if (!std::isfinite(all[r * stride + c])) return r * stride + c;
    return -1;
  });
}

struct Place {
  std::string name;
  Tensor matrix;
  int64_t begin, end;  // columns
  bool of_samples;     // its rows are samples
  bool on_host;        // always: what a batch brought
};

}  // namespace

// Everything that a forward reads and makes, in the direction of the data. The first place of the first rank
// that has one is where the cause is.
void Recommender::fail_not_finite(const Fetched& fetched, Tensor logits, double loss, int64_t step) {
  const ClickBatch& batch = fetched.clicks.batch();
  std::vector<Place> places;
  const auto add = [&](std::string name, Tensor matrix, bool of_samples, bool on_host = false) {
    places.push_back({std::move(name), matrix, 0, matrix.last_dim(), of_samples, on_host});
  };
  const auto add_weights = [&](const std::string& beginning) {
    for (const ParamSpec& param : model_.params().specs())
      if (param.shard.name.starts_with(beginning))
        add("the weight " + param.shard.name, weights_.weight(model_.params().find(param.shard.name)), false);
  };
  if (setup_.model.has_bottom()) add("the dense numbers", batch.dense, true, true);
  for (size_t t = 0; t < batch.id_weights.size(); ++t)
    add("the weights of ids of table " + setup_.schema.tables[t].name, batch.id_weights[t], false, true);
  add_weights("bottom");
  const int64_t width = setup_.model.width;
  if (setup_.model.has_bottom())
    places.push_back({"the bottom MLP's vector", features_, 0, width, true, false});
  for (int t = 0; t < setup_.schema.table_count(); ++t) {
    const int64_t column = placement_.feature_column(t);
    places.push_back({"the vectors of table " + setup_.schema.table(t).name, features_, column,
                      column + width, true, false});
  }
  add_weights("cross");
  add_weights("top");
  add("the logits", logits, true);

  // Of every rank: the number of its first bad place, and the sample. Doubles hold both exactly.
  const auto ranks = static_cast<size_t>(world_.size());
  std::vector<double> found(2 * ranks, 0.0);
  double& place = found[2 * static_cast<size_t>(world_.rank())] = static_cast<double>(places.size());
  for (size_t i = 0; i < places.size(); ++i) {
    const Place& p = places[i];
    const HostCopy copy(p.on_host ? cpu_ops() : ops_, compute_, p.matrix);
    const int64_t at = first_bad(copy.tensor(), p.begin, p.end);
    if (at < 0) continue;
    place = static_cast<double>(i);
    const int64_t sample = batch.first_sample + at / p.matrix.last_dim();
    if (p.of_samples) found[2 * static_cast<size_t>(world_.rank()) + 1] = static_cast<double>(sample);
    break;
  }
  Stream host = compute_.host();
  world_.all_reduce({found.data(), DType::F64, {static_cast<int64_t>(found.size())}}, Reduce::Sum, host);
  size_t rank = 0;
  for (size_t r = 1; r < ranks; ++r)
    if (found[2 * r] < found[2 * rank]) rank = r;
  const auto first = static_cast<size_t>(found[2 * rank]);
  std::string where = "all numbers before it are finite: it is too large for its type";
  if (first < places.size())
    where = fmt::format("the first number that is not finite is among {}{}, on rank {}", places[first].name,
                        places[first].of_samples ? fmt::format(" of sample {} of the epoch",
                                                               static_cast<int64_t>(found[2 * rank + 1]))
                                                 : "",
                        rank);
  throw Error(
      fmt::format("step {}: the loss is {}; {}. No weight was changed in this step. A smaller learning rate, "
                  "or more warm-up, may help",
                  step, std::isnan(loss) ? std::abs(loss) : loss /* no "-nan" */, where),
      ErrorKind::Agreed);
}

}  // namespace trifold
