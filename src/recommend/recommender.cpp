#include "recommend/recommender.h"

#include <algorithm>
#include <cstring>

#include "layout/checkpoint_boxes.h"
#include "layout/flat_memory.h"
#include "run/checks/replica_check.h"
#include "run/device.h"
#include "run/host.h"
#include "run/ranks.h"

namespace trifold {

TableStepShape step_shape(const RecommenderSetup& setup) {
  return {.has_bottom = setup.model.has_bottom(), .clips = setup.clip_grad > 0};
}

std::vector<EmbeddingTable> embedding_tables(const ClickSchema& schema, int64_t width, bool wide) {
  const int weights = wide ? static_cast<int>(schema.label_count()) : 0;
  return table_uses(schema, width + weights, weights).tables;
}

TableUses RecommenderSetup::uses() const {
  std::vector<int64_t> one_by_one;
  for (const AttendedBag& bag : model.attended) one_by_one.push_back(bag.column);
  const int weights = model.wide ? static_cast<int>(schema.label_count()) : 0;
  return table_uses(schema, model.width + weights, weights, one_by_one);
}

void RecommenderSetup::place_vectors() {
  const TableUses of = uses();
  model.places.clear();
  if (of.simple()) return;
  const std::vector<TableGroup> groups =
      group_tables(Placement(of.tables, std::vector<TablePlacement>(of.tables.size()), 1, 0));
  for (const TableUse& use : of.columns)
    for (size_t g = 0; g < groups.size(); ++g) {
      const std::vector<int>& members = groups[g].tables;
      const auto found = std::find(members.begin(), members.end(), use.table);
      if (found == members.end()) continue;
      const int64_t stride = std::ssize(members) * model.row();
      model.places.push_back(
          {g, use.first * stride + (found - members.begin()) * model.row(), stride, use.bags});
    }
}

Placement placement_of(const RecommenderSetup& setup, int ranks) {
  const TableUses uses = setup.uses();
  return {uses.tables, setup.placement, ranks, uses.simple() && setup.model.has_bottom() ? 1 : 0};
}

Shape looked_up_shape(const RecommenderSetup& setup, const TableGroup& group, int64_t samples) {
  return {samples * group.bags, std::ssize(group.tables) * setup.model.row()};
}

LookupOptions RecommenderSetup::lookups(int ranks, int64_t bags) const {
  return {samples(ranks) * bags, schema.weighted, mean, dtype, bags, training && storage.is_cached()};
}

EmbeddingTables::Options RecommenderSetup::tables(int ranks, int64_t bags) const {
  return {samples(ranks) * bags,
          dtype,
          sparse.kind,
          mean,
          bf16_exchange,
          training,
          seed,
          marks,
          init_range,
          storage};
}

std::vector<EmbeddingTables::Options> RecommenderSetup::tables(const std::vector<TableGroup>& groups,
                                                               int rank) const {
  std::vector<const Placement*> placements;
  std::vector<EmbeddingTables::Options> options;
  for (const TableGroup& group : groups) {
    placements.push_back(&group.placement);
    options.push_back(tables(group.placement.ranks(), group.bags));
  }
  EmbeddingTables::share_cache(placements, rank, options);
  return options;
}

size_t RecommenderSetup::batch_room(int ranks) const {
  return CopyIn::room(DType::F32, samples(ranks) * schema.dense) +
         2 * CopyIn::room(DType::F32, samples(ranks) * schema.label_count()) +
         (model.batch_norm ? CopyIn::room(accumulate_type(dense_dtype()), samples(ranks)) : 0);
}

namespace {

// Cores that fetch batches while others compute. The host of a device has little else to do.
int fetch_threads(Communicator& world, const OpTable& ops, int threads) {
  return std::max(1, spare_cores(world, ops.device != nullptr ? 1 : threads) / ranks_on_host(world));
}

}  // namespace

Recommender::Recommender(Communicator& world, const RecommenderSetup& setup, const OpTable* ops)
    : world_(world),
      setup_(setup),
      samples_(setup.samples(world.size())),
      ops_(ops != nullptr ? *ops : ops_of(setup.device, world, {.tf32 = setup.tf32})),
      mesh_(world, {{Axis::Dp, world.size()}}),
      pool_(setup.threads ? *setup.threads : fair_threads(world)),
      comm_pool_(1),
      fetch_pool_(fetch_threads(world, ops_, pool_.size())),
      compute_(Stream::Mode::Inline, pool_, ops_.device),
      comm_(comm_mode(world), comm_pool_, ops_.device, QueueUse::Communicating),
      placement_(placement_of(setup, world.size())),
      model_(make_dlrm(setup.model, mesh_, setup.seed)),
      zero_(dense_sharing(setup, world.size())),
      groups_(mesh_, zero_.group, model_.params),
      layout_(model_.params, {blocks_of(model_)}, 1, mesh_.sizes(), zero_.group),
      weights_(layout_, groups_, ops_, setup.dense_dtype(), ParamStore::Options{}, comm_),
      grads_(layout_, dense_gradients(layout_, zero_), groups_, ops_, accumulate_type(setup.dense_dtype()),
             {.slices = zero_.stage.optimizer}, comm_),
      optimizer_(layout_, mesh_, weights_, grads_, ops_, setup.dense_optimizer, setup.dense_dtype(),
                 setup.seed, compute_),
      gradients_row_(table_step(step_shape(setup))),
      numbers_(ops_, 2),
      keys_(setup.schema, setup.keys, setup.training),
      memory_(measure_step(setup, model_, mesh_)),
      features_(memory_.features, ops_.device),
      feature_gradients_(memory_.feature_gradients, ops_.device),
      scores_(Buffer::shared(static_cast<size_t>(samples_ * setup.model.logits()) * size_of(setup.dtype),
                             ops_.device)),
      executor_(std::make_unique<Executor>(step_pipeline(setup, model_), mesh_, ops_, weights_, &grads_,
                                           compute_, compute_, setup.dense_dtype(), memory_.blocks)) {
  setup_.storage.on_device = ops_.device != nullptr;
  check_table_step(gradients_row_, step_shape(setup));
  check(setup.model.labels == setup.schema.labels, "the model's labels are not those of its samples");
  const auto update = std::find_if(gradients_row_.begin(), gradients_row_.end(), [](const Action& action) {
    return action.kind == ActionKind::UpdateRows || action.kind == ActionKind::Step;
  });
  update_row_.assign(update, gradients_row_.end());
  gradients_row_.erase(update, gradients_row_.end());
  if (setup.clip_grad > 0) norm_.emplace(layout_, grads_, mesh_, ops_);
  check(setup.dtype == DType::F32 || setup.dtype == DType::F64,
        "tables of recommenders are trained in f32 or f64, not {}", name_of(setup.dtype));
  check(!setup.bf16 || setup.dtype == DType::F32, "MLPs in bf16 with tables in {}", name_of(setup.dtype));
  // While a device computes the rank's core is spare; with tables in files a fetch waits for the disk.
  const bool waits = ops_.device != nullptr || setup.storage.in_files();
  // The sorting of a batch is a dozen short kernels, each of which would wait for one of the step's to end.
  if (setup.overlap && (waits || spare_cores(world, pool_.size()) > 0))
    fetch_worker_.emplace(Stream::Mode::Worker, fetch_pool_, ops_.device, QueueUse::Communicating);
  make_groups();
  make_batches();
  if (setup.model.batch_norm) make_statistics();
}

std::vector<Stream*> Recommender::streams() {
  return {fetch_worker_ ? &*fetch_worker_ : &compute_, &comm_, &compute_};
}

void Recommender::synchronize() {
  for (Stream* stream : streams()) stream->synchronize();
}

// Work in flight uses this object's memory.
Recommender::~Recommender() {
  for (Stream* stream : streams()) try {
      stream->synchronize();
    } catch (const std::exception&) {  // rethrown to the thread that waits for it
      continue;
    }
}

Recommender::Fetched::Fetched(const OpTable& ops, const RecommenderSetup& setup, int ranks, ThreadPool& pool)
    : clicks(setup.schema, setup.samples(ranks), &pool),
      written(ops, ops.device == nullptr ? 0 : setup.batch_room(ranks)) {}

void Recommender::Fetched::send(const OpTable& ops, Stream& stream) {
  const ClickBatch& batch = clicks.batch();
  written.restart();
  const auto place = [&](const Tensor& tensor) {
    if (ops.device == nullptr) return tensor;
    const Tensor copy = written.take(tensor.dtype, tensor.shape);
    std::memcpy(copy.data, tensor.data, tensor.bytes());
    return written.operand(copy);
  };
  if (batch.dense.elements() > 0) rows.dense = place(batch.dense);
  if (real.bytes() > 0) {
    const Tensor here = real.tensor(rows.real.dtype, rows.real.shape);
    dispatch_wide_float(here.dtype, [&](auto zero) {
      using T = decltype(zero);
      for (int64_t i = 0; i < batch.samples; ++i) here.as<T>()[i] = i < batch.real ? T(1) : T(0);
    });
    rows.real = place(here);
  }
  rows.labels = place(batch.labels);
  rows.weights = place(batch.weights);
  written.copy(stream);
}

void Recommender::fetch(Read read) {
  check(fetches_ == used_, "a batch was fetched before the last one was used");
  Fetched& into = *fetched_[static_cast<size_t>(fetches_++ % 2)];
  Stream& stream = fetch_worker_ ? *fetch_worker_ : compute_;
  stream.run([this, &into, &stream, read_batch = std::move(read)] {
    Stream inner = stream.inner();
    if (setup_.marks) setup_.marks(StepPart::Fetch, true);
    read_batch(into.clicks);
    inner.wait(into.used);
    into.send(ops_, inner);
    into.counts = {};
    for (size_t g = 0; g < groups_of_tables_.size(); ++g) {
      Tables& of = *groups_of_tables_[g];
      const ClickBatch& clicks = into.clicks.batch();
      of.ids->distribute(setup_.model.places.empty() ? clicks : of.bags.arrange(clicks), *into.lookups[g],
                         inner);
      of.tables->bring_in(*into.lookups[g], setup_.training, inner);
      into.lookups[g]->finish(setup_.training, inner);
      into.counts.wanted += of.tables->counts().wanted;
      into.counts.found += of.tables->counts().found;
      into.counts.read += of.tables->counts().read;
    }
    inner.synchronize();
    if (setup_.marks) setup_.marks(StepPart::Fetch, false);
  });
  into.ready = stream.record();
}

void Recommender::fetch(const ClickFeed& feed, int64_t step, bool trains) {
  const bool takes = trains && !keys_.empty();
  taken_ += takes ? 1 : 0;
  Fetched& into = *fetched_[static_cast<size_t>(fetches_ % 2)];
  fetch([this, &feed, &into, step, takes](ClickBatchBuffer& out) {
    into.begun.assign(takes ? static_cast<size_t>(keys_.tables()) : 0, {});
    if (takes) {
      keys_.take(feed, step, fetch_worker_ ? fetch_pool_ : pool_);
      for (int t = 0; t < keys_.tables(); ++t)
        if (KeyTable* const table = keys_.table(t))
          into.begun[static_cast<size_t>(t)].assign(table->begun().begin(), table->begun().end());
    }
    feed.read(step, world_.rank(), samples_, out);
  });
}

void Recommender::begin_rows(const Fetched& fetched) {
  if (fetched.begun.empty()) return;
  ++trained_;
  if (std::all_of(fetched.begun.begin(), fetched.begun.end(), [](const auto& rows) { return rows.empty(); }))
    return;
  for (Stream* stream : {&comm_, &compute_}) stream->synchronize();
  for (size_t t = 0; t < fetched.begun.size(); ++t)
    for (const auto& of : groups_of_tables_) {
      const std::vector<int>& members = of->group.tables;
      const auto found = std::find(members.begin(), members.end(), static_cast<int>(t));
      if (found != members.end() && !fetched.begun[t].empty())
        of->tables->begin_rows(static_cast<int>(found - members.begin()), fetched.begun[t]);
    }
}

void Recommender::exchange_ahead() {
  if (taken_ > trained_) keys_.swap_last();
}

Recommender::Fetched& Recommender::oldest() {
  check(used_ < fetches_, "no batch was fetched");
  Fetched& fetched = *fetched_[static_cast<size_t>(used_++ % 2)];
  compute_.wait(fetched.ready);
  cached_rows_ = fetched.counts;
  return fetched;
}

// Every rank has them all; the first one saves them.
std::vector<NamedTensor> Recommender::key_tensors(bool to_load) {
  std::vector<NamedTensor> tensors;
  if (!to_load && world_.rank() != 0) return tensors;
  const auto add = [&](int table, const char* kind, void* data, DType type, const Shape& shape) {
    if (shape.elements() == 0) return;
    ShardSpec spec;
    spec.name = fmt::format("{}/{}", kind, weight_name(placement_.tables()[static_cast<size_t>(table)]));
    spec.global = shape;
    spec.local = Rect::whole(shape);
    tensors.push_back({spec, {data, type, shape}});
  };
  const auto add_entries = [&](int table, const char* kind, std::span<KeyTable::Entry> entries) {
    constexpr int64_t kWords = sizeof(KeyTable::Entry) / sizeof(int64_t);
    add(table, kind, entries.data(), DType::I64, {std::ssize(entries), kWords});
  };
  for (int t = 0; t < keys_.tables(); ++t)
    if (KeyTable* const table = keys_.table(t)) {
      add_entries(t, kKeysKind, table->owners());
      add_entries(t, kWaitingKeysKind, table->waiting());
      const std::span<KeyCounts::Counter> counters = table->counts().counters();
      constexpr auto kDepth = static_cast<int64_t>(KeyCounts::kDepth);
      add(t, kKeyCountsKind, counters.data(), DType::U16, {kDepth, std::ssize(counters) / kDepth});
    }
  return tensors;
}

void Recommender::check_keys(std::span<const uint32_t> key_batches, int64_t updates) {
  if (!key_batches.empty() && std::ssize(key_batches) != keys_.tables())
    bad_input("state.key_batches has {} entries for {} tables", key_batches.size(), keys_.tables());
  for (int t = 0; t < keys_.tables(); ++t) {
    const KeyTable* const table = keys_.table(t);
    if (table == nullptr) continue;
    const auto i = static_cast<size_t>(t);
    const uint64_t batches = key_batches.empty() ? static_cast<uint64_t>(updates) : key_batches[i];
    const std::string name = weight_name(placement_.tables()[i]);
    if (batches > static_cast<uint64_t>(updates))
      bad_input("state.key_batches has {} batches of table {}, but the run has done {} steps", batches, name,
                updates);
    table->check_entries(fmt::format("{}/{}", kKeysKind, name), fmt::format("{}/{}", kWaitingKeysKind, name),
                         batches);
  }
}

std::vector<uint32_t> Recommender::key_batches() {
  std::vector<uint32_t> batches;
  for (int t = 0; t < keys_.tables(); ++t) {
    KeyTable* const table = keys_.table(t);
    batches.push_back(table == nullptr ? 0 : table->batches());
  }
  return batches;
}

std::vector<NamedTensor> Recommender::checkpoint_tensors(bool to_load) {
  weights_.finish(compute_);
  std::vector<NamedTensor> tensors;
  for (const auto& of : groups_of_tables_)
    for (NamedTensor& tensor : of->tables->checkpoint_tensors(to_load)) tensors.push_back(std::move(tensor));
  for (NamedTensor& tensor : key_tensors(to_load)) tensors.push_back(std::move(tensor));
  if (to_load || world_.rank() == 0)
    for (NamedTensor& tensor : statistics_tensors()) tensors.push_back(std::move(tensor));
  const auto wanted = [&](ParamId id) {
    return to_load || counts_here(model_.params[id].shard, mesh_.coords(), mesh_.sizes(), grads_.slices(id));
  };
  for (NamedTensor& tensor : stored_tensors(model_.params, optimizer_, wanted))
    tensors.push_back(std::move(tensor));
  return tensors;
}

void Recommender::check_replicas(const std::string& when) {
  std::vector<HeldCopy> held = held_copies(mesh_, layout_, weights_, optimizer_, grads_, compute_);
  std::vector<EmbeddingTables::Copy> copies;
  for (const auto& of : groups_of_tables_)
    for (EmbeddingTables::Copy& copy : of->tables->copies()) copies.push_back(std::move(copy));
  if (std::any_of(copies.begin(), copies.end(), [](const auto& copy) { return copy.is_cached; })) settle();
  for (const EmbeddingTables::Copy& copy : copies)
    held.push_back({.name = copy.tensor.spec.name,
                    .piece = piece_key(copy.tensor.spec.local, 0, copy.tensor.data.elements()),
                    .copies = copy.copies,
                    .is_first = copy.is_first,
                    .values = copy.tensor.data.flat(),
                    .stored = copy.tensor.stored});
  for (const NamedTensor& tensor : statistics_tensors())
    held.push_back({.name = tensor.spec.name,
                    .piece = piece_key(tensor.spec.local, 0, tensor.data.elements()),
                    .copies = world_.size(),
                    .is_first = world_.rank() == 0,
                    .values = tensor.data});
  compare_copies(world_, ops_, compute_, held, when);
}

// Waits for the fetch of a batch, which moves rows.
void Recommender::settle() {
  if (!tables_cached()) return;
  synchronize();
  for (const auto& of : groups_of_tables_) of->tables->settle();
}

void Recommender::loaded(std::span<const uint32_t> key_batches) {
  optimizer_.refresh_weights(compute_);
  reload_tables();
  keys_.loaded(key_batches);
}

void Recommender::reload_tables() {
  for (const auto& of : groups_of_tables_) of->tables->reload();
}

RecommenderMemory Recommender::memory() const {
  EmbeddingTables::Memory tables;
  for (const auto& of : groups_of_tables_) tables += of->tables->memory();
  const DeviceExtras extras =
      ops_.device == nullptr ? DeviceExtras{}
                             : device_extras(setup_, group_tables(placement_), world_.rank(), model_.params);
  size_t batches = 0;
  for (const auto& fetched : fetched_) {
    batches += fetched->written.bytes();
    for (const auto& lookups : fetched->lookups) batches += lookups->bytes();
  }
  if (ops_.device == nullptr)
    for (const auto& of : groups_of_tables_) batches += of->bags.bytes();
  return {tables.tables,
          tables.state,
          tables.buffers + batches + (ops_.device == nullptr ? keys_.bytes() : 0),
          held_memory(weights_, grads_, optimizer_).predicted_total(),
          memory_.total(),
          extras.workspace,
          extras.pinned + tables.shared,
          tables.host + (ops_.device == nullptr ? 0 : keys_.bytes()),
          tables.files};
}

int64_t Recommender::parameters() const {
  int64_t count = model_.params.global_elements();
  for (const EmbeddingTable& table : placement_.tables()) count += table.rows * table.width;
  return count;
}

}  // namespace trifold
