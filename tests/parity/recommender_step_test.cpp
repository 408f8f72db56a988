// A step of the recommender: communication overlaps with computation; numbers that are not finite are named.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include "parity/recommender_bench.h"

namespace trifold::test::step_test {
namespace {

using namespace std::chrono_literals;

constexpr int64_t kBatch = 64;

RecommenderSetup small_setup(int ranks) {
  RecommenderSetup setup;
  setup.schema.dense = 3;
  setup.schema.tables = {{"users", 40, 1}, {"items", 30, 2}, {"hours", 24, 1}};
  setup.model = {.dense = 3, .tables = 3, .width = 4, .bottom = {8, 4}, .top = {8, 1}};
  for (int t = 0; t < 3; ++t) setup.placement.push_back({PlacementKind::Table, t % ranks, 1});
  setup.global_batch = kBatch;
  setup.dense_optimizer.optimizer = OptimizerKind::Sgd;
  setup.dense_optimizer.sgd_momentum = 0;
  setup.dense_optimizer.weight_decay = 0;
  setup.seed = 5;
  setup.threads = 1;
  return setup;
}

Clicks make_clicks() {
  Clicks clicks;
  for (int s = 0; s < kBatch; ++s) {
    clicks.labels.push_back(s % 3 == 0 ? 1.0F : 0.0F);
    clicks.dense.push_back({0.1F * static_cast<float>(s % 7), 1, 0.5F});
    clicks.ids.push_back({{s % 40}, {s % 30, s % 11}, {s % 24}});
  }
  return clicks;
}

// Holds what travels until what is computed beside it has ended: a step in which the one waits for the other
// never gets there.
class Gate {
 public:
  void mark(StepPart part, bool begins) {
    if (!begins) {
      const std::lock_guard lock(mutex_);
      ended_.insert(part);
      changed_.notify_all();
      return;
    }
    if (part == StepPart::Vectors) wait_for(StepPart::Bottom);
    if (part == StepPart::Gradients) wait_for(StepPart::WeightGradients);
  }
  int missed() const { return missed_; }

 private:
  void wait_for(StepPart part) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, 5s, [&] { return ended_.count(part) > 0; })) ++missed_;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<StepPart> ended_;
  std::atomic<int> missed_{0};
};

TEST(RecommenderOverlap, ExchangesOverlapWithComputation) {
  const Clicks clicks = make_clicks();
  run_ranks(2, [&](Communicator& world) {
    RecommenderSetup setup = small_setup(2);
    Gate gate;
    setup.marks = [&gate](StepPart part, bool begins) { gate.mark(part, begins); };
    Recommender model(world, setup);
    model.fetch(
        [&](ClickBatchBuffer& out) { clicks.read(world.rank() * model.samples(), model.samples(), out); });
    model.train(kBatch, 1, 0.1, 0.1, {});
    EXPECT_EQ(gate.missed(), 0);
  });
}

// With a core to spare the next batch is read, sent and sorted while this step computes.
TEST(RecommenderOverlap, TheNextBatchIsFetchedBehindTheStep) {
  if (available_cores() < 2) GTEST_SKIP() << "one core: batches are fetched between steps";
  const Clicks clicks = make_clicks();
  run_ranks(1, [&](Communicator& world) {
    RecommenderSetup setup = small_setup(1);
    std::atomic<bool> step_ended{false}, behind{false};
    setup.marks = [&](StepPart part, bool begins) {
      if (part == StepPart::Top && !begins) step_ended = true;
    };
    Recommender model(world, setup);
    const auto read = [&](ClickBatchBuffer& out) { clicks.read(0, model.samples(), out); };
    model.fetch(read);
    model.train(kBatch, 1, 0.1, 0.1, [&] {
      model.fetch([&](ClickBatchBuffer& out) {
        for (int i = 0; i < 500 && !step_ended; ++i) std::this_thread::sleep_for(10ms);
        behind = step_ended.load();
        read(out);
      });
    });
    model.train(kBatch, 2, 0.1, 0.1, {});  // waits for the batch
    EXPECT_TRUE(behind) << "the step waited for the batch after it";
  });
}

std::vector<double> losses_of(const RecommenderSetup& setup, int ranks) {
  const Clicks clicks = make_clicks();
  std::vector<double> losses;
  run_ranks(ranks, [&](Communicator& world) {
    Recommender model(world, setup);
    for (int step = 1; step <= 4; ++step) {
      model.fetch(
          [&](ClickBatchBuffer& out) { clicks.read(world.rank() * model.samples(), model.samples(), out); });
      const double loss = model.train(kBatch, step, 0.1, 0.1, {});
      if (world.rank() == 0) losses.push_back(loss);
    }
  });
  return losses;
}

TEST(RecommenderOverlap, StepsThatAreComputedTwiceKeepTheBits) {
  for (const int stage : {0, 1, 2})
    for (const bool bf16 : {false, true}) {
      SCOPED_TRACE(fmt::format("stage {}, bf16 {}", stage, bf16));
      RecommenderSetup setup = small_setup(2);
      setup.zero_stage = stage;
      setup.bf16 = bf16;
      setup.mean = bf16;
      setup.clip_grad = stage == 1 ? 0.1 : 0;
      const std::vector<double> plain = losses_of(setup, 2);
      setup.check_overlap = 3;
      EXPECT_EQ(losses_of(setup, 2), plain);
    }
}

// Something writes to a weight while the step is computed, but not while it is computed alone.
TEST(RecommenderOverlap, ARaceIsFound) {
  const Clicks clicks = make_clicks();
  std::string text;
  try {
    run_ranks(2, [&](Communicator& world) {
      RecommenderSetup setup = small_setup(2);
      setup.check_overlap = 1;
      Recommender* other = nullptr;
      bool raced = false;
      setup.marks = [&](StepPart part, bool begins) {
        if (part != StepPart::Top || raced || world.rank() != 1) return;
        other->weight("top.1.bias").as<float>()[0] += begins ? 1.0F : -1.0F;
        raced = !begins;
      };
      Recommender model(world, setup);
      other = &model;
      model.fetch(
          [&](ClickBatchBuffer& out) { clicks.read(world.rank() * model.samples(), model.samples(), out); });
      model.train(kBatch, 5, 0.1, 0.1, {});
    });
  } catch (const Error& error) {
    text = error.what();
  }
  EXPECT_NE(text.find("step 5, computed once with overlap and once without: "), std::string::npos) << text;
  EXPECT_NE(text.find("ranks or streams raced"), std::string::npos) << text;
}

// One number goes wrong on one rank; every rank says the same of it.
std::string error_of(const std::function<void(Recommender&)>& spoil, float dense) {
  std::string text;
  std::mutex mutex;
  Clicks clicks = make_clicks();
  clicks.dense[40][1] = dense;  // a sample of rank 1
  run_ranks(2, [&](Communicator& world) {
    Recommender model(world, small_setup(2));
    spoil(model);
    model.fetch(
        [&](ClickBatchBuffer& out) { clicks.read(world.rank() * model.samples(), model.samples(), out); });
    const double before = element(model.weight("top.0.weight"), 0);
    try {
      model.train(kBatch, 7, 0.1, 0.1, {});
      ADD_FAILURE() << "rank " << world.rank() << " has not noticed";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Agreed);
      const std::lock_guard lock(mutex);
      if (text.empty()) text = error.what();
      EXPECT_EQ(text, error.what());
    }
    EXPECT_EQ(element(model.weight("top.0.weight"), 0), before);
  });
  return text;
}

void expect_has(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(RecommenderFinite, NamesTheSample) {
  const std::string text = error_of([](Recommender&) {}, NAN);
  expect_has(text, "step 7: the loss is nan");
  expect_has(text, "the first number that is not finite appears in sample 40 of the epoch on rank 1 (");
  expect_has(text, " of the dense numbers, ");
}

TEST(RecommenderFinite, NamesTheTable) {
  const std::string text = error_of(
      [](Recommender& model) {
        Values values;
        values["param/embedding.items.weight"].assign(30 * 4, 0.1);
        values["param/embedding.items.weight"][5 * 4 + 2] = INFINITY;
        assign(model, values);
      },
      0);
  expect_has(text, "appears in sample 5 of the epoch on rank 0 (");
  expect_has(text, " of the vectors of table items, ");
}

TEST(RecommenderFinite, NamesTheWeight) {
  const std::string text =
      error_of([](Recommender& model) { model.weight("top.0.weight").as<float>()[3] = NAN; }, 0);
  expect_has(text, "appears on rank 0 (");
  expect_has(text, "element 3 of the weight top.0.weight, ");
}

}  // namespace
}  // namespace trifold::test::step_test
