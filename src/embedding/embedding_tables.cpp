#include "embedding/embedding_tables.h"

#include <algorithm>

#include "ops/cuda/workspace.h"

namespace trifold {

namespace {

// The layout of the squares of all tables that are cut by columns, at the same offsets on all ranks.
struct SquaresLayout {
  std::vector<int64_t> of_table;  // its offset; -1: the table is not cut by columns
  int64_t numbers = 0;
};

SquaresLayout squares_layout(const Placement& placement, const EmbeddingTables::Options& options) {
  SquaresLayout layout;
  for (size_t t = 0; t < placement.tables().size(); ++t) {
    const bool cut = options.optimizer == SparseKind::RowwiseAdagrad && placement.ranks() > 1 &&
                     placement.cut_by_columns(static_cast<int>(t));
    layout.of_table.push_back(cut ? layout.numbers : -1);
    if (cut) layout.numbers += options.samples * placement.ranks() * placement.tables()[t].max_ids;
  }
  return layout;
}

// The shards of a rank, for the division of its cache.
std::vector<PartShape> shapes_of(const Placement& placement, int rank,
                                 const EmbeddingTables::Options& options) {
  std::vector<PartShape> shapes;
  for (const Shard& shard : placement.shards_of(rank)) {
    const EmbeddingTable& table = placement.tables()[static_cast<size_t>(shard.table)];
    const int64_t width = shard.rect.extent[1];
    shapes.push_back({shard.rect.extent[0], options.samples * placement.ranks() * table.max_ids,
                      static_cast<size_t>(width) * size_of(options.dtype),
                      options.training ? state_bytes_of_row(options.optimizer, width, options.dtype) : 0,
                      table.keyed && options.training});
  }
  return shapes;
}

// The rows of each shard that are in memory.
std::vector<int64_t> rows_in_memory(const std::vector<PartShape>& shapes, const TableStorage& storage) {
  if (storage.is_cached()) return divide_cache(shapes, storage);
  std::vector<int64_t> rows;
  for (const PartShape& shape : shapes) rows.push_back(shape.rows);
  return rows;
}

// The record layouts of shards that are in files.
std::vector<RowRecords> layouts_of(const std::vector<PartShape>& shapes, const std::vector<int64_t>& slots,
                                   const TableStorage& storage) {
  std::vector<RowRecords> layouts;
  for (size_t i = 0; storage.in_files() && i < shapes.size(); ++i)
    if (slots[i] < shapes[i].rows) layouts.emplace_back(shapes[i].value_bytes + shapes[i].state_bytes);
  return layouts;
}

// Scales the vectors of averaged bags in place.
void scale_means(const OpTable& ops, Stream& stream, std::vector<ColumnCopy>& mean, const LookupBatch& batch,
                 Tensor features) {
  if (mean.empty()) return;
  for (size_t t = 0; t < mean.size(); ++t) mean[t].row_scale = batch.mean_factors[t];
  ops.copy_columns(stream, features, features, mean);
}

}  // namespace

EmbeddingTables::EmbeddingTables(const Placement& placement, Communicator& comm, const OpTable& ops,
                                 const Options& options, Stream& compute, Stream& comm_stream)
    : placement_(placement),
      comm_(comm),
      ops_(ops),
      options_(options),
      compute_(compute),
      comm_stream_(comm_stream) {
  options_.storage.on_device = ops.device != nullptr;
  const int64_t width = placement.tables().empty() ? 0 : placement.tables()[0].width;
  const std::span<const Shard> mine = placement.shards_of(comm.rank());
  const bool alone = placement.ranks() == 1;
  const std::vector<PartShape> shapes = shapes_of(placement, comm.rank(), options);
  const std::vector<int64_t> slots = rows_in_memory(shapes, options_.storage);
  if (const std::vector<RowRecords> layouts = layouts_of(shapes, slots, options_.storage); !layouts.empty())
    disk_ = std::make_unique<Disk>(layouts);
  for (size_t i = 0; i < mine.size(); ++i)
    add_part(mine[i].table, mine[i].rect, mine[i].rect.offset[1] == 0, slots[i], shapes[i].batch_ids);
  shards_ = parts_.size();
  for (size_t t = 0; t < placement.tables().size(); ++t) {
    const EmbeddingTable& table = placement.tables()[t];
    check(table.width == width, "table {} has vectors of width {}, the others of width {}: all must be equal",
          table.name, table.width, width);
    if (placement.replicated(static_cast<int>(t)))
      add_part(static_cast<int>(t), Rect::whole({table.rows, table.width}), comm.rank() == 0, table.rows, 0);
    const int64_t column = placement.feature_column(static_cast<int>(t));
    if (options.mean) mean_.push_back({column, column, width, false, {}});
  }
  const SquaresLayout squares = squares_layout(placement, options);
  squares_ = Buffer(static_cast<size_t>(squares.numbers) * size_of(options.dtype), ops.device);
  for (size_t i = 0; i < shards_; ++i) {
    // A single rank reads the gradients directly from dfeatures.
    updates_.push_back(parts_[i].update(alone ? placement.feature_column(mine[i].table) : mine[i].column));
    updates_.back().whole_width = width;
    squares_at_.push_back(squares.of_table[static_cast<size_t>(mine[i].table)]);
  }
  if (options.training && ops.device != nullptr)
    compute.enqueue([queue = compute.queue(), bytes = update_workspace(placement, comm.rank(), options)] {
      queue->workspace(bytes);
    });
  if (alone) return;
  exchange_.emplace(placement, comm, ops, exchange_options(options), compute, comm_stream);
  if (options.training)
    copies_.emplace(placement, std::span(parts_).subspan(shards_), comm, ops, options.dtype, compute,
                    comm_stream);
}

VectorExchange::Options EmbeddingTables::exchange_options(const Options& options) {
  return {options.samples, options.dtype, options.bf16_exchange, options.marks};
}

// Work in flight uses this object's memory.
EmbeddingTables::~EmbeddingTables() {
  try {
    comm_stream_.synchronize();
  } catch (const std::exception&) {  // rethrown by the next wait for the stream
    return;
  }
}

void EmbeddingTables::add_part(int table, const Rect& rect, bool names_rows, int64_t slots,
                               int64_t batch_ids) {
  parts_.emplace_back(ops_, placement_.tables()[static_cast<size_t>(table)], rect, names_rows,
                      TablePart::Options{options_.dtype, options_.optimizer, options_.training, options_.seed,
                                         options_.init_range, options_.storage, slots, batch_ids,
                                         disk_ ? &disk_->both : nullptr},
                      compute_);
}

void EmbeddingTables::bring_in(LookupBatch& batch, bool changes, Stream& stream) {
  for (size_t i = 0; i < shards_; ++i) parts_[i].begin_bring_in(batch.cached[i], changes, stream);
  if (disk_) disk_->queue.finish();  // evicted rows must be on disk before others are read
  for (size_t i = 0; i < shards_; ++i) parts_[i].start_reads();
  if (disk_) disk_->queue.finish();
  for (size_t i = 0; i < shards_; ++i) parts_[i].end_bring_in(batch.cached[i], changes, stream);
}

int64_t EmbeddingTables::Disk::most_pages(std::span<const RowRecords> layouts) {
  int64_t pages = 1;
  for (const RowRecords& layout : layouts) pages = std::max({pages, layout.most_pages(), layout.unit_pages});
  return pages;
}

size_t EmbeddingTables::Disk::memory(std::span<const RowRecords> layouts) {
  return layouts.empty() ? 0 : PageQueue::memory(most_pages(layouts)) + RowMerger::memory(layouts);
}

void EmbeddingTables::begin_rows(int table, std::span<const int32_t> rows) {
  const std::string& name = placement_.tables()[static_cast<size_t>(table)].name;
  for (TablePart& part : parts_)
    if (part.table().name == name) part.begin_rows(rows, compute_);
}

void EmbeddingTables::settle() {
  for (TablePart& part : parts_) part.settle(compute_);
}

void EmbeddingTables::reload() {
  for (TablePart& part : parts_) part.reload(compute_);
}

bool EmbeddingTables::is_cached() const {
  return std::any_of(parts_.begin(), parts_.end(), [](const TablePart& part) { return part.is_cached(); });
}

RowCache::Counts EmbeddingTables::counts() const {
  RowCache::Counts all;
  for (const TablePart& part : parts_) {
    all.wanted += part.counts().wanted;
    all.found += part.counts().found;
    all.read += part.counts().read;
  }
  return all;
}

void EmbeddingTables::connect(LookupBatch& batch) const {
  check(batch.lookups.size() == parts_.size(), "there are {} lookups, but {} tables", batch.lookups.size(),
        parts_.size());
  for (size_t i = 0; i < parts_.size(); ++i) batch.lookups[i].table = parts_[i].values();
}

void EmbeddingTables::forward(const LookupBatch& batch, Tensor features) {
  ops_.embedding_bags(compute_, features, batch.copy_lookups());
  if (!exchange_) return ops_.embedding_bags(compute_, features, batch.shard_lookups());
  if (shards_ > 0) ops_.embedding_bags(compute_, exchange_->made(), batch.shard_lookups());
  exchange_->send_vectors();
}

void EmbeddingTables::finish_forward(const LookupBatch& batch, Tensor features) {
  if (exchange_) exchange_->receive_vectors(features);
  scale_means(ops_, compute_, mean_, batch, features);
}

void EmbeddingTables::backward(const LookupBatch& batch, Tensor dfeatures) {
  scale_means(ops_, compute_, mean_, batch, dfeatures);
  if (exchange_) exchange_->send_gradients(dfeatures);
}

// Sums the squares of touched rows whose columns are on several ranks. Those ranks see the same lookups and
// so list the same rows in the same order.
void EmbeddingTables::add_squares(const LookupBatch& batch, Tensor gradients, double grad_scale) {
  if (squares_.bytes() == 0) return;
  const Tensor all =
      squares_.tensor(options_.dtype, {static_cast<int64_t>(squares_.bytes() / size_of(options_.dtype))});
  ops_.fill(compute_, all, 0);
  for (size_t i = 0; i < shards_; ++i) {
    if (squares_at_[i] < 0) continue;
    const int64_t n = batch.lookups[i].ids.elements();
    updates_[i].squares = all.flat(squares_at_[i], squares_at_[i] + n);
    ops_.row_squares(compute_, gradients, {&updates_[i], 1}, grad_scale);
  }
  comm_stream_.wait(compute_.record());
  comm_.all_reduce(all, Reduce::Sum, comm_stream_);
  compute_.wait(comm_stream_.record());
}

void EmbeddingTables::update(const LookupBatch& batch, Tensor dfeatures, const SparseRule& rule) {
  check(rule.kind == options_.optimizer && options_.training,
        "the optimizer differs from the one that the tables were constructed for");
  for (size_t i = 0; i < shards_; ++i) updates_[i].order = &batch.orders[i];
  if (!exchange_) return ops_.update_rows(compute_, dfeatures, updates_, rule);
  exchange_->receive_gradients();
  add_squares(batch, exchange_->made(), rule.grad_scale);
  if (shards_ > 0) ops_.update_rows(compute_, exchange_->made(), updates_, rule);
  copies_->update(std::span(batch.orders).subspan(shards_), dfeatures, rule);
}

std::vector<NamedTensor> EmbeddingTables::checkpoint_tensors(bool to_load) const {
  std::vector<NamedTensor> tensors;
  for (size_t i = 0; i < parts_.size(); ++i)
    // Rank 0 saves the replicated tables.
    if (to_load || i < shards_ || comm_.rank() == 0) parts_[i].name_tensors(tensors, to_load);
  return tensors;
}

// The number of shards, over all ranks, of the same rows of a table.
int EmbeddingTables::parts_of_rows(const Shard& shard) const {
  const std::span<const Shard> shards = placement_.shards();
  return static_cast<int>(std::count_if(shards.begin(), shards.end(), [&](const Shard& other) {
    return other.table == shard.table && other.rect.offset[0] == shard.rect.offset[0] &&
           other.rect.extent[0] == shard.rect.extent[0];
  }));
}

std::vector<EmbeddingTables::Copy> EmbeddingTables::copies() const {
  std::vector<Copy> copies;
  const std::span<const Shard> shards = placement_.shards_of(comm_.rank());
  for (size_t i = 0; i < parts_.size(); ++i) {
    std::vector<NamedTensor> tensors;
    parts_[i].name_tensors(tensors, true);
    for (NamedTensor& tensor : tensors) {
      const bool of_rows = tensor.spec.global.rank() == 1;
      if (i >= shards_)
        copies.push_back({std::move(tensor), placement_.ranks(), comm_.rank() == 0, false});
      else if (of_rows && (parts_of_rows(shards[i]) > 1 || !parts_[i].is_cached()))
        copies.push_back({std::move(tensor), parts_of_rows(shards[i]), shards[i].rect.offset[1] == 0,
                          parts_[i].is_cached()});
    }
  }
  return copies;
}

void EmbeddingTables::Memory::add(const PartBytes& part) {
  tables += part.values + part.bookkeeping;
  state += part.state;
  shared += part.shared;
  host += part.host;
  files += part.file;
}

void EmbeddingTables::Memory::operator+=(const Memory& more) {
  tables += more.tables;
  state += more.state;
  buffers += more.buffers;
  shared += more.shared;
  host += more.host;
  files += more.files;
}

EmbeddingTables::Memory EmbeddingTables::memory() const {
  Memory memory;
  for (const TablePart& part : parts_) memory.add(part.bytes());
  std::vector<RowRecords> layouts;
  for (const TablePart& part : parts_)
    if (part.file() != nullptr) layouts.push_back(part.file()->layout());
  memory.buffers = squares_.bytes() + (exchange_ ? exchange_->bytes() : 0) + (copies_ ? copies_->bytes() : 0);
  (ops_.device != nullptr ? memory.host : memory.buffers) += Disk::memory(layouts);
  return memory;
}

EmbeddingTables::Memory EmbeddingTables::memory(const Placement& placement, int rank,
                                                const Options& options) {
  Memory memory;
  const std::vector<PartShape> shapes = shapes_of(placement, rank, options);
  const std::vector<int64_t> slots = rows_in_memory(shapes, options.storage);
  for (size_t i = 0; i < shapes.size(); ++i) memory.add(bytes_of_part(shapes[i], slots[i], options.storage));
  for (size_t t = 0; t < placement.tables().size(); ++t) {
    const EmbeddingTable& table = placement.tables()[t];
    if (!placement.replicated(static_cast<int>(t))) continue;
    const PartShape whole{
        table.rows, 0, static_cast<size_t>(table.width) * size_of(options.dtype),
        options.training ? state_bytes_of_row(options.optimizer, table.width, options.dtype) : 0,
        table.keyed && options.training};
    memory.add(bytes_of_part(whole, table.rows, options.storage));
  }
  (options.storage.on_device ? memory.host : memory.buffers) +=
      Disk::memory(layouts_of(shapes, slots, options.storage));
  if (placement.ranks() == 1) return memory;
  memory.buffers += static_cast<size_t>(squares_layout(placement, options).numbers) * size_of(options.dtype) +
                    VectorExchange::bytes(placement, rank, exchange_options(options));
  if (options.training) memory.buffers += TableCopies::bytes(placement, options.dtype);
  return memory;
}

size_t EmbeddingTables::least_cache(const Placement& placement, int rank, const Options& options) {
  return trifold::least_cache(shapes_of(placement, rank, options), options.storage);
}

void EmbeddingTables::share_cache(const std::vector<const Placement*>& groups, int rank,
                                  std::vector<Options>& options) {
  if (groups.size() < 2 || !options[0].storage.is_cached()) return;
  std::vector<std::vector<PartShape>> parts;
  for (size_t g = 0; g < groups.size(); ++g) parts.push_back(shapes_of(*groups[g], rank, options[g]));
  const std::vector<size_t> caches = caches_of_groups(parts, options[0].storage);
  for (size_t g = 0; g < groups.size(); ++g) options[g].storage.cache = caches[g];
}

// The maximum over its calls of update_rows and row_gradients; row_squares needs no more than one of its
// shards.
size_t EmbeddingTables::update_workspace(const Placement& placement, int rank, const Options& options) {
  const size_t size = size_of(options.dtype);
  const std::span<const Shard> shards = placement.shards_of(rank);
  int64_t lookups = 0;
  int64_t widest = 0;
  for (const Shard& shard : shards) {
    const EmbeddingTable& table = placement.tables()[static_cast<size_t>(shard.table)];
    lookups = std::max(lookups, options.samples * placement.ranks() * table.max_ids);
    widest = std::max(widest, shard.rect.extent[1]);
  }
  size_t most = cuda::update_workspace(static_cast<int64_t>(shards.size()), lookups, widest, size);
  int64_t copies = 0;
  lookups = widest = 0;
  for (size_t t = 0; t < placement.tables().size(); ++t) {
    if (!placement.replicated(static_cast<int>(t))) continue;
    const EmbeddingTable& table = placement.tables()[t];
    ++copies;
    lookups = std::max(lookups, options.samples * table.max_ids);
    widest = std::max(widest, table.width);
    most = std::max(most, cuda::update_workspace(1, table.rows, table.width, size));  // row_gradients
  }
  return std::max(most, cuda::update_workspace(copies, lookups, widest, size));
}

}  // namespace trifold
