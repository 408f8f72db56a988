// Access to a RowCache's store by checkpoints, and the choice of the rows that are in memory after a load.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>

#include "embedding/stored/row_cache.h"

namespace trifold {

void RowCache::reload(Stream& stream) {
  if (disk_ == nullptr) std::fill(written_.begin(), written_.end(), ~uint64_t{0});
  // Planes write into slots on the host, too.
  if (disk_ == nullptr || transfer_) {
    index_.clear();
    std::fill(row_of_slot_.begin(), row_of_slot_.end(), -1);
    std::fill(last_batch_.begin(), last_batch_.end(), batch_ - 2);
    std::fill(uses_.begin(), uses_.end(), 0);
    std::fill(changed_.begin(), changed_.end(), 0);
    filled_ = hand_ = 0;
  }
  if (disk_ != nullptr) bring_in_used(stream);
}

// An estimate of how often a row was used, from its optimizer's state: larger for more uses, 0 if it was not used.
uint32_t RowCache::weight_of(const std::byte* record) const {
  for (const RowArray& array : arrays_) {
    if (!array.sum_of_squares) continue;
    const float sum = dispatch_wide_float(dtype_, [&](auto number) {
      std::memcpy(&number, record + array.begin, sizeof number);
      return static_cast<float>(number);
    });
    // The bits of non-negative floats have the order of their values.
    return sum > 0 ? std::bit_cast<uint32_t>(sum) : 0;
  }
  return 1;
}

// The weights of rows in evenly spaced pages, in descending order; rows that were never written have weight 0.
std::vector<uint32_t> RowCache::sampled_weights() const {
  constexpr int64_t kPages = 1024;
  const RowFile& file = *store_.file();
  const int64_t pages = file.layout().pages(rows_), distance = std::max<int64_t>(pages / kPages, 1);
  std::vector<uint32_t> weights;
  for (int64_t page = distance / 2; page < pages; page += distance) {
    const int64_t first = file.layout().first_row(page);
    const int64_t count = std::min(file.layout().first_row(page + 1), rows_) - first;
    if (count > 0)
      visit(first, count, [&](int64_t row, const std::byte* record) {
        weights.push_back(is_written(row) ? weight_of(record) : 0);
        return false;
      });
  }
  std::sort(weights.begin(), weights.end(), std::greater<>());
  return weights;
}

// Fills free slots with approximately the rows of greatest weight; a sample gives the distribution of weights. A
// resumed run thus begins with about the rows that were in memory before, and reads the file once, sequentially,
// instead of row by row.
void RowCache::bring_in_used(Stream& stream) {
  RowFile& file = *store_.file();
  file.settle(disk_->queue, disk_->merger);
  if (!any_written(0, rows_)) return;
  const std::vector<uint32_t> weights = sampled_weights();
  // The minimum weight of a row that enters with a given use counter; each step of the counter halves the rows.
  std::array<uint32_t, kMostUses + 1> least{};
  for (size_t uses = 0; uses < least.size(); ++uses) {
    const double share = static_cast<double>((slots_ - filled_) >> uses) / static_cast<double>(rows_);
    const auto at = static_cast<size_t>(share * static_cast<double>(weights.size()));
    least[uses] = at < weights.size() ? std::max(weights[at], uint32_t{1}) : 1;
  }
  moves_.clear();
  const auto flush = [&] {
    if (transfer_ && !moves_.empty()) {
      transfer_->send_rows(moves_, stream);
      stream.synchronize();
    }
    moves_.clear();
  };
  const auto see = [&](int64_t row, const std::byte* record) {
    if (filled_ == slots_ || !is_written(row)) return false;
    const uint32_t weight = weight_of(record);
    if (weight < least[0] || index_.find(static_cast<int32_t>(row)) != RowIndex::kNone) return false;
    const auto slot = static_cast<size_t>(filled_++);
    row_of_slot_[slot] = static_cast<int32_t>(row);
    last_batch_[slot] = batch_ - 2;
    uses_[slot] = static_cast<uint8_t>(std::count_if(
        least.begin() + 1, least.end(), [&](uint32_t bound) { return bound > least[0] && weight >= bound; }));
    changed_[slot] = 0;
    index_.assign(static_cast<int32_t>(row), static_cast<int32_t>(slot));
    moves_.push_back({static_cast<int32_t>(slot), static_cast<int32_t>(row), -1});
    enter(std::ssize(moves_) - 1, record);
    if (std::ssize(moves_) == batch_rows_) flush();
    return false;
  };
  for (int64_t done = 0; done < rows_ && filled_ < slots_;) done += visit(done, rows_ - done, see);
  flush();
}

bool RowCache::any_written(int64_t first, int64_t count) const {
  const int64_t end = std::min(first + count, rows_);
  for (int64_t row = first; row < end;) {
    if (row % 64 == 0 && row + 64 <= end) {
      if (written_[static_cast<size_t>(row) / 64] != 0) return true;
      row += 64;
    } else if (is_written(row++)) {
      return true;
    }
  }
  return false;
}

int64_t RowCache::visit(int64_t first, int64_t count,
                        FunctionRef<bool(int64_t row, std::byte* record)> see) const {
  return store_.file()->visit(
      first, count, [this](int64_t from, int64_t rows) { return any_written(from, rows); }, disk_->merger,
      see);
}

// Whether these are the values of an array of a row that was never written.
bool RowCache::begins_with(int64_t row, size_t array, const std::byte* values) {
  const size_t bytes = arrays_[array].row_bytes;
  if (array != 0)
    return std::all_of(values, values + bytes, [](std::byte byte) { return byte == std::byte{0}; });
  first_.resize(bytes);
  initial_(row, first_.data());
  return std::memcmp(first_.data(), values, bytes) == 0;
}

int64_t RowCache::slot_on_host(int64_t row) const {
  return transfer_ ? RowIndex::kNone : index_.find(static_cast<int32_t>(row));
}

// On the host, a changed row is in its slot, and a row that was never written is not stored.
void RowCache::Plane::read(int64_t first, int64_t count, std::byte* to) {
  const RowCache& cache = *cache_;
  const RowArray& array = cache.arrays_[array_];
  const auto see = [&](int64_t row, const std::byte* record) {
    std::byte* const out = to + static_cast<size_t>(row - first) * array.row_bytes;
    const int64_t slot = cache.slot_on_host(row);
    if (slot != RowIndex::kNone && cache.changed_[static_cast<size_t>(slot)] != 0)
      std::memcpy(out, array.slot(slot), array.row_bytes);
    else if (cache.is_written(row))
      std::memcpy(out, record + array.begin, array.row_bytes);
    else if (array_ == 0)
      cache.initial_(row, out);
    else
      std::memset(out, 0, array.row_bytes);
    return false;
  };
  for (int64_t done = 0; done < count;) done += cache.visit(first + done, count - done, see);
}

// A row that was never written and receives its initial values still counts as not written, so no batch reads it.
void RowCache::Plane::write(int64_t first, int64_t count, const std::byte* from) {
  RowCache& cache = *cache_;
  const RowArray& array = cache.arrays_[array_];
  cache.store_.file()->settle(cache.disk_->queue, cache.disk_->merger);
  const auto see = [&](int64_t row, std::byte* record) {
    const std::byte* const in = from + static_cast<size_t>(row - first) * array.row_bytes;
    const int64_t slot = cache.slot_on_host(row);
    if (slot != RowIndex::kNone) std::memcpy(array.slot(slot), in, array.row_bytes);
    if (!cache.is_written(row)) {
      if (cache.begins_with(row, array_, in)) return false;
      begin_row(cache.arrays_, row, cache.initial_,
                [&](const RowArray& each) { return record + each.begin; });
      cache.set_written(row);
    }
    std::memcpy(record + array.begin, in, array.row_bytes);
    return true;
  };
  for (int64_t done = 0; done < count;) done += cache.visit(first + done, count - done, see);
}

}  // namespace trifold
