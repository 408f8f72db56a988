#include "embedding/table_copies.h"

#include <algorithm>
#include <numeric>

namespace trifold {

namespace {

std::vector<const EmbeddingTable*> copied(const Placement& placement) {
  std::vector<const EmbeddingTable*> tables;
  for (size_t t = 0; t < placement.tables().size(); ++t)
    if (placement.replicated(static_cast<int>(t))) tables.push_back(&placement.tables()[t]);
  return tables;
}

}  // namespace

size_t TableCopies::bytes(const Placement& placement, DType dtype) {
  size_t bytes = 0;
  int64_t most = 0;
  for (const EmbeddingTable* table : copied(placement)) {
    bytes += static_cast<size_t>(table->rows * (table->width + 1)) * size_of(dtype) + sizeof(int64_t);
    most = std::max(most, table->rows);
  }
  return most == 0 ? 0 : bytes + static_cast<size_t>(most + 1) * sizeof(int32_t);
}

TableCopies::TableCopies(const Placement& placement, std::span<const TablePart> parts, Communicator& comm,
                         const OpTable& ops, DType dtype, Stream& compute, Stream& comm_stream)
    : comm_(comm), ops_(ops), compute_(compute), comm_stream_(comm_stream) {
  if (parts.empty()) return;
  int64_t numbers = 0;
  for (const TablePart& part : parts) numbers += part.rect().extent[0] * (part.rect().extent[1] + 1);
  memory_ = Buffer(static_cast<size_t>(numbers) * size_of(dtype), ops.device);
  all_ = memory_.tensor(dtype, {numbers});
  make_orders(parts);
  int64_t at = 0;
  const auto take = [&](const Shape& shape) {
    const Tensor taken = all_.flat(at, at + shape.elements()).reshape(shape);
    at += shape.elements();
    return taken;
  };
  size_t next = 0;
  for (size_t t = 0; t < placement.tables().size(); ++t) {
    if (!placement.replicated(static_cast<int>(t))) continue;
    const TablePart& part = parts[next];
    const Tensor gradients = take(part.rect().extent);
    const Tensor touched = take({part.rect().extent[0]});
    gradients_.push_back(gradients);
    updates_.push_back(part.update(0));
    updates_.back().order = &orders_[next++];
    updates_.back().touched = touched;
    const int64_t column = placement.feature_column(static_cast<int>(t));
    stores_.push_back({gradients, touched, {}, nullptr, column, {}, 0});
  }
}

// Every row once, in a bag of its own: 0, 1, 2, ... serves as the list of rows, of bags and of begins.
void TableCopies::make_orders(std::span<const TablePart> parts) {
  int64_t most = 0;
  for (const TablePart& part : parts) most = std::max(most, part.rect().extent[0]);
  std::vector<int32_t> numbers(static_cast<size_t>(most + 1));
  std::iota(numbers.begin(), numbers.end(), 0);
  const auto keep = [&](DType dtype, void* data, int64_t count) {
    order_memory_.emplace_back(static_cast<size_t>(count) * size_of(dtype), ops_.device);
    const Tensor kept = order_memory_.back().tensor(dtype, {count});
    ops_.copy(compute_, kept, {data, dtype, {count}});
    return kept;
  };
  const Tensor all = keep(DType::I32, numbers.data(), most + 1);
  for (const TablePart& part : parts) {
    int64_t rows = part.rect().extent[0];
    const Tensor some = all.flat(0, rows);
    orders_.push_back({rows, some, all.flat(0, rows + 1), some, {}, keep(DType::I64, &rows, 1), {}});
  }
}

size_t TableCopies::bytes() const {
  size_t bytes = memory_.bytes();
  for (const Buffer& buffer : order_memory_) bytes += buffer.bytes();
  return bytes;
}

void TableCopies::update(std::span<const LookupOrder> orders, Tensor dfeatures, const SparseRule& rule) {
  if (updates_.empty()) return;
  ops_.fill(compute_, all_, 0);
  for (size_t i = 0; i < stores_.size(); ++i) stores_[i].order = &orders[i];
  ops_.row_gradients(compute_, dfeatures, stores_);
  comm_stream_.wait(compute_.record());
  comm_.all_reduce(all_, Reduce::Sum, comm_stream_);
  compute_.wait(comm_stream_.record());
  for (size_t i = 0; i < updates_.size(); ++i)
    ops_.update_rows(compute_, gradients_[i], {&updates_[i], 1}, rule);
}

}  // namespace trifold
