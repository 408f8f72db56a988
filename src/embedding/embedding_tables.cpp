#include "embedding/embedding_tables.h"

#include <cmath>
#include <cstring>
#include <numeric>

#include "core/random.h"

namespace trifold {

namespace {

std::string weight_name(const EmbeddingTable& table) {
  return fmt::format("embedding.{}.weight", table.name);
}

}  // namespace

size_t state_bytes_of_row(SparseKind kind, int64_t width, DType dtype) {
  const auto numbers = static_cast<size_t>(width);
  switch (kind) {
    case SparseKind::Sgd:
      return 0;
    case SparseKind::RowwiseAdagrad:
      return size_of(dtype);
    case SparseKind::Adagrad:
      return numbers * size_of(dtype);
    case SparseKind::Adam:
      return 2 * numbers * size_of(dtype);
  }
  return 0;
}

EmbeddingTables::EmbeddingTables(const Placement& placement, Communicator& comm, const OpTable& ops,
                                 const How& how, Stream& compute, Stream& comm_stream)
    : placement_(placement),
      comm_(comm),
      ops_(ops),
      how_(how),
      compute_(compute),
      comm_stream_(comm_stream),
      width_(placement.tables().empty() ? 0 : placement.tables()[0].width) {
  check(!how.bf16_exchange || how.dtype == DType::F32, "an exchange in bf16 is of f32 vectors");
  for (const Shard& shard : placement.shards_of(comm.rank()))
    add_part(shard.table, shard.rect, shard.rect.offset[1] == 0);
  shards_ = parts_.size();
  for (size_t t = 0; t < placement.tables().size(); ++t) {
    const EmbeddingTable& table = placement.tables()[t];
    check(table.width == width_, "table {} has vectors of {}, others of {}", table.name, table.width, width_);
    if (placement.replicated(static_cast<int>(t)))
      add_part(static_cast<int>(t), Rect::whole({table.rows, table.width}), comm.rank() == 0);
    const auto column = static_cast<int64_t>(t + 1) * width_;
    if (how.mean) mean_.push_back({column, column, width_, false, {}});
  }
  if (alone()) {
    for (size_t i = 0; i < shards_; ++i)
      updates_.push_back({values(parts_[i]),
                          state(parts_[i], parts_[i].state),
                          state(parts_[i], parts_[i].second),
                          nullptr,
                          width_ + placement.shards_of(0)[i].column,
                          {},
                          0});
    return;
  }
  const std::span<const Shard> mine = placement.shards_of(comm.rank());
  for (int rank = 0; rank < placement.ranks(); ++rank) {
    made_counts_.push_back(how.samples * placement.columns(comm.rank()));
    received_counts_.push_back(how.samples * placement.columns(rank));
    unpack_.emplace_back();
    pack_.emplace_back();
    for (const Shard& shard : placement.shards_of(rank)) {
      const int64_t column = (shard.table + 1) * width_ + shard.rect.offset[1];
      const int64_t columns = shard.rect.extent[1];
      unpack_.back().push_back({column, shard.column, columns, !placement.first_of_rows(shard), {}});
      pack_.back().push_back({shard.column, column, columns, false, {}});
    }
  }
  made_ = room_for(sum(made_counts_), how.dtype);
  received_ = room_for(sum(received_counts_), how.dtype);
  if (how.bf16_exchange) {
    made_short_ = room_for(sum(made_counts_), DType::BF16);
    received_short_ = room_for(sum(received_counts_), DType::BF16);
  }
  // Room for the squares of every table that is cut by columns, the same place on all ranks.
  int64_t squares = 0;
  std::vector<int64_t> of_table;
  for (size_t t = 0; t < placement.tables().size(); ++t) {
    const bool cut =
        how.optimizer == SparseKind::RowwiseAdagrad && placement.cut_by_columns(static_cast<int>(t));
    of_table.push_back(cut ? squares : -1);
    if (cut) squares += how.samples * placement.ranks() * placement.tables()[t].max_ids;
  }
  squares_ = room_for(squares, how.dtype);
  for (size_t i = 0; i < shards_; ++i) {
    squares_at_.push_back(of_table[static_cast<size_t>(parts_[i].table)]);
    updates_.push_back({values(parts_[i]),
                        state(parts_[i], parts_[i].state),
                        state(parts_[i], parts_[i].second),
                        nullptr,
                        mine[i].column,
                        {},
                        width_});
  }
  if (how.training) make_copies();
}

// What is under way uses this object's memory.
EmbeddingTables::~EmbeddingTables() {
  try {
    comm_stream_.synchronize();
  } catch (const std::exception&) {  // told by whoever waits for it
    return;
  }
}

void EmbeddingTables::add_part(int table, const Rect& rect, bool names_rows) {
  Part part;
  part.table = table;
  part.rect = rect;
  part.names_rows = names_rows;
  part.values = room_for(rect.elements(), how_.dtype);
  if (how_.training) {
    const auto rows = static_cast<size_t>(rect.extent[0]);
    const size_t bytes = rows * state_bytes_of_row(how_.optimizer, rect.extent[1], how_.dtype);
    const bool two = how_.optimizer == SparseKind::Adam;
    part.state = Buffer(two ? bytes / 2 : bytes, ops_.device);
    if (two) part.second = Buffer(bytes / 2, ops_.device);
  }
  initialise(part);
  parts_.push_back(std::move(part));
}

Buffer EmbeddingTables::room_for(int64_t numbers, DType dtype) const {
  return Buffer(static_cast<size_t>(numbers) * size_of(dtype), ops_.device);
}

// A device gets them in pieces that the host makes.
void EmbeddingTables::initialise(const Part& part) const {
  constexpr int64_t kPieceBytes = int64_t{16} << 20;
  const Tensor all = values(part);
  if (ops_.device == nullptr) return write_initial(part, 0, all);
  const int64_t row_bytes = part.rect.extent[1] * static_cast<int64_t>(size_of(how_.dtype));
  const int64_t most = std::clamp<int64_t>(kPieceBytes / row_bytes, 1, part.rect.extent[0]);
  const Buffer memory(static_cast<size_t>(most * row_bytes));
  for (int64_t first = 0; first < part.rect.extent[0]; first += most) {
    const int64_t last = std::min(first + most, part.rect.extent[0]);
    const Tensor piece = memory.tensor(how_.dtype, {last - first, part.rect.extent[1]});
    write_initial(part, first, piece);
    ops_.copy(compute_, all.rows(first, last), piece);
  }
}

// Those of the rows of a part from `first` on.
void EmbeddingTables::write_initial(const Part& part, int64_t first, Tensor rows) const {
  const EmbeddingTable& table = placement_.tables()[static_cast<size_t>(part.table)];
  const PhiloxKey key = philox_key(how_.seed, weight_name(table));
  const double bound = std::sqrt(1.0 / static_cast<double>(table.rows));
  const int64_t columns = rows.last_dim();
  dispatch_wide_float(how_.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = rows.as<T>();
    compute_.pool().parallel_for(rows.dim(0), 1024, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        for (int64_t c = 0; c < columns; ++c) {
          const int64_t row = part.rect.offset[0] + first + r;
          const int64_t element = row * table.width + part.rect.offset[1] + c;
          const double unit = (philox_word(key, static_cast<uint64_t>(element)) + 0.5) / 4294967296.0;
          out[r * columns + c] = static_cast<T>(bound * (2 * unit - 1));
        }
    });
  });
}

Tensor EmbeddingTables::values(const Part& part) const {
  return part.values.tensor(how_.dtype, part.rect.extent);
}

Tensor EmbeddingTables::state(const Part& part, const Buffer& buffer) const {
  if (buffer.bytes() == 0) return {};
  const bool of_rows = how_.optimizer == SparseKind::RowwiseAdagrad;
  return buffer.tensor(how_.dtype, of_rows ? Shape{part.rect.extent[0]} : part.rect.extent);
}

void EmbeddingTables::make_copies() {
  int64_t numbers = 0;
  for (size_t i = shards_; i < parts_.size(); ++i) numbers += parts_[i].rect.extent[0] * (width_ + 1);
  copies_.memory = room_for(numbers, how_.dtype);
  copies_.all = copies_.memory.tensor(how_.dtype, {numbers});
  int64_t at = 0;
  const auto take = [&](const Shape& shape) {
    const Tensor taken = copies_.all.flat(at, at + shape.elements()).reshape(shape);
    at += shape.elements();
    return taken;
  };
  make_row_orders();
  for (size_t i = shards_; i < parts_.size(); ++i) {
    const int64_t rows = parts_[i].rect.extent[0];
    const Tensor gradients = take({rows, width_});
    const Tensor touched = take({rows});
    copies_.gradients.push_back(gradients);
    copies_.updates.push_back({values(parts_[i]),
                               state(parts_[i], parts_[i].state),
                               state(parts_[i], parts_[i].second),
                               &copies_.orders[i - shards_],
                               0,
                               {},
                               0,
                               touched});
    copies_.stores.push_back({gradients, touched, {}, nullptr, (parts_[i].table + 1) * width_, {}, 0});
  }
}

// Every row once, each in a bag of its own: 0, 1, 2, ... is the list of rows, of bags and of beginnings.
void EmbeddingTables::make_row_orders() {
  int64_t most = 0;
  for (size_t i = shards_; i < parts_.size(); ++i) most = std::max(most, parts_[i].rect.extent[0]);
  std::vector<int32_t> numbers(static_cast<size_t>(most + 1));
  std::iota(numbers.begin(), numbers.end(), 0);
  const auto keep = [&](DType dtype, void* data, int64_t count) {
    copies_.order_memory.emplace_back(static_cast<size_t>(count) * size_of(dtype), ops_.device);
    const Tensor kept = copies_.order_memory.back().tensor(dtype, {count});
    ops_.copy(compute_, kept, {data, dtype, {count}});
    return kept;
  };
  const Tensor all = keep(DType::I32, numbers.data(), most + 1);
  for (size_t i = shards_; i < parts_.size(); ++i) {
    int64_t rows = parts_[i].rect.extent[0];
    const Tensor some = all.flat(0, rows);
    copies_.orders.push_back({rows, some, all.flat(0, rows + 1), some, {}, keep(DType::I64, &rows, 1), {}});
  }
}

void EmbeddingTables::connect(LookupBatch& batch) const {
  check(batch.lookups.size() == parts_.size(), "{} lookups for {} tables", batch.lookups.size(),
        parts_.size());
  for (size_t i = 0; i < parts_.size(); ++i) batch.lookups[i].table = values(parts_[i]);
}

namespace {

// The scaling of averaged bags: columns of a matrix onto themselves.
void scale_means(const OpTable& ops, Stream& stream, std::vector<ColumnCopy>& mean, const LookupBatch& batch,
                 Tensor features) {
  if (mean.empty()) return;
  for (size_t t = 0; t < mean.size(); ++t) mean[t].row_scale = batch.mean_factors[t];
  ops.copy_columns(stream, features, features, mean);
}

}  // namespace

void EmbeddingTables::mark_travel(StepPart part, bool begins) {
  if (how_.marks) comm_stream_.run([this, part, begins] { how_.marks(part, begins); });
}

// `out` and `in` are flat. On the way they may be bf16.
void EmbeddingTables::send(Tensor out, Tensor in, Buffer& out_short, Buffer& in_short, StepPart part) {
  const bool forward = part == StepPart::Vectors;
  const std::vector<int64_t>& from = forward ? received_counts_ : made_counts_;
  const std::vector<int64_t>& to = forward ? made_counts_ : received_counts_;
  Tensor receive = out;
  if (how_.bf16_exchange) {
    const Tensor narrow = in_short.tensor(DType::BF16, in.shape);
    ops_.convert(compute_, narrow, in);
    in = narrow;
    receive = out_short.tensor(DType::BF16, out.shape);
  }
  comm_stream_.wait(compute_.record());
  mark_travel(part, true);
  comm_.all_to_all(receive, in, from, to, comm_stream_);
  mark_travel(part, false);
  arrived_ = comm_stream_.record();
}

void EmbeddingTables::forward(const LookupBatch& batch, Tensor features) {
  ops_.embedding_bags(compute_, features, batch.copy_lookups());
  if (alone()) return ops_.embedding_bags(compute_, features, batch.shard_lookups());
  const int64_t columns = placement_.columns(comm_.rank());
  const int64_t samples = how_.samples * placement_.ranks();
  if (columns > 0)
    ops_.embedding_bags(compute_, made_.tensor(how_.dtype, {samples, columns}), batch.shard_lookups());
  send(received_.tensor(how_.dtype, {sum(received_counts_)}), made_.tensor(how_.dtype, {sum(made_counts_)}),
       received_short_, made_short_, StepPart::Vectors);
}

void EmbeddingTables::finish_forward(const LookupBatch& batch, Tensor features) {
  if (!alone()) {
    compute_.wait(arrived_);
    Tensor all = received_.tensor(how_.dtype, {sum(received_counts_)});
    if (how_.bf16_exchange) ops_.convert(compute_, all, received_short_.tensor(DType::BF16, all.shape));
    int64_t at = 0;
    for (size_t rank = 0; rank < unpack_.size(); at += received_counts_[rank++]) {
      if (unpack_[rank].empty()) continue;
      const Tensor block = all.flat(at, at + received_counts_[rank]);
      ops_.copy_columns(compute_, features,
                        block.reshape({how_.samples, received_counts_[rank] / how_.samples}), unpack_[rank]);
    }
  }
  scale_means(ops_, compute_, mean_, batch, features);
}

void EmbeddingTables::backward(const LookupBatch& batch, Tensor dfeatures) {
  scale_means(ops_, compute_, mean_, batch, dfeatures);
  if (alone()) return;
  const Tensor all = received_.tensor(how_.dtype, {sum(received_counts_)});
  int64_t at = 0;
  for (size_t rank = 0; rank < pack_.size(); at += received_counts_[rank++]) {
    if (pack_[rank].empty()) continue;
    const Tensor block = all.flat(at, at + received_counts_[rank]);
    ops_.copy_columns(compute_, block.reshape({how_.samples, received_counts_[rank] / how_.samples}),
                      dfeatures, pack_[rank]);
  }
  send(made_.tensor(how_.dtype, {sum(made_counts_)}), all, made_short_, received_short_, StepPart::Gradients);
}

// The squares of touched rows whose columns are on several ranks, which see the same lookups and so list the
// same rows in the same order.
void EmbeddingTables::add_squares(const LookupBatch& batch, Tensor gradients, double grad_scale) {
  if (squares_.bytes() == 0) return;
  const Tensor all =
      squares_.tensor(how_.dtype, {static_cast<int64_t>(squares_.bytes() / size_of(how_.dtype))});
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
  check(rule.kind == how_.optimizer && how_.training, "these tables were not made for this optimizer");
  for (size_t i = 0; i < shards_; ++i) updates_[i].order = &batch.orders[i];
  if (alone()) return ops_.update_rows(compute_, dfeatures, updates_, rule);
  compute_.wait(arrived_);
  Tensor all = made_.tensor(how_.dtype, {sum(made_counts_)});
  if (how_.bf16_exchange) ops_.convert(compute_, all, made_short_.tensor(DType::BF16, all.shape));
  const int64_t columns = placement_.columns(comm_.rank());
  const Tensor gradients = all.reshape({how_.samples * placement_.ranks(), columns});
  add_squares(batch, gradients, rule.grad_scale);
  if (columns > 0) ops_.update_rows(compute_, gradients, updates_, rule);
  update_copies(batch, dfeatures, rule);
}

// Gradients of all rows of the replicated tables are added up over the ranks; then every rank updates the
// rows that any rank has touched.
void EmbeddingTables::update_copies(const LookupBatch& batch, Tensor dfeatures, const SparseRule& rule) {
  if (copies_.updates.empty()) return;
  ops_.fill(compute_, copies_.all, 0);
  for (size_t i = 0; i < copies_.stores.size(); ++i) copies_.stores[i].order = &batch.orders[shards_ + i];
  ops_.row_gradients(compute_, dfeatures, copies_.stores);
  comm_stream_.wait(compute_.record());
  comm_.all_reduce(copies_.all, Reduce::Sum, comm_stream_);
  compute_.wait(comm_stream_.record());
  for (size_t i = 0; i < copies_.updates.size(); ++i)
    ops_.update_rows(compute_, copies_.gradients[i], {&copies_.updates[i], 1}, rule);
}

std::vector<NamedTensor> EmbeddingTables::checkpoint_tensors(bool to_load) const {
  std::vector<NamedTensor> tensors;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    const EmbeddingTable& table = placement_.tables()[static_cast<size_t>(part.table)];
    if (!to_load && i >= shards_ && comm_.rank() != 0) continue;  // a copy
    const auto add = [&](const std::string& kind, Tensor data, bool of_rows) {
      ShardSpec spec;
      spec.name = kind + "/" + weight_name(table);
      spec.global = of_rows ? Shape{table.rows} : Shape{table.rows, table.width};
      spec.local = part.rect;
      if (of_rows) spec.local = {Shape{part.rect.offset[0]}, Shape{part.rect.extent[0]}};
      tensors.push_back({spec, data});
    };
    add("param", values(part), false);
    const Tensor first = state(part, part.state);
    if (how_.optimizer == SparseKind::RowwiseAdagrad && first.data != nullptr) {
      if (to_load || part.names_rows) add("rowwise_adagrad_sum", first, true);
    } else if (how_.optimizer == SparseKind::Adagrad && first.data != nullptr) {
      add("adagrad_sum", first, false);
    } else if (how_.optimizer == SparseKind::Adam && first.data != nullptr) {
      add("adam_m", first, false);
      add("adam_v", state(part, part.second), false);
    }
  }
  return tensors;
}

EmbeddingTables::Memory EmbeddingTables::memory() const {
  Memory memory;
  for (const Part& part : parts_) {
    memory.tables += part.values.bytes();
    memory.state += part.state.bytes() + part.second.bytes();
  }
  memory.buffers = made_.bytes() + received_.bytes() + made_short_.bytes() + received_short_.bytes() +
                   squares_.bytes() + copies_.memory.bytes();
  for (const Buffer& buffer : copies_.order_memory) memory.buffers += buffer.bytes();
  return memory;
}

}  // namespace trifold
