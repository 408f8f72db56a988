#include "embedding/stored/row_file.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace trifold {

namespace {

// Unchanged pages between two records that are transferred rather than split a run: faster than a second request.
constexpr int64_t kGap = 16;

}  // namespace

size_t RowMerger::bytes_of_run(std::span<const RowRecords> layouts) {
  size_t bytes = layouts.empty() ? 0 : kRun;
  for (const RowRecords& layout : layouts)
    bytes = std::max(bytes, static_cast<size_t>(layout.most_pages()) * PageFile::kPage);
  return bytes;
}

size_t RowMerger::bytes_of_log(std::span<const RowRecords> layouts) {
  size_t bytes = 0;
  for (const RowRecords& layout : layouts) bytes = std::max(bytes, (kUnits + 1) * layout.unit_bytes());
  return bytes;
}

int64_t RowMerger::most_records(std::span<const RowRecords> layouts) {
  int64_t records = 0;
  for (const RowRecords& layout : layouts) records = std::max(records, (kUnits + 1) * layout.of_unit);
  return records;
}

size_t RowMerger::memory(std::span<const RowRecords> layouts) {
  return PageBuffer::memory(bytes_of_run(layouts)) + PageBuffer::memory(bytes_of_log(layouts)) +
         static_cast<size_t>(most_records(layouts)) * sizeof(uint64_t);
}

RowMerger::RowMerger(std::span<const RowRecords> layouts)
    : run_bytes_(bytes_of_run(layouts)),
      run_(run_bytes_),
      log_(bytes_of_log(layouts)),
      order_(static_cast<size_t>(most_records(layouts))) {}

RowFile::Sizes RowFile::sizes_of(int64_t rows, const RowRecords& layout, int64_t waiting) {
  Sizes sizes{};
  sizes.home_pages = layout.pages(rows);
  const int64_t wanted = (waiting + layout.of_unit - 1) / layout.of_unit;
  // Each range fills a unit in memory, so there are fewer, larger ranges if the log has only a few units per range.
  constexpr int64_t kUnitsOfRange = 4, kLeast = 2;
  const int64_t most_ranges = 1 + wanted / kUnitsOfRange;
  sizes.range_rows = std::max({layout.first_row(static_cast<int64_t>(kRange / PageFile::kPage)),
                               (rows + most_ranges - 1) / most_ranges, int64_t{1}});
  sizes.ranges = (rows + sizes.range_rows - 1) / sizes.range_rows;
  sizes.units = sizes.ranges + std::max(kLeast, wanted);
  return sizes;
}

size_t RowFile::file_bytes(int64_t rows, const RowRecords& layout, int64_t waiting) {
  const Sizes sizes = sizes_of(rows, layout, waiting);
  return static_cast<size_t>(sizes.home_pages + sizes.units * layout.unit_pages) * PageFile::kPage;
}

size_t RowFile::memory_bytes(int64_t rows, const RowRecords& layout, int64_t waiting) {
  const Sizes sizes = sizes_of(rows, layout, waiting);
  return RowIndex::bytes(sizes.units * layout.of_unit) +
         PageBuffer::memory(static_cast<size_t>(sizes.ranges) * layout.unit_bytes()) +
         static_cast<size_t>(sizes.ranges) * sizeof(Range) +
         static_cast<size_t>(sizes.units) * 2 * sizeof(int32_t) +
         static_cast<size_t>((sizes.merged() + 1) * layout.of_unit + sizes.merged()) * sizeof(int32_t);
}

RowFile::RowFile(const MemoryFolder& folder, int64_t rows, const RowRecords& layout, int64_t waiting)
    : layout_(layout),
      sizes_(sizes_of(rows, layout, waiting)),
      file_(folder, sizes_.home_pages + sizes_.units * layout.unit_pages),
      index_(sizes_.units * layout.of_unit),
      ranges_(static_cast<size_t>(sizes_.ranges)),
      tails_(ranges_.size() * layout.unit_bytes()) {
  for (auto unit = static_cast<int32_t>(sizes_.units); unit-- > 0;) free_.push_back(unit);
  merge_.units.reserve(static_cast<size_t>(sizes_.merged()));
  merge_.rows.resize(static_cast<size_t>((sizes_.merged() + 1) * layout.of_unit));
}

RowFile::~RowFile() {
  if (merge_.by != nullptr) merge_.by->worker_.synchronize();
}

std::byte* RowFile::put(int32_t row, PageQueue& queue, RowMerger& merger) {
  const size_t r = range_of(row);
  Range& range = ranges_[r];
  if (range.tail < 0 || range.filled == layout_.of_unit) take_unit(range, queue, merger);
  const auto number = static_cast<int32_t>(range.tail * layout_.of_unit + range.filled);
  layout_.rows_of_unit(tail_of(r))[range.filled] = row;
  index_.assign(row, number);
  settled_ = false;
  ++counts_.put;
  return layout_.in_unit(tail_of(r), range.filled++);
}

// Writes the full unit to disk and takes a free one. If none is free, merges; the queue must finish first, because a
// merge reads units from disk.
void RowFile::take_unit(Range& range, PageQueue& queue, RowMerger& merger) {
  if (range.tail >= 0) {
    queue.write(file_, page_of_unit(range.tail), layout_.unit_pages,
                tail_of(static_cast<size_t>(&range - ranges_.data())));
    range.units.push_back(range.tail);
    range.tail = -1;
    counts_.log_pages += layout_.unit_pages;
  }
  while (free_.empty()) {
    queue.finish();
    if (merge_.by == nullptr && !begin_merge(merger))
      fail("a log of {} units has none to merge", sizes_.units);
    wait(merger);
  }
  range.tail = free_.back();
  range.filled = 0;
  free_.pop_back();
}

RowFile::Location RowFile::find(int32_t row) const {
  const int64_t number = index_.find(row);
  if (number == RowIndex::kNone) {
    const int64_t page = layout_.first_page(row);
    return {nullptr, page, layout_.end_page(row) - page, layout_.begin(row) % PageFile::kPage};
  }
  const auto unit = static_cast<int32_t>(number / layout_.of_unit);
  const int64_t at = number % layout_.of_unit;
  const size_t r = range_of(row);
  if (unit == ranges_[r].tail) return {layout_.in_unit(tail_of(r), at), 0, 0, 0};
  const size_t begin = static_cast<size_t>(at) * layout_.record;
  const size_t page = begin / PageFile::kPage;
  return {nullptr, page_of_unit(unit) + static_cast<int64_t>(page),
          static_cast<int64_t>(RowRecords::pages_for(begin + layout_.record) - page),
          begin % PageFile::kPage};
}

void RowFile::tidy(RowMerger& merger) {
  if (merge_.by != nullptr && merge_.done.load(std::memory_order_acquire)) end_merge();
  if (merge_.by != nullptr) return;
  const auto to_spare = static_cast<size_t>(sizes_.units - sizes_.ranges) / 8;
  if (free_.size() < std::max<size_t>(to_spare, 2)) begin_merge(merger);
}

// Begins a merge of the range with most units; returns false if no range has units.
bool RowFile::begin_merge(RowMerger& merger) {
  const auto most = std::max_element(ranges_.begin(), ranges_.end(), [](const Range& a, const Range& b) {
    return a.units.size() < b.units.size();
  });
  if (most->units.empty()) return false;
  const auto count = std::min<std::ptrdiff_t>(std::ssize(most->units), sizes_.merged());
  merge_.units.assign(most->units.begin(), most->units.begin() + count);
  most->units.erase(most->units.begin(), most->units.begin() + count);
  merge_.in_memory = 0;
  merge_.by = &merger;
  merge_.done.store(false, std::memory_order_relaxed);
  merger.worker_.run([this, &merger] {
    try {
      merge(merger);
    } catch (...) {
      merge_.error = std::current_exception();
    }
    merge_.done.store(true, std::memory_order_release);
  });
  return true;
}

// Runs on the merger's thread. If a row occurs several times, its last record wins.
void RowFile::merge(RowMerger& merger) {
  std::byte* const log = merger.log_.data();
  const size_t units = merge_.units.size();
  for (size_t u = 0; u < units; ++u)
    file_.read(page_of_unit(merge_.units[u]), layout_.unit_pages, log + u * layout_.unit_bytes());
  const auto records = static_cast<int64_t>(units) * layout_.of_unit + merge_.in_memory;
  for (int64_t i = 0; i < records; ++i) {
    std::byte* const unit = log + static_cast<size_t>(i / layout_.of_unit) * layout_.unit_bytes();
    const int32_t row = layout_.rows_of_unit(unit)[i % layout_.of_unit];
    merge_.rows[static_cast<size_t>(i)] = row;
    merger.order_[static_cast<size_t>(i)] =
        static_cast<uint64_t>(static_cast<uint32_t>(row)) << 32 | static_cast<uint64_t>(i);
  }
  std::sort(merger.order_.begin(), merger.order_.begin() + records);
  for (int64_t at = 0; at < records;) at = merge_run(merger, at, records);
}

// Writes the records from index `at` of the order on to their places, as far as one run of the file reaches. Returns
// the index of the first remaining record.
int64_t RowFile::merge_run(RowMerger& merger, int64_t at, int64_t end) {
  const auto row_at = [&](int64_t i) {
    return static_cast<int64_t>(merger.order_[static_cast<size_t>(i)] >> 32);
  };
  const int64_t first = layout_.first_page(row_at(at));
  const auto most = static_cast<int64_t>(merger.run_bytes_ / PageFile::kPage);
  int64_t last = layout_.end_page(row_at(at)), next = at;
  for (; next < end; ++next) {
    const int64_t row = row_at(next);
    if (layout_.end_page(row) - first > most || layout_.first_page(row) > last + kGap) break;
    last = layout_.end_page(row);
  }
  std::byte* const run = merger.run_.data();
  file_.read(first, last - first, run);
  for (int64_t i = at; i < next; ++i) {
    const auto record = static_cast<int64_t>(static_cast<uint32_t>(merger.order_[static_cast<size_t>(i)]));
    std::byte* const unit =
        merger.log_.data() + static_cast<size_t>(record / layout_.of_unit) * layout_.unit_bytes();
    std::memcpy(run + layout_.begin(row_at(i)) - static_cast<size_t>(first) * PageFile::kPage,
                layout_.in_unit(unit, record % layout_.of_unit), layout_.record);
  }
  file_.write(first, last - first, run);
  counts_.merged_pages += 2 * (last - first);
  return next;
}

// Rows that were put again during the merge stay in the log. After an error all rows stay, and every later call fails.
void RowFile::end_merge() {
  if (merge_.error) std::rethrow_exception(merge_.error);
  for (size_t u = 0; u < merge_.units.size(); ++u) {
    for (int64_t i = 0; i < layout_.of_unit; ++i) {
      const int32_t row = merge_.rows[u * static_cast<size_t>(layout_.of_unit) + static_cast<size_t>(i)];
      if (index_.find(row) == merge_.units[u] * layout_.of_unit + i) index_.erase(row);
    }
    free_.push_back(merge_.units[u]);
  }
  merge_.by = nullptr;
}

void RowFile::wait(RowMerger& merger) {
  if (merge_.by == nullptr) return;
  merger.worker_.synchronize();
  end_merge();
}

void RowFile::settle(PageQueue& queue, RowMerger& merger) {
  queue.finish();
  wait(merger);
  merger.worker_.synchronize();  // the merger's buffers are used here, and by visit
  if (settled_) return;
  while (begin_merge(merger)) wait(merger);
  for (size_t r = 0; r < ranges_.size(); ++r) {
    Range& range = ranges_[r];
    if (range.tail < 0) continue;
    std::memcpy(merger.log_.data(), tail_of(r), layout_.unit_bytes());
    merge_.units.clear();
    merge_.in_memory = range.filled;
    merge(merger);
    free_.push_back(range.tail);
    range = {std::move(range.units), -1, 0};
  }
  index_.clear();
  settled_ = true;
}

int64_t RowFile::visit(int64_t first, int64_t count, FunctionRef<bool(int64_t first, int64_t rows)> load,
                       RowMerger& merger, FunctionRef<bool(int64_t row, std::byte* record)> see) const {
  const int64_t page = layout_.first_page(first);
  const auto most = static_cast<int64_t>(merger.run_bytes_ / PageFile::kPage);
  // A record that begins in the last page may end after it.
  const int64_t before = layout_.of_page > 0 ? 0 : 1;
  const int64_t fit = layout_.first_row(page + most) - first - before;
  const int64_t rows = std::min(count, std::max<int64_t>(fit, 1));
  const int64_t pages = layout_.end_page(first + rows - 1) - page;
  std::byte* const run = merger.run_.data();
  const auto place_of = [&](int64_t other) {
    return run + static_cast<size_t>(other - page) * PageFile::kPage;
  };
  // Whether a page contains written records, or parts of them.
  const auto holds = [&](int64_t other) {
    const int64_t from = std::max<int64_t>(layout_.first_row(other) - before, 0);
    return load(from, layout_.first_row(other + 1) - from);
  };
  if (load(first, rows)) {
    file_.read(page, pages, run);
  } else {
    if (holds(page)) file_.read(page, 1, run);
    if (const int64_t last = page + pages - 1; pages > 1 && holds(last)) file_.read(last, 1, place_of(last));
  }
  int64_t begin = page + pages, end = page;  // pages that changed, and those between them
  for (int64_t row = first; row < first + rows; ++row) {
    if (!see(row, run + layout_.begin(row) - static_cast<size_t>(page) * PageFile::kPage)) continue;
    begin = std::min(begin, layout_.first_page(row));
    end = std::max(end, layout_.end_page(row));
  }
  if (begin < end) file_.write(begin, end - begin, place_of(begin));
  return rows;
}

}  // namespace trifold
