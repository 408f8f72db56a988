// KeyTables holds a KeyTable for each embedding table whose ids are keys (ClickTable::keyed).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "clicks/click_source.h"
#include "clicks/keys/key_table.h"
#include "core/thread_pool.h"

namespace trifold {

class KeyTables final : public KeyRows {
 public:
  KeyTables(const ClickSchema& schema, const KeyRule& rule, bool learns);

  // Whether no table has keys.
  bool empty() const;
  // The KeyTable of an embedding table; null if its ids are not keys.
  KeyTable* table(int index) { return tables_[static_cast<size_t>(index)].get(); }
  int tables() const { return static_cast<int>(tables_.size()); }
  size_t bytes() const;

  // Takes the keys of global batch `step` of `feed`, whose clicks have these tables. The pool's workers process
  // different tables in parallel.
  void take(const ClickFeed& feed, int64_t step, ThreadPool& pool);
  // Undoes the last `take`, or redoes it.
  void swap_last();
  // Calls KeyTable::loaded; `batches` has one entry per table, or is empty.
  void loaded(std::span<const uint32_t> batches);

  int32_t row_of(int table, uint64_t key) const override {
    return tables_[static_cast<size_t>(table)]->row_of(key);
  }

 private:
  std::vector<std::unique_ptr<KeyTable>> tables_;
  std::vector<int64_t> positions_;           // positions of a batch's samples
  std::vector<std::vector<uint64_t>> keys_;  // per table, keys of a batch
};

}  // namespace trifold
