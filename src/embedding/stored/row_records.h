// RowRecords computes where the rows of a table lie in its file. The *record* of a row holds its vector and its
// optimizer state. If whole records fill a page to at least seven eighths, none crosses the boundary of a page;
// otherwise they are stored back to back, across pages.
//
// The log of the file (row_file.h) consists of *units*: one page, or as many as eight records need. A unit holds
// records, and at its end the row of each as an int32.
#pragma once

#include <algorithm>
#include <cstdint>

#include "files/page_file.h"

namespace trifold {

struct RowRecords {
  static constexpr size_t kPage = PageFile::kPage;

  explicit RowRecords(size_t record_bytes) : record(record_bytes) {
    const size_t fits = kPage / record;
    if (fits > 0 && (kPage - fits * record) * 8 <= kPage) of_page = static_cast<int64_t>(fits);
    constexpr size_t kLeast = 8;
    const size_t numbered = record + sizeof(int32_t);
    unit_pages = numbered * kLeast <= kPage ? 1 : static_cast<int64_t>(pages_for(numbered * kLeast));
    of_unit = static_cast<int64_t>(unit_bytes() / numbered);
  }

  static size_t pages_for(size_t bytes) { return (bytes + kPage - 1) / kPage; }

  // Offset of the record of `row` in the file, in bytes.
  size_t begin(int64_t row) const {
    if (of_page == 0) return static_cast<size_t>(row) * record;
    return static_cast<size_t>(row / of_page) * kPage + static_cast<size_t>(row % of_page) * record;
  }
  int64_t first_page(int64_t row) const { return static_cast<int64_t>(begin(row) / kPage); }
  int64_t end_page(int64_t row) const { return static_cast<int64_t>(pages_for(begin(row) + record)); }
  // Pages of a table of `rows` rows.
  int64_t pages(int64_t rows) const { return rows == 0 ? 0 : end_page(rows - 1); }
  // The first row whose record begins in `page` or later.
  int64_t first_row(int64_t page) const {
    return of_page > 0 ? page * of_page
                       : static_cast<int64_t>((static_cast<size_t>(page) * kPage + record - 1) / record);
  }
  // The largest number of pages that a record may touch.
  int64_t most_pages() const { return of_page > 0 ? 1 : static_cast<int64_t>(pages_for(record)) + 1; }

  size_t unit_bytes() const { return static_cast<size_t>(unit_pages) * kPage; }
  std::byte* in_unit(std::byte* unit, int64_t at) const { return unit + static_cast<size_t>(at) * record; }
  int32_t* rows_of_unit(std::byte* unit) const {
    // At the end the list is aligned, whatever the size of a record.
    return reinterpret_cast<int32_t*>(unit + unit_bytes()) - of_unit;
  }

  size_t record;        // bytes
  int64_t of_page = 0;  // records in a page; 0: records are back to back, across pages
  int64_t unit_pages = 1, of_unit = 1;
};

}  // namespace trifold
