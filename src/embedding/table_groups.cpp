#include "embedding/table_groups.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "core/error.h"

namespace trifold {

namespace {

int owner_of(const ClickSchema& schema, int column) {
  const ClickTable& table = schema.table(column);
  if (table.shares.empty()) return column;
  for (int other = 0; other < schema.table_count(); ++other) {
    const ClickTable& owner = schema.table(other);
    if (owner.name != table.shares || !owner.shares.empty()) continue;
    if (table.keyed() || owner.keyed())
      bad_input("table {} has keys and shares the rows of {}: the rows of keys belong to one column",
                table.name, owner.name);
    return other;
  }
  bad_input("table {} shares the rows of {}, which is no table with rows of its own", table.name,
            table.shares);
}

}  // namespace

bool TableUses::simple() const {
  return tables.size() == columns.size() &&
         std::none_of(columns.begin(), columns.end(), [](const auto& use) { return use.one_by_one; });
}

TableUses table_uses(const ClickSchema& schema, int64_t width, int weights,
                     const std::vector<int64_t>& one_by_one) {
  TableUses uses;
  uses.columns.resize(schema.tables.size());
  std::map<int, int> place;  // from a column to the index of its table
  for (int c = 0; c < schema.table_count(); ++c) {
    if (owner_of(schema, c) != c) continue;
    place[c] = static_cast<int>(uses.tables.size());
    uses.tables.push_back(
        {schema.table(c).name, schema.table(c).rows, width, 1, weights, 0, schema.table(c).keyed()});
  }
  for (int c = 0; c < schema.table_count(); ++c) {
    TableUse& use = uses.columns[static_cast<size_t>(c)];
    const int most = schema.table(c).max_ids;
    use.table = place.at(owner_of(schema, c));
    use.one_by_one = std::find(one_by_one.begin(), one_by_one.end(), c) != one_by_one.end();
    use.bags = use.one_by_one ? most : 1;
    EmbeddingTable& table = uses.tables[static_cast<size_t>(use.table)];
    use.first = table.bags;
    table.bags += use.bags;
    if (!use.one_by_one) table.max_ids = std::max(table.max_ids, most);
  }
  return uses;
}

std::vector<TableGroup> group_tables(const Placement& all) {
  std::map<int64_t, std::vector<int>> by_bags;
  for (size_t t = 0; t < all.tables().size(); ++t)
    by_bags[all.tables()[t].bags].push_back(static_cast<int>(t));
  std::vector<TableGroup> groups;
  for (const auto& [bags, members] : by_bags) {
    std::vector<EmbeddingTable> tables;
    std::vector<TablePlacement> choice;
    for (const int t : members) {
      tables.push_back(all.tables()[static_cast<size_t>(t)]);
      choice.push_back(all.choice()[static_cast<size_t>(t)]);
    }
    groups.push_back(
        {bags, members, Placement(std::move(tables), std::move(choice), all.ranks(), all.leading())});
  }
  return groups;
}

BagBatch::BagBatch(const TableUses& uses, const TableGroup& group, const ClickSchema& schema, int64_t samples)
    : bags_(group.bags) {
  for (const int t : group.tables) {
    Table& table = tables_.emplace_back();
    int64_t ids = 0;
    for (size_t c = 0; c < uses.columns.size(); ++c)
      if (uses.columns[c].table == t) {
        table.columns.push_back({c, uses.columns[c]});
        ids += samples * schema.tables[c].max_ids;
      }
    if (bags_ == 1) continue;
    table.lengths = Buffer(static_cast<size_t>(samples * bags_) * sizeof(int32_t));
    table.ids = Buffer(static_cast<size_t>(ids) * sizeof(int32_t));
    if (schema.weighted) table.weights = Buffer(static_cast<size_t>(ids) * sizeof(float));
  }
}

size_t BagBatch::bytes() const {
  size_t bytes = 0;
  for (const Table& table : tables_)
    bytes += table.lengths.bytes() + table.ids.bytes() + table.weights.bytes();
  return bytes;
}

size_t BagBatch::bytes(const TableUses& uses, const TableGroup& group, const ClickSchema& schema,
                       int64_t samples) {
  if (group.bags == 1) return 0;
  int64_t ids = 0;
  for (size_t c = 0; c < uses.columns.size(); ++c)
    if (std::find(group.tables.begin(), group.tables.end(), uses.columns[c].table) != group.tables.end())
      ids += samples * schema.tables[c].max_ids;
  const size_t of_id = sizeof(int32_t) + (schema.weighted ? sizeof(float) : 0);
  return static_cast<size_t>(std::ssize(group.tables) * samples * group.bags) * sizeof(int32_t) +
         static_cast<size_t>(ids) * of_id;
}

const ClickBatch& BagBatch::arrange(const ClickBatch& clicks) {
  batch_ = clicks;
  batch_.samples = clicks.samples * bags_;
  batch_.real = clicks.real * bags_;
  batch_.lengths.assign(tables_.size(), {});
  batch_.ids.assign(tables_.size(), {});
  batch_.id_weights.assign(clicks.id_weights.empty() ? 0 : tables_.size(), {});
  for (size_t t = 0; t < tables_.size(); ++t) {
    const size_t column = tables_[t].columns.front().index;
    if (bags_ > 1) {
      fill(clicks, tables_[t], t);
      continue;
    }
    batch_.lengths[t] = clicks.lengths[column];
    batch_.ids[t] = clicks.ids[column];
    if (!clicks.id_weights.empty()) batch_.id_weights[t] = clicks.id_weights[column];
  }
  return batch_;
}

// Columns have their ids sample by sample, so each is read once, in order.
void BagBatch::fill(const ClickBatch& clicks, const Table& table, size_t place) {
  auto* const lengths = reinterpret_cast<int32_t*>(table.lengths.data());
  auto* const ids = reinterpret_cast<int32_t*>(table.ids.data());
  auto* const weights = reinterpret_cast<float*>(table.weights.data());
  std::vector<int64_t> next(table.columns.size(), 0);
  int64_t count = 0;
  std::fill_n(lengths, clicks.samples * bags_, 0);
  for (int64_t i = 0; i < clicks.samples; ++i)
    for (size_t c = 0; c < table.columns.size(); ++c) {
      const auto& [column, use] = table.columns[c];
      const int32_t n = clicks.lengths[column].as<int32_t>()[i];
      int32_t* const of_use = lengths + i * bags_ + use.first;
      if (use.one_by_one)
        std::fill_n(of_use, n, 1);
      else
        *of_use = n;
      const auto bytes = static_cast<size_t>(n) * sizeof(int32_t);
      std::memcpy(ids + count, clicks.ids[column].as<int32_t>() + next[c], bytes);
      if (!clicks.id_weights.empty())
        std::memcpy(weights + count, clicks.id_weights[column].as<float>() + next[c], bytes);
      next[c] += n;
      count += n;
    }
  batch_.lengths[place] = {lengths, DType::I32, {clicks.samples * bags_}};
  batch_.ids[place] = {ids, DType::I32, {count}};
  if (!clicks.id_weights.empty()) batch_.id_weights[place] = {weights, DType::F32, {count}};
}

}  // namespace trifold
