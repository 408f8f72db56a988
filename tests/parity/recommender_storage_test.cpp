// Tables in files (--table-storage): the bits of tables in memory, for every rule, placement and number of ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <set>

#include "parity/recommender_bench.h"

namespace trifold::test {
namespace {

constexpr int kStoredSteps = 40;
constexpr int kScored = 1000;         // the first batch that is scored
constexpr int64_t kStoredBatch = 13;  // no number of ranks divides it

// The first two tables are much larger than two batches, so that rows come and go; the others are in memory.
ClickSchema stored_schema(bool weighted) {
  ClickSchema schema;
  schema.dense = 3;
  schema.weighted = weighted;
  schema.tables = {{"users", 7000, 1}, {"items", 9000, 3}, {"tiny", 5, 1}, {"pages", 60, 2}};
  return schema;
}

// Low rows are frequent.
Clicks stored_batch(const ClickSchema& schema, int step) {
  Clicks clicks;
  const PhiloxKey key = philox_key(static_cast<uint64_t>(step), "storage");
  uint64_t at = 0;
  const auto word = [&](int64_t below) {
    return static_cast<int64_t>(philox_word(key, at++) % static_cast<uint64_t>(below));
  };
  for (int64_t s = 0; s < kStoredBatch; ++s) {
    clicks.labels.push_back(word(3) == 0 ? 1.0F : 0.0F);
    clicks.dense.emplace_back();
    for (int d = 0; d < schema.dense; ++d) clicks.dense.back().push_back(static_cast<float>(word(100)) / 50);
    clicks.ids.emplace_back();
    if (schema.weighted) clicks.weights.emplace_back();
    for (const ClickTable& table : schema.tables) {
      clicks.ids.back().emplace_back();
      if (schema.weighted) clicks.weights.back().emplace_back();
      for (int64_t n = word(table.max_ids + 1); n > 0; --n) {
        const int64_t rows = table.rows;
        int64_t row = word(rows);
        for (int factor = 0; factor < 4; ++factor) row = row * word(rows) / rows;
        clicks.ids.back().back().push_back(static_cast<int32_t>(row));
        if (schema.weighted) clicks.weights.back().back().push_back(0.5F + static_cast<float>(word(8)) / 8);
      }
    }
  }
  return clicks;
}

RecommenderSetup stored_setup(SparseKind kind, PlacementKind where, int ranks, bool weighted) {
  RecommenderSetup setup;
  setup.schema = stored_schema(weighted);
  setup.model = {.dense = 3, .tables = 4, .width = 6, .bottom = {9, 6}, .top = {11, 1}};
  setup.global_batch = kStoredBatch;
  setup.dense_optimizer.optimizer = OptimizerKind::Adagrad;
  setup.dense_optimizer.adagrad_eps = 1e-3;
  setup.sparse.kind = kind;
  setup.sparse.eps = 1e-3;
  setup.sparse.weight_decay = kind == SparseKind::Ftrl ? 0 : 0.2;
  setup.sparse.alpha = 0.2;
  setup.sparse.l1 = 0.01;
  setup.sparse.l2 = 0.1;
  setup.mean = weighted;
  setup.seed = 7;
  setup.threads = 1;
  for (int t = 0; t < 4; ++t)
    setup.placement.push_back(
        {where, where == PlacementKind::Table ? t % ranks : 0, where == PlacementKind::Table ? 1 : ranks});
  return setup;
}

RecommenderSetup in_files(RecommenderSetup setup) {
  setup.storage = {std::filesystem::temp_directory_path().string(), 0};  // only what two batches need
  return setup;
}

// Step `step` is followed by an evaluation.
bool scores_after(int step) { return step % 8 == 7 || step + 1 == kStoredSteps; }

// The number of different rows in the tables that are in files.
int64_t rows_of_all_batches(const ClickSchema& schema) {
  std::set<std::pair<size_t, int32_t>> rows;
  const auto add = [&](int batch) {
    for (const auto& sample : stored_batch(schema, batch).ids)
      for (size_t t = 0; t < 2; ++t)
        for (const int32_t id : sample[t]) rows.emplace(t, id);
  };
  for (int step = 0; step < kStoredSteps; ++step) {
    add(step);
    if (scores_after(step)) add(kScored + step);
  }
  return static_cast<int64_t>(rows.size());
}

struct Stored {
  std::vector<double> losses;
  Values values;
  RowCache::Counts rows;  // of all ranks
  size_t files = 0;
  int64_t distinct = 0;  // rows_of_all_batches
};

// With checks of copies and other batches scored between steps.
Stored train_stored(int ranks, const RecommenderSetup& setup, const Values& begin = {}) {
  Stored result;
  result.distinct = rows_of_all_batches(setup.schema);
  std::mutex mutex;
  run_ranks(ranks, [&](Communicator& world) {
    Recommender model(world, setup);
    const auto fetch = [&](int step) {
      model.fetch([&, step](ClickBatchBuffer& out) {
        stored_batch(setup.schema, step).read(world.rank() * model.samples(), model.samples(), out);
      });
    };
    if (!begin.empty()) assign(model, begin);
    bool is_fetched = false;
    for (int step = 0; step < kStoredSteps; ++step) {
      if (!is_fetched) fetch(step);
      is_fetched = !scores_after(step);
      const double loss = model.train(kStoredBatch, step + 1, 0.1, 0.1, [&] {
        if (is_fetched) fetch(step + 1);
      });
      if (world.rank() == 0) result.losses.push_back(loss);
      if (step % 16 == 2) model.check_replicas(fmt::format("step {}", step + 1));
      if (is_fetched) continue;
      fetch(kScored + step);
      const Tensor logits = model.score().logits;
      if (world.rank() == 0) result.losses.push_back(static_cast<double>(logits.as<float>()[0]));
    }
    const std::lock_guard lock(mutex);
    collect(model, result.values);
    result.rows.wanted += model.cached_rows().wanted;
    result.rows.found += model.cached_rows().found;
    result.files += model.memory().files;
  });
  return result;
}

void expect_same(const Stored& plain, const Stored& files, bool counts_rows = true) {
  EXPECT_EQ(plain.losses, files.losses);
  ASSERT_EQ(plain.values.size(), files.values.size());
  for (const auto& [name, values] : plain.values) {
    const std::vector<double>& stored = files.values.at(name);
    ASSERT_EQ(values.size(), stored.size()) << name;
    EXPECT_EQ(0, std::memcmp(values.data(), stored.data(), values.size() * sizeof(double))) << name;
  }
  EXPECT_EQ(plain.files, 0U);
  EXPECT_GT(files.files, 0U);
  EXPECT_GT(files.rows.found, 0);
  if (counts_rows) {
    EXPECT_GT(files.rows.wanted - files.rows.found, files.distinct) << "no row was dropped and read again";
  }
}

class TableStorageBits
    : public testing::TestWithParam<std::tuple<SparseKind, PlacementKind, int, bool, bool>> {};

TEST_P(TableStorageBits, AreThoseOfMemory) {
  const auto [kind, where, ranks, weighted, overlap] = GetParam();
  RecommenderSetup setup = stored_setup(kind, where, ranks, weighted);
  setup.overlap = overlap;
  expect_same(train_stored(ranks, setup), train_stored(ranks, in_files(setup)));
}

using enum SparseKind;
INSTANTIATE_TEST_SUITE_P(Rules, TableStorageBits,
                         testing::Combine(testing::Values(Sgd, Adagrad, RowwiseAdagrad, Adam, Ftrl),
                                          testing::Values(PlacementKind::Column), testing::Values(1, 2),
                                          testing::Bool(), testing::Values(true)));
INSTANTIATE_TEST_SUITE_P(TwoNumbersOfState, TableStorageBits,
                         testing::Combine(testing::Values(Adam, Ftrl), testing::Values(PlacementKind::Row),
                                          testing::Values(1, 2, 4), testing::Values(false),
                                          testing::Values(true)));
INSTANTIATE_TEST_SUITE_P(Placements, TableStorageBits,
                         testing::Combine(testing::Values(RowwiseAdagrad),
                                          testing::Values(PlacementKind::Row, PlacementKind::Table,
                                                          PlacementKind::Column),
                                          testing::Values(2, 3), testing::Values(false), testing::Bool()));

// Rank 1 has room for its columns of a table as a whole, rank 0 not, because it holds another table, too. The squares
// of rows' gradients, which both add up, are of the same rows nevertheless.
TEST(TableStorage, ColumnsMayBeInAFileOnSomeRanksOnly) {
  RecommenderSetup setup = stored_setup(RowwiseAdagrad, PlacementKind::Column, 2, false);
  for (const size_t t : {size_t{0}, size_t{2}, size_t{3}}) setup.placement[t] = {PlacementKind::Table, 0, 1};
  RecommenderSetup stored = in_files(setup);
  stored.storage.cache = 160'000;
  const std::vector<RecommenderMemory> planned = memory_of_ranks(stored, placement_of(stored, 2), false);
  ASSERT_GT(planned[0].files, size_t{9000 * 16 + 7000 * 28});
  ASSERT_EQ(planned[1].files, 0U);
  expect_same(train_stored(2, setup), train_stored(2, stored), false);
}

// Groups of tables share a cache: of one bag of a sample, of a table that two columns share, and of a bag that
// attention pools, whose table has as many bags as the longest has ids.
RecommenderSetup several_groups(int ranks, bool attends) {
  RecommenderSetup setup = stored_setup(RowwiseAdagrad, PlacementKind::Row, ranks, false);
  setup.schema.tables = {{"users", 7000, 1}, {"items", 9000, 1}, {"seen", 9000, 3}, {"pages", 60, 2}};
  setup.schema.tables[2].shares = "items";
  setup.model.interaction = InteractionKind::Cat;
  if (attends) {
    setup.model.attended = {{2, 1, "seen"}};
    setup.model.attention = {5, 1};
  }
  setup.place_vectors();
  setup.placement.resize(3);
  setup.placement[1].kind = PlacementKind::Column;
  return setup;
}

TEST(TableStorage, TablesOfSeveralBagsHaveTheirBits) {
  for (const int ranks : {1, 2})
    for (const bool attends : {false, true}) {
      SCOPED_TRACE(fmt::format("{} ranks, attention {}", ranks, attends));
      const RecommenderSetup setup = several_groups(ranks, attends);
      expect_same(train_stored(ranks, setup), train_stored(ranks, in_files(setup)), false);
    }
}

TEST(TableStorage, GroupsTakeWhatIsPlanned) {
  for (const size_t cache : {size_t{0}, size_t{200'000}, size_t{100'000'000}}) {
    RecommenderSetup setup = several_groups(2, true);
    setup.storage = {std::filesystem::temp_directory_path().string(), cache};
    const std::vector<RecommenderMemory> planned = memory_of_ranks(setup, placement_of(setup, 2), false);
    run_ranks(2, [&](Communicator& world) {
      const Recommender model(world, setup);
      EXPECT_EQ(model.memory(), planned[static_cast<size_t>(world.rank())]) << cache;
      EXPECT_EQ(model.memory().files == 0, cache > 1'000'000);
    });
    EXPECT_TRUE(cache == 0 || planned[0].tables + planned[0].table_state <= cache) << cache;
  }
}

// What one run leaves, in memory or in files, the other continues.
TEST(TableStorage, LoadsAndSavesWholeTables) {
  const RecommenderSetup setup = stored_setup(RowwiseAdagrad, PlacementKind::Row, 2, false);
  const Stored first = train_stored(2, in_files(setup));
  Values tables;
  for (const auto& [name, values] : first.values)
    if (name.find("embedding") != std::string::npos) tables[name] = values;
  const Stored plain = train_stored(2, setup, tables);
  const Stored files = train_stored(2, in_files(setup), tables);
  expect_same(plain, files);
  EXPECT_NE(plain.losses, first.losses);
}

// The tables have more rows than what is loaded, as after a day with new ids: the others begin as in a new run.
TEST(TableStorage, RowsThatAreNotLoadedKeepTheirFirstValues) {
  RecommenderSetup setup = stored_setup(Ftrl, PlacementKind::Row, 2, false);
  setup.init_range = 0.3;
  const auto start = [&](const RecommenderSetup& of) {
    Values values;
    std::mutex mutex;
    run_ranks(2, [&](Communicator& world) {
      Recommender model(world, of);
      model.settle();
      const InMemory copies(model.checkpoint_tensors(true));
      for (const NamedTensor& box : copies.tensors()) {
        if (box.spec.name.find("embedding.users") == std::string::npos) continue;
        // The first 4000 of 7000 rows, of which the second rank has 500.
        const int64_t columns = box.spec.local.extent[1];
        const int64_t known =
            std::clamp<int64_t>(4000 - box.spec.local.offset[0], 0, box.spec.local.extent[0]);
        if (box.stored == nullptr) {
          std::fill_n(box.data.as<float>(), known * columns, 0.25F);
          continue;
        }
        const std::vector<float> loaded(static_cast<size_t>(known * columns), 0.25F);
        box.stored->write(0, known, reinterpret_cast<const std::byte*>(loaded.data()));
      }
      model.loaded();
      const std::lock_guard lock(mutex);
      collect(model, values);
    });
    return values;
  };
  const Values plain = start(setup);
  const Values files = start(in_files(setup));
  EXPECT_EQ(plain, files);
  const std::vector<double>& users = files.at("param/embedding.users.weight");
  EXPECT_EQ(std::count(users.begin(), users.end(), 0.25), 4000 * 6);
  EXPECT_EQ(std::count(users.begin(), users.end(), 0.0), 0);
  EXPECT_EQ(files.at("ftrl_n/embedding.users.weight")[3999 * 6], 0.25);
  EXPECT_EQ(files.at("ftrl_n/embedding.users.weight")[4000 * 6], 0);
}

// A cache that holds everything has no files; less takes what was planned.
TEST(TableStorage, TakesWhatIsPlanned) {
  RecommenderSetup setup = stored_setup(Adam, PlacementKind::Column, 2, false);
  for (const size_t cache : {size_t{0}, size_t{400'000}, size_t{100'000'000}}) {
    setup.storage = {std::filesystem::temp_directory_path().string(), cache};
    const Placement placement(embedding_tables(setup.schema, 6), setup.placement, 2, 1);
    const std::vector<RecommenderMemory> planned = memory_of_ranks(setup, placement, false);
    run_ranks(2, [&](Communicator& world) {
      const Recommender model(world, setup);
      EXPECT_EQ(model.memory(), planned[static_cast<size_t>(world.rank())]) << cache;
      EXPECT_EQ(model.memory().files == 0, cache > 1'000'000);
    });
    const size_t tables = planned[0].tables + planned[0].table_state;
    EXPECT_TRUE(cache == 0 || tables <= cache) << tables;
  }
}

TEST(TableStorage, SaysWhatIsWrongWithTheFolder) {
  RecommenderSetup setup = stored_setup(Sgd, PlacementKind::Row, 1, false);
  setup.storage = {"/nowhere/at/all", 0};
  std::string message;
  try {
    train_stored(1, setup);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    message = error.what();
  }
  EXPECT_NE(message.find("--table-storage /nowhere/at/all: no file can be created"), std::string::npos)
      << message;
}

}  // namespace
}  // namespace trifold::test
