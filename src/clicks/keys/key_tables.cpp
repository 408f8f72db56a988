#include "clicks/keys/key_tables.h"

#include <algorithm>
#include <atomic>

namespace trifold {

KeyTables::KeyTables(const ClickSchema& schema, const KeyRule& rule, bool learns)
    : keys_(schema.tables.size()) {
  for (const ClickTable& table : schema.tables)
    tables_.push_back(table.keyed() ? std::make_unique<KeyTable>(table.rows, rule, learns) : nullptr);
}

bool KeyTables::empty() const {
  return std::all_of(tables_.begin(), tables_.end(), [](const auto& table) { return table == nullptr; });
}

size_t KeyTables::bytes() const {
  size_t bytes = 0;
  for (const auto& table : tables_) bytes += table ? table->bytes() : 0;
  return bytes;
}

void KeyTables::take(const ClickFeed& feed, int64_t step, ThreadPool& pool) {
  std::atomic<size_t> next{0};
  feed.positions(step, positions_);
  pool.run([&](int) {
    for (size_t t = next++; t < tables_.size(); t = next++) {
      if (!tables_[t]) continue;
      feed.keys(positions_, static_cast<int>(t), keys_[t]);
      tables_[t]->take(keys_[t]);
    }
  });
}

void KeyTables::swap_last() {
  for (const auto& table : tables_)
    if (table) table->swap_last();
}

void KeyTables::loaded(std::span<const uint32_t> batches) {
  for (size_t t = 0; t < tables_.size(); ++t)
    if (tables_[t]) tables_[t]->loaded(t < batches.size() ? batches[t] : 0);
}

}  // namespace trifold
