#include "embedding/table_part.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace trifold {

std::string weight_name(const EmbeddingTable& table) {
  return fmt::format("embedding.{}.weight", table.name);
}

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
    case SparseKind::Ftrl:
      return 2 * numbers * size_of(dtype);
  }
  return 0;
}

InitialRows::InitialRows(const EmbeddingTable& table, const Rect& rect, DType dtype, uint64_t seed,
                         double range)
    : key_(philox_key(seed, weight_name(table))),
      bound_(range > 0 ? range : std::sqrt(1.0 / static_cast<double>(table.rows))),
      vector_(table.width - table.weights),
      rect_(rect),
      dtype_(dtype) {}

// Four consecutive elements share a block of random words.
template <class T>
void InitialRows::write_as(int64_t row, T* to) const {
  const int64_t first = (rect_.offset[0] + row) * vector_ + rect_.offset[1];
  const int64_t count = std::clamp<int64_t>(vector_ - rect_.offset[1], 0, rect_.extent[1]);
  std::array<uint32_t, 4> words{};
  for (int64_t c = 0; c < count; ++c) {
    const auto element = static_cast<uint64_t>(first + c);
    if (c == 0 || element % 4 == 0) words = philox(key_, element / 4);
    const double unit = (words[element % 4] + 0.5) / 4294967296.0;
    to[c] = static_cast<T>(bound_ * (2 * unit - 1));
  }
  std::fill(to + count, to + rect_.extent[1], T(0));
}

void InitialRows::write(int64_t row, std::byte* to) const {
  dispatch_wide_float(dtype_, [&](auto zero) { write_as(row, reinterpret_cast<decltype(zero)*>(to)); });
}

TablePart::TablePart(const OpTable& ops, const EmbeddingTable& table, const Rect& rect, bool names_rows,
                     const Options& options, Stream& stream)
    : ops_(ops),
      table_(table),
      rect_(rect),
      names_rows_(names_rows),
      options_(options),
      memory_rows_(options.storage.is_cached() ? options.slots : rect.extent[0]),
      initial_(table, rect, options.dtype, options.seed, options.init_range),
      values_(static_cast<size_t>(memory_rows_ * rect.extent[1]) * size_of(options.dtype), ops.device) {
  if (options.training) {
    const auto rows = static_cast<size_t>(memory_rows_);
    const size_t bytes = rows * state_bytes_of_row(options.optimizer, rect.extent[1], options.dtype);
    const bool two = options.optimizer == SparseKind::Adam || options.optimizer == SparseKind::Ftrl;
    state_ = Buffer(two ? bytes / 2 : bytes, ops.device);
    if (two) second_ = Buffer(bytes / 2, ops.device);
  }
  if (memory_rows_ < rect.extent[0]) {
    make_store();
    return;
  }
  initialise(stream);
  if (!table.keyed || !options.training || ops.device == nullptr) return;
  store_ = std::make_unique<RowStore>();
  begins_.emplace(ops, *store_, arrays(), options.dtype, memory_rows_, memory_rows_,
                  std::min(memory_rows_, RowTransfer::kBegun));
}

// Whether an array holds sums of squares.
bool TablePart::is_sum_of_squares(const Buffer& buffer) const {
  switch (options_.optimizer) {
    case SparseKind::RowwiseAdagrad:
    case SparseKind::Adagrad:
      return &buffer == &state_;
    case SparseKind::Ftrl:
      return &buffer == &second_;
    case SparseKind::Sgd:
    case SparseKind::Adam:
      return false;
  }
  return false;
}

std::vector<RowArray> TablePart::arrays() const {
  const bool records = options_.disk != nullptr && memory_rows_ < rect_.extent[0];
  std::vector<RowArray> arrays;
  size_t end = 0;
  for (const Buffer* buffer : {&values_, &state_, &second_}) {
    if (buffer->bytes() == 0) continue;
    const size_t row_bytes = buffer->bytes() / static_cast<size_t>(memory_rows_);
    arrays.push_back({end, row_bytes, buffer->data(), is_sum_of_squares(*buffer)});
    end += row_bytes * static_cast<size_t>(records ? 1 : rect_.extent[0]);
  }
  return arrays;
}

void TablePart::make_store() {
  const std::vector<RowArray> arrays = this->arrays();
  const int64_t rows = rect_.extent[0];
  if (options_.disk != nullptr) {
    const RowRecords layout(arrays.back().begin + arrays.back().row_bytes);
    store_ =
        std::make_unique<RowStore>(options_.storage.place(), rows, layout, waiting_rows(rows, memory_rows_));
  } else {
    store_ = std::make_unique<RowStore>(arrays.back().place_of(rows), ops_.device);
  }
  cache_ = std::make_unique<RowCache>(
      ops_, *store_, arrays, options_.dtype, rows, memory_rows_, options_.batch_ids,
      [initial = initial_](int64_t row, std::byte* to) { initial.write(row, to); }, options_.disk);
}

// Ranks that hold other columns may have them all in memory, and then sort by row; sums over ranks (row_squares) need
// one order.
void TablePart::begin_bring_in(LookupBatch::Cached& list, bool changes, Stream& stream) {
  if (!is_cached()) return;
  if (changes) {
    list.rows.emplace(list.row_memory);
    list.rows->by_row = rect_.extent[1] < table_.width;
  }
  cache_->begin_bring_in(list.ids, changes, stream);
}

void TablePart::start_reads() {
  if (is_cached()) cache_->start_reads();
}

void TablePart::end_bring_in(LookupBatch::Cached& list, bool changes, Stream& stream) {
  if (is_cached()) cache_->end_bring_in(list.ids, changes ? &*list.rows : nullptr, stream);
}

void TablePart::settle(Stream& stream) {
  if (is_cached()) cache_->settle(stream);
}

void TablePart::reload(Stream& stream) {
  if (is_cached()) cache_->reload(stream);
}

PartBytes TablePart::bytes() const {
  PartBytes bytes{values_.bytes(), state_.bytes() + second_.bytes()};
  if (begins_)
    bytes.shared =
        beginning_bytes(memory_rows_, (bytes.values + bytes.state) / static_cast<size_t>(memory_rows_));
  if (!is_cached()) return bytes;
  bytes.file = store_->file_bytes();
  bytes.shared = store_->shared_bytes();
  const size_t row_bytes = (bytes.values + bytes.state) / static_cast<size_t>(memory_rows_);
  if (ops_.device != nullptr)
    bytes.shared += RowTransfer::shared_bytes(options_.batch_ids, row_bytes, !store_->is_shared());
  size_t& bookkeeping = ops_.device != nullptr ? bytes.host : bytes.bookkeeping;
  bookkeeping = RowCache::bookkeeping_bytes(rect_.extent[0], memory_rows_, options_.batch_ids);
  if (store_->file() != nullptr)
    bookkeeping += RowFile::memory_bytes(rect_.extent[0], store_->file()->layout(),
                                         waiting_rows(rect_.extent[0], memory_rows_));
  return bytes;
}

void TablePart::begin_rows(std::span<const int32_t> rows, Stream& stream) {
  std::vector<int32_t> here;
  for (const int32_t row : rows) {
    const int64_t at = row - rect_.offset[0];
    if (at >= 0 && at < rect_.extent[0]) here.push_back(static_cast<int32_t>(at));
  }
  if (here.empty()) return;
  if (cache_) return cache_->begin_anew(here, stream);
  if (ops_.device != nullptr) return begin_on_device(here, stream);
  const std::vector<RowArray> arrays = this->arrays();
  const InitialRow initial = [this](int64_t row, std::byte* to) { initial_.write(row, to); };
  for (const int32_t row : here)
    begin_row(arrays, row, initial, [&](const RowArray& array) { return array.slot(row); });
}

void TablePart::begin_on_device(std::span<const int32_t> rows, Stream& stream) const {
  check(begins_.has_value(), "rows of table {} cannot be initialised again", table_.name);
  std::vector<RowMove> moves;
  for (size_t first = 0; first < rows.size(); first += static_cast<size_t>(RowTransfer::kBegun)) {
    moves.clear();
    const size_t count = std::min(rows.size() - first, static_cast<size_t>(RowTransfer::kBegun));
    for (const int32_t row : rows.subspan(first, count)) moves.push_back({row, row, -1});
    begins_->carry_out(
        moves, [](int64_t) { return false; }, [this](int64_t row, std::byte* to) { initial_.write(row, to); },
        stream);
    stream.synchronize();  // the staging area is used again
  }
}

// For a device, the host generates the values in pieces.
void TablePart::initialise(Stream& stream) const {
  constexpr int64_t kPieceBytes = int64_t{16} << 20;
  const Tensor all = values();
  if (ops_.device == nullptr) return write_initial(0, all, stream);
  const int64_t row_bytes = rect_.extent[1] * static_cast<int64_t>(size_of(options_.dtype));
  const int64_t most = std::clamp<int64_t>(kPieceBytes / row_bytes, 1, rect_.extent[0]);
  const Buffer memory(static_cast<size_t>(most * row_bytes));
  for (int64_t first = 0; first < rect_.extent[0]; first += most) {
    const int64_t last = std::min(first + most, rect_.extent[0]);
    const Tensor piece = memory.tensor(options_.dtype, {last - first, rect_.extent[1]});
    write_initial(first, piece, stream);
    ops_.copy(stream, all.rows(first, last), piece);
  }
}

// Generates the values of this part's rows from `first` on.
void TablePart::write_initial(int64_t first, Tensor rows, Stream& stream) const {
  const size_t row_bytes = static_cast<size_t>(rows.last_dim()) * size_of(rows.dtype);
  auto* const out = static_cast<std::byte*>(rows.data);
  stream.pool().parallel_for(rows.dim(0), 1024, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) initial_.write(first + r, out + static_cast<size_t>(r) * row_bytes);
  });
}

Shape TablePart::state_shape(int64_t rows) const {
  return options_.optimizer == SparseKind::RowwiseAdagrad ? Shape{rows} : Shape{rows, rect_.extent[1]};
}

Tensor TablePart::state(const Buffer& buffer) const {
  if (buffer.bytes() == 0) return {};
  return buffer.tensor(options_.dtype, state_shape(memory_rows_));
}

Tensor TablePart::whole(const Buffer& buffer) const {
  if (buffer.bytes() == 0) return {};
  const Shape shape = &buffer == &values_ ? rect_.extent : state_shape(rect_.extent[0]);
  if (!is_cached()) return buffer.tensor(options_.dtype, shape);
  if (store_->file() != nullptr) return {nullptr, options_.dtype, shape};
  std::byte* at = store_->data();
  const auto all = static_cast<size_t>(rect_.extent[0]);
  for (const Buffer* before : {&values_, &state_, &second_}) {
    if (before == &buffer) break;
    at += before->bytes() / static_cast<size_t>(memory_rows_) * all;
  }
  return {at, options_.dtype, shape};
}

RowUpdate TablePart::update(int64_t column) const {
  return {values(), state(state_), state(second_), nullptr, column, {}, 0};
}

void TablePart::name_tensors(std::vector<NamedTensor>& tensors, bool to_load) const {
  const auto add = [&](const std::string& kind, const Buffer& buffer, size_t array, bool of_rows) {
    ShardSpec spec;
    spec.name = kind + "/" + weight_name(table_);
    spec.global = of_rows ? Shape{table_.rows} : Shape{table_.rows, table_.width};
    spec.local = rect_;
    if (of_rows) spec.local = {Shape{rect_.offset[0]}, Shape{rect_.extent[0]}};
    tensors.push_back({spec, whole(buffer), is_cached(), is_cached() ? cache_->rows_of(array) : nullptr});
  };
  add("param", values_, 0, false);
  if (state_.bytes() == 0) return;
  if (options_.optimizer == SparseKind::RowwiseAdagrad) {
    if (to_load || names_rows_) add("rowwise_adagrad_sum", state_, 1, true);
  } else if (options_.optimizer == SparseKind::Adagrad) {
    add("adagrad_sum", state_, 1, false);
  } else if (options_.optimizer == SparseKind::Ftrl) {
    add("ftrl_z", state_, 1, false);
    add("ftrl_n", second_, 2, false);
  } else {
    add("adam_m", state_, 1, false);
    add("adam_v", second_, 2, false);
  }
}

}  // namespace trifold
