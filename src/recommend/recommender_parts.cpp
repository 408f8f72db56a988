// Groups of tables with their batches, and statistics of batch normalisation, of a recommender's rank.
#include <algorithm>

#include "checkpoint/tensor_kind.h"
#include "recommend/recommender.h"

namespace trifold {

bool is_of_model(std::string_view tensor) {
  const std::string_view kind = kind_of_tensor(tensor);
  return is_weight(tensor) || kind == kKeysKind || kind == kNormKinds[0] || kind == kNormKinds[1];
}

// Running statistics begin as mean 0 and variance 1.
void Recommender::make_statistics() {
  const NormedLayer last = setup_.model.normed().empty() ? NormedLayer{} : setup_.model.normed().back();
  const Shape shape{2, last.first + last.columns};
  const DType dtype = accumulate_type(setup_.dense_dtype());
  const size_t bytes = static_cast<size_t>(shape.elements()) * size_of(dtype);
  running_ = Buffer(bytes, ops_.device);
  latest_ = Buffer(bytes, ops_.device);
  if (world_.size() > 1) norm_comm_ = world_.duplicate();
  const Tensor running = running_.tensor(dtype, shape);
  ops_.fill(compute_, running.rows(0, 1), 0);
  ops_.fill(compute_, running.rows(1, 2), 1);
  for (const auto& fetched : fetched_) {
    fetched->real = Buffer(static_cast<size_t>(samples_) * size_of(dtype));
    fetched->rows.real = fetched->real.tensor(dtype, {samples_, 1});
    fetched->rows.ranks = norm_comm_.get();
    fetched->rows.running = running;
    fetched->rows.latest = latest_.tensor(dtype, shape);
  }
}

// running = (1 - momentum) running + momentum latest, with the variance of what the `real` samples are drawn from.
void Recommender::update_statistics(int64_t real) {
  const Tensor& running = fetched_[0]->rows.running;
  const Tensor& latest = fetched_[0]->rows.latest;
  const auto n = static_cast<double>(real);
  ops_.scale(compute_, running, 1 - WholeBatch::kMomentum);
  ops_.scale(compute_, latest, WholeBatch::kMomentum);
  ops_.scale(compute_, latest.rows(1, 2), n / std::max(1.0, n - 1));
  ops_.add(compute_, running, running, latest);
}

// The same on every rank; the first one saves them.
std::vector<NamedTensor> Recommender::statistics_tensors() const {
  std::vector<NamedTensor> tensors;
  for (const NormedLayer& layer : setup_.model.normed())
    for (int64_t row = 0; row < 2; ++row) {
      const Tensor& running = fetched_[0]->rows.running;
      const int64_t at = row * running.last_dim() + layer.first;
      ShardSpec spec;
      spec.name = fmt::format("{}/{}", kNormKinds[row], layer.name);
      spec.global = {layer.columns};
      spec.local = Rect::whole(spec.global);
      tensors.push_back({spec, running.flat(at, at + layer.columns)});
    }
  return tensors;
}

// Each group exchanges on communicators of its own: two are never in the same call.
void Recommender::make_groups() {
  const bool places = !setup_.model.places.empty();
  const int ranks = world_.size();
  std::vector<TableGroup> groups = group_tables(placement_);
  const std::vector<EmbeddingTables::Options> options = setup_.tables(groups, world_.rank());
  for (size_t g = 0; g < groups.size(); ++g) {
    TableGroup& group = groups[g];
    const auto bytes = [&](bool wanted) {
      const int64_t numbers = looked_up_shape(setup_, group, samples_).elements();
      return wanted ? static_cast<size_t>(numbers) * size_of(setup_.dtype) : 0;
    };
    BagBatch bags(setup_.uses(), group, setup_.schema, samples_);
    Buffer vectors(bytes(places), ops_.device), gradients(bytes(places && setup_.training), ops_.device);
    auto made = std::make_unique<Tables>(Tables{
        std::move(group), std::move(bags), world_.duplicate(ids_group(g)), world_.duplicate(vectors_group(g)),
        nullptr, nullptr, std::move(vectors), std::move(gradients)});
    const Placement& placement = made->group.placement;
    made->ids = std::make_unique<IdExchange>(placement, *made->id_comm, ops_,
                                             setup_.lookups(ranks, made->group.bags));
    made->tables =
        std::make_unique<EmbeddingTables>(placement, *made->vector_comm, ops_, options[g], compute_, comm_);
    groups_of_tables_.push_back(std::move(made));
  }
}

void Recommender::make_batches() {
  for (int i = 0; i < 2; ++i) {
    fetched_.push_back(
        std::make_unique<Fetched>(ops_, setup_, world_.size(), fetch_worker_ ? fetch_pool_ : pool_));
    Fetched& fetched = *fetched_.back();
    fetched.clicks.use(keys_);
    DlrmBatch& rows = fetched.rows;
    rows.features = features_.tensor(setup_.dtype, {samples_, setup_.model.features()});
    if (setup_.training)
      rows.feature_gradients = feature_gradients_.tensor(setup_.dtype, rows.features.shape);
    rows.scores = scores_.tensor(setup_.dtype, {samples_, setup_.model.logits()});
    rows.summed = &fetched.summed;
    for (const auto& of : groups_of_tables_) {
      fetched.lookups.push_back(of->ids->make_batch());
      of->tables->connect(*fetched.lookups.back());
      if (setup_.model.places.empty()) continue;
      const Shape shape = looked_up_shape(setup_, of->group, samples_);
      rows.looked_up.push_back(of->vectors.tensor(setup_.dtype, shape));
      if (setup_.training) rows.looked_up_gradients.push_back(of->gradients.tensor(setup_.dtype, shape));
    }
  }
  for (size_t g = 0; setup_.training && g < groups_of_tables_.size(); ++g)
    groups_of_tables_[g]->ids->reserve_sorting(*fetched_[0]->lookups[g],
                                               fetch_worker_ ? *fetch_worker_ : compute_);
}

bool Recommender::tables_cached() const {
  return std::any_of(groups_of_tables_.begin(), groups_of_tables_.end(),
                     [](const auto& of) { return of->tables->is_cached(); });
}

Recommender::Traffic Recommender::traffic() const {
  Traffic traffic;
  for (const auto& of : groups_of_tables_) {
    traffic.ids += of->ids->bytes_sent();
    traffic.vectors += of->tables->bytes_sent();
  }
  return traffic;
}

}  // namespace trifold
