#include "embedding/table_part.h"

#include <algorithm>
#include <cmath>

#include "core/random.h"

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

TablePart::TablePart(const OpTable& ops, const EmbeddingTable& table, const Rect& rect, bool names_rows,
                     const Options& options, Stream& stream)
    : ops_(ops),
      table_(table),
      rect_(rect),
      names_rows_(names_rows),
      options_(options),
      values_(static_cast<size_t>(rect.elements()) * size_of(options.dtype), ops.device) {
  if (options.training) {
    const auto rows = static_cast<size_t>(rect.extent[0]);
    const size_t bytes = rows * state_bytes_of_row(options.optimizer, rect.extent[1], options.dtype);
    const bool two = options.optimizer == SparseKind::Adam || options.optimizer == SparseKind::Ftrl;
    state_ = Buffer(two ? bytes / 2 : bytes, ops.device);
    if (two) second_ = Buffer(bytes / 2, ops.device);
  }
  initialise(stream);
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
  const PhiloxKey key = philox_key(options_.seed, weight_name(table_));
  const double bound =
      options_.init_range > 0 ? options_.init_range : std::sqrt(1.0 / static_cast<double>(table_.rows));
  const int64_t columns = rows.last_dim();
  const int64_t vector = table_.width - table_.weights;
  dispatch_wide_float(options_.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = rows.as<T>();
    stream.pool().parallel_for(rows.dim(0), 1024, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        for (int64_t c = 0; c < columns; ++c) {
          const int64_t row = rect_.offset[0] + first + r;
          const int64_t column = rect_.offset[1] + c;
          const int64_t element = row * vector + column;
          const double unit = (philox_word(key, static_cast<uint64_t>(element)) + 0.5) / 4294967296.0;
          out[r * columns + c] = column < vector ? static_cast<T>(bound * (2 * unit - 1)) : T(0);
        }
    });
  });
}

Tensor TablePart::state(const Buffer& buffer) const {
  if (buffer.bytes() == 0) return {};
  const bool of_rows = options_.optimizer == SparseKind::RowwiseAdagrad;
  return buffer.tensor(options_.dtype, of_rows ? Shape{rect_.extent[0]} : rect_.extent);
}

RowUpdate TablePart::update(int64_t column) const {
  return {values(), state(state_), state(second_), nullptr, column, {}, 0};
}

void TablePart::name_tensors(std::vector<NamedTensor>& tensors, bool to_load) const {
  const auto add = [&](const std::string& kind, Tensor data, bool of_rows) {
    ShardSpec spec;
    spec.name = kind + "/" + weight_name(table_);
    spec.global = of_rows ? Shape{table_.rows} : Shape{table_.rows, table_.width};
    spec.local = rect_;
    if (of_rows) spec.local = {Shape{rect_.offset[0]}, Shape{rect_.extent[0]}};
    tensors.push_back({spec, data});
  };
  add("param", values(), false);
  const Tensor first = state(state_);
  if (first.data == nullptr) return;
  if (options_.optimizer == SparseKind::RowwiseAdagrad) {
    if (to_load || names_rows_) add("rowwise_adagrad_sum", first, true);
  } else if (options_.optimizer == SparseKind::Adagrad) {
    add("adagrad_sum", first, false);
  } else if (options_.optimizer == SparseKind::Ftrl) {
    add("ftrl_z", first, false);
    add("ftrl_n", state(second_), false);
  } else {
    add("adam_m", first, false);
    add("adam_v", state(second_), false);
  }
}

}  // namespace trifold
