// Rows of keys that come while a model trains, compared with a simulation that scans lists.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <tuple>
#include <vector>

#include "clicks/keys/key_table.h"
#include "core/error.h"

namespace trifold {
namespace {

using Batch = std::vector<uint64_t>;

// Batches of skewed keys; later batches have keys that earlier ones did not have.
std::vector<Batch> batches_of(int count, size_t size, uint64_t seed) {
  std::mt19937_64 draw(seed);
  std::vector<Batch> batches;
  for (int b = 0; b < count; ++b) {
    Batch& batch = batches.emplace_back(size);
    for (uint64_t& key : batch) {
      const uint64_t range = 1 + draw() % 60;
      key = draw() % 20 == 0 ? 0 : 1 + static_cast<uint64_t>(b) + draw() % range;
    }
  }
  return batches;
}

// A table of a single bucket by its rules, key by key.
class Simulation {
 public:
  struct Known {
    uint32_t count = 0, batch = 0;
    bool operator==(const Known&) const = default;
  };
  Simulation(size_t places, KeyRule rule) : places_(places), rule_(rule) {}

  void take(const Batch& keys) {
    if (std::all_of(keys.begin(), keys.end(), [](uint64_t key) { return key == 0; })) return;
    ++batch_;
    Batch unknown;
    for (const uint64_t key : keys) {
      if (key == 0) continue;
      if (owners.contains(key))
        see(owners[key]);
      else
        unknown.push_back(key);
    }
    for (const uint64_t key : unknown) take_unknown(key);
  }

  std::map<uint64_t, Known> owners;

 private:
  void see(Known& known) { known = {known.count + 1, batch_}; }

  void take_unknown(uint64_t key) {
    if (owners.contains(key)) return see(owners[key]);
    uint32_t count = 1;
    if (rule_.admission > 1 || rule_.eviction == KeyEviction::Rarest) count = ++counts_[key];
    if (count < rule_.admission || !make_room(count)) return;
    owners[key] = {count, batch_};
  }

  // Whether there is room for another key, after an eviction if need be. Where several are alike the place decides,
  // which this simulation does not know: tests with ties compare less.
  bool make_room(uint32_t count) {
    if (owners.size() < places_) return true;
    if (rule_.eviction == KeyEviction::None) return false;
    std::optional<uint64_t> victim;
    const auto rank = [&](const Known& known) {
      return rule_.eviction == KeyEviction::Oldest ? std::pair(known.batch, known.count)
                                                   : std::pair(known.count, known.batch);
    };
    for (const auto& [key, known] : owners) {
      if (known.batch == batch_) continue;
      if (victim && rank(known) == rank(owners[*victim])) ties = true;
      if (!victim || rank(known) < rank(owners[*victim])) victim = key;
    }
    if (!victim || (rule_.eviction == KeyEviction::Rarest && owners[*victim].count > count)) return false;
    counts_[*victim] = owners[*victim].count;
    owners.erase(*victim);
    return true;
  }

 public:
  bool ties = false;

 private:
  size_t places_;
  KeyRule rule_;
  uint32_t batch_ = 0;
  std::map<uint64_t, uint32_t> counts_;  // of keys that are no owners
};

std::map<uint64_t, Simulation::Known> owners_of(KeyTable& table) {
  std::map<uint64_t, Simulation::Known> owners;
  for (const KeyTable::Entry& entry : table.owners())
    if (entry.key != 0) owners[entry.key] = {entry.count, entry.batch};
  return owners;
}

// Batches in which a key comes alone, so that no two keys are alike and the simulation is exact.
std::vector<Batch> single_keys(int count, uint64_t seed) {
  std::mt19937_64 draw(seed);
  std::vector<Batch> batches;
  for (int b = 0; b < count; ++b) batches.push_back(Batch(1 + draw() % 3, 1 + draw() % (1 + draw() % 40)));
  return batches;
}

TEST(KeyTable, OwnersAreThoseOfASimulation) {
  for (const KeyEviction eviction : {KeyEviction::None, KeyEviction::Oldest, KeyEviction::Rarest})
    for (const int64_t admission : {1, 2, 5})
      for (const int64_t places : {1, 7, 20}) {
        const KeyRule rule{admission, eviction};
        KeyTable table(places + KeyTable::kFirstRow, rule, true);
        Simulation expected(static_cast<size_t>(places), rule);
        for (const Batch& batch : single_keys(400, static_cast<uint64_t>(places))) {
          const auto before = owners_of(table);
          table.take(batch);
          expected.take(batch);
          const auto after = owners_of(table);
          ASSERT_EQ(after, expected.owners) << places << " places, admission " << admission;
          std::set<int32_t> begun;
          for (const auto& [key, known] : after)
            if (!before.contains(key)) begun.insert(table.row_of(key));
          EXPECT_EQ(begun, std::set<int32_t>(table.begun().begin(), table.begun().end()));
        }
        EXPECT_FALSE(expected.ties);
      }
}

TEST(KeyTable, MissingAndUnknownKeysHaveRowsOfTheirOwn) {
  KeyTable table(66, {2, KeyEviction::Oldest}, true);
  table.take(Batch{0, 9, 0});
  EXPECT_EQ(table.row_of(0), KeyTable::kMissingRow);
  EXPECT_EQ(table.row_of(9), KeyTable::kOtherRow);  // seen once
  table.take(Batch{9, 8, 8});
  EXPECT_GE(table.row_of(9), KeyTable::kFirstRow);
  EXPECT_GE(table.row_of(8), KeyTable::kFirstRow);  // twice in a batch
  EXPECT_NE(table.row_of(8), table.row_of(9));
  EXPECT_EQ(table.row_of(7), KeyTable::kOtherRow);
}

TEST(KeyTable, KeysOfABatchDoNotTakeRowsFromEachOther) {
  KeyTable table(4, {1, KeyEviction::Oldest}, true);
  table.take(Batch{1, 2});
  const int32_t one = table.row_of(1);
  table.take(Batch{3, 4, 5, 1});  // key 1 comes last, and is known
  EXPECT_EQ(table.row_of(1), one);
  EXPECT_GE(table.row_of(3), KeyTable::kFirstRow);  // took the row of 2
  EXPECT_EQ(table.row_of(2), KeyTable::kOtherRow);
  EXPECT_EQ(table.row_of(4), KeyTable::kOtherRow);
  EXPECT_EQ(table.begun().size(), 1U);
  table.take(Batch{3});
  EXPECT_TRUE(table.begun().empty());
}

TEST(KeyTable, ManyBucketsHoldNearlyAsManyKeysAsRows) {
  for (const int64_t rows : {1002, 100'000}) {
    KeyTable table(rows, {1, KeyEviction::None}, true);
    Batch keys;
    for (int64_t key = 1; key <= 7 * rows / 10; ++key) keys.push_back(static_cast<uint64_t>(key));
    table.take(keys);
    std::set<int32_t> used;
    for (const uint64_t key : keys)
      if (const int32_t row = table.row_of(key); row >= KeyTable::kFirstRow) {
        EXPECT_LT(row, rows);
        EXPECT_TRUE(used.insert(row).second) << "two keys have row " << row;
      }
    EXPECT_GT(used.size(), keys.size() * 99 / 100);
    EXPECT_EQ(used.size(), table.begun().size());
  }
}

TEST(KeyTable, TheLastBatchCanBeUndoneAndRedone) {
  for (const KeyEviction eviction : {KeyEviction::Oldest, KeyEviction::Rarest}) {
    const KeyRule rule{2, eviction};
    KeyTable table(52, rule, true), before(52, rule, true);
    const auto entries = [](KeyTable& of) {
      std::vector<KeyTable::Entry> all(of.owners().begin(), of.owners().end());
      all.insert(all.end(), of.waiting().begin(), of.waiting().end());
      const std::span<KeyCounts::Counter> counters = of.counts().counters();
      return std::tuple(all, std::vector<KeyCounts::Counter>(counters.begin(), counters.end()), of.batches());
    };
    for (const Batch& batch : batches_of(60, 50, 3)) {
      table.take(batch);
      const auto after = entries(table);
      table.swap_last();
      ASSERT_TRUE(entries(table) == entries(before));
      table.swap_last();
      ASSERT_TRUE(entries(table) == after);
      before.take(batch);
    }
  }
}

TEST(KeyTable, GoesOnFromACheckpointAsIfNothingHadBeen) {
  const KeyRule rule{2, KeyEviction::Rarest};
  KeyTable whole(152, rule, true);
  KeyTable first(152, rule, true);
  const std::vector<Batch> batches = batches_of(80, 100, 5);
  for (const Batch& batch : batches) whole.take(batch);
  for (size_t b = 0; b < 40; ++b) first.take(batches[b]);
  first.take(Batch{0, 0});  // changes nothing
  KeyTable second(152, rule, true);
  std::copy(first.owners().begin(), first.owners().end(), second.owners().begin());
  std::copy(first.waiting().begin(), first.waiting().end(), second.waiting().begin());
  std::copy(first.counts().counters().begin(), first.counts().counters().end(),
            second.counts().counters().begin());
  second.loaded(first.batches());
  for (size_t b = 40; b < 80; ++b) second.take(batches[b]);
  EXPECT_TRUE(std::equal(whole.owners().begin(), whole.owners().end(), second.owners().begin()));
  EXPECT_TRUE(std::equal(whole.waiting().begin(), whole.waiting().end(), second.waiting().begin()));
  // For predictions there are owners alone.
  KeyTable fixed(152, rule, false);
  EXPECT_TRUE(fixed.waiting().empty());
  std::copy(whole.owners().begin(), whole.owners().end(), fixed.owners().begin());
  fixed.loaded(0);
  for (uint64_t key = 0; key < 200; ++key) EXPECT_EQ(fixed.row_of(key), whole.row_of(key));
  EXPECT_EQ(whole.bytes(), KeyTable::bytes(152, rule, true));
  EXPECT_EQ(fixed.bytes(), KeyTable::bytes(152, rule, false));
}

// With an eviction rule None batches without a known key leave no trace in the entries.
TEST(KeyTable, CountsBatchesThatChangeNoEntry) {
  const KeyRule rule{1, KeyEviction::None};
  KeyTable table(4, rule, true), other(4, rule, true);
  table.take(Batch{1, 2});
  for (int batch = 0; batch < 5; ++batch) table.take(Batch{3, 4});
  EXPECT_EQ(table.batches(), 6U);
  std::copy(table.owners().begin(), table.owners().end(), other.owners().begin());
  other.loaded(0);
  EXPECT_EQ(other.batches(), 1U);
  other.loaded(table.batches());
  for (KeyTable* of : {&table, &other}) of->take(Batch{2});
  EXPECT_TRUE(std::equal(table.owners().begin(), table.owners().end(), other.owners().begin()));
}

// Keys that come once outnumber the rows, and the keys that are counted one by one.
TEST(KeyTable, CountsOutlastTheKeysThatWait) {
  for (const int64_t rows : {4, 66, 300}) {
    KeyTable table(rows, {3, KeyEviction::None}, true);
    uint64_t once = 1000;
    for (int time = 0; time < 3; ++time)
      for (uint64_t key = 1; key <= 2; ++key) {
        EXPECT_EQ(table.row_of(key), KeyTable::kOtherRow);
        table.take(Batch{key});
        for (int i = 0; i < 2000; ++i) table.take(Batch{once++, once++});
      }
    for (uint64_t key = 1; key <= 2; ++key) EXPECT_GE(table.row_of(key), KeyTable::kFirstRow);
    EXPECT_EQ(owners_of(table).size(), 2U) << rows << " rows";
  }
}

TEST(KeyTable, NeedsARowForAKey) {
  EXPECT_THROW(KeyTable(2, {1, KeyEviction::Oldest}, true), Error);
  EXPECT_THROW(KeyTable(3, {0, KeyEviction::Oldest}, true), Error);
}

// The message about entries that `change` has changed, of a table after some batches; empty if none is wrong.
std::string problem_after(const std::function<void(KeyTable& table)>& change, uint64_t batches = 30) {
  KeyTable table(200, {.admission = 2, .eviction = KeyEviction::Rarest}, true);
  for (const Batch& batch : batches_of(30, 100, 7)) table.take(batch);
  change(table);
  try {
    table.check_entries("keys/t", "waiting_keys/t", batches);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    return error.what();
  }
  return "";
}

KeyTable::Entry& first_of(std::span<KeyTable::Entry> entries) {
  return *std::find_if(entries.begin(), entries.end(), [](const auto& entry) { return entry.count > 0; });
}

// Whatever admission and eviction are, and however full the table is.
TEST(KeyTable, WhatBatchesMakeIsAccepted) {
  for (const int64_t rows : {5, 60, 67, 300, 5000})
    for (const KeyRule& rule :
         {KeyRule{1, KeyEviction::Oldest}, KeyRule{3, KeyEviction::Rarest}, KeyRule{2, KeyEviction::None}}) {
      KeyTable table(rows, rule, true);
      uint64_t batches = 0;
      for (const Batch& batch : batches_of(60, 80, static_cast<uint64_t>(rows))) {
        table.take(batch);
        EXPECT_NO_THROW(table.check_entries("k", "w", ++batches));
      }
    }
}

TEST(KeyTable, EntriesThatNoBatchMakesAreRefused) {
  EXPECT_EQ(problem_after([](KeyTable&) {}), "");
  const auto expect = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect(problem_after([](KeyTable&) {}, 29), "batch 30 as its last, of 29: no run writes that");
  expect(problem_after([](KeyTable& table) { first_of(table.owners()).batch = 1U << 31; }),
         "tensor keys/t: entry");
  expect(problem_after([](KeyTable& table) { first_of(table.owners()).count = 0; }), "with a count of 0");
  expect(problem_after([](KeyTable& table) { first_of(table.owners()).key = 0; }), "has no key, but a count");
  expect(problem_after([](KeyTable& table) { first_of(table.waiting()).batch = 0; }),
         "tensor waiting_keys/t: entry");
  // Another key in a place; two places of one key; a free place before a key.
  expect(problem_after([](KeyTable& table) { first_of(table.owners()).key += uint64_t{1} << 60; }),
         "belongs to entr");
  const std::string twice = problem_after([](KeyTable& table) {
    KeyTable::Entry& one = first_of(table.owners());
    for (KeyTable::Entry& other : table.owners())
      if (other.count == 0) other = one;
  });
  EXPECT_NE(twice, "");
  const std::string hole = problem_after([](KeyTable& table) {
    for (size_t i = 0; i < table.owners().size(); i += 2) table.owners()[i] = {};
  });
  expect(hole, "a free one");
  const std::string both = problem_after([](KeyTable& table) {
    for (const KeyTable::Entry& owner : table.owners())
      for (KeyTable::Entry& entry : table.waiting())
        if (owner.key != 0 && entry.key == owner.key) entry.count = 5;
  });
  expect(both, "which has a row");
}

}  // namespace
}  // namespace trifold
