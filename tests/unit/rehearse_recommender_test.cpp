// A rank of a recommender that runs alone, compared with the same rank among seven others.
#include "rehearse/rehearse_recommender.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <mutex>
#include <numeric>

#include "recommend/recommender_setup.h"
#include "recommend/run_options.h"
#include "rehearse/lone_recommender.h"
#include "run/saver.h"
#include "support/files.h"
#include "support/logged_ops.h"
#include "support/ranks.h"
#include "support/refusal.h"

namespace trifold::test {
namespace {

constexpr int kRehearsedRanks = 8;
constexpr int kRehearsedSteps = 4;

RecommendConfig clicks_on(int ranks, const std::string& placement) {
  RecommendConfig config;
  config.data.train_data = config.data.data_format = "synthetic";
  config.data.synthetic_samples = 100'000;
  config.data.dense_features = 5;
  config.data.table_rows = TableRows{NumberList{3000, 57, 3, 410, 24}};
  config.data.table_max_ids = NumberList{1, 4, 1, 2, 1};
  config.model.embedding_dim = 8;
  config.model.bottom_mlp = {16, 8};
  config.model.top_mlp = {16, 1};
  config.training.global_batch_size = 60;  // the last of 8 ranks has padding
  config.training.train_iters = 1000;
  config.training.embedding_optimizer = TableOptimizer::Adagrad;
  config.lr.lr = 0.01;
  config.placement.placement = TablePlacements::parse(placement);
  config.mesh.ranks = ranks;
  config.mesh.threads_per_rank = 1;
  return resolve(config);
}

// What a rank does: actions, blocks and the tensors that layers show, in order.
class StepText final : public StepWatch {
 public:
  std::vector<std::string> lines;

  void before(const Action& action) override { lines.push_back(to_string(action)); }
  void begin(const Action&, int block, const Batch&, const ParamSource&, Stream&) override {
    lines.push_back(fmt::format("block {}", block));
  }
  void see(std::string_view layer, std::string_view what, Tensor tensor, Stream&) override {
    lines.push_back(fmt::format("{} {} {}", layer, what, to_string(tensor.shape)));
  }
};

// The collectives of each communicator in order, with the bytes sent.
using CallTexts = std::map<int32_t, std::vector<std::string>>;
CallTexts calls_of(const FlightRecorder& recorder) {
  CallTexts calls;
  for (const FlightEvent& event : recorder.log().events)
    if (event.kind == FlightEvent::Kind::Collective)
      calls[event.group].push_back(fmt::format("{} {}", event.name(), event.bytes));
  return calls;
}

struct ObservedRank {
  RecommenderMemory memory;
  std::vector<std::string> steps, operations;
  CallTexts calls;
};

// Trains some steps with `advance`.
template <class Advance>
ObservedRank observe(Recommender& model, const FlightRecorder& recorder, Advance advance) {
  StepText text;
  const OpsLog operations;
  model.watch(&text);
  for (int step = 0; step < kRehearsedSteps; ++step) advance();
  model.synchronize();
  model.watch(nullptr);
  return {model.memory(), text.lines, operations.list(), calls_of(recorder)};
}

std::vector<ObservedRank> real_ranks(const RecommendJob& job) {
  std::vector<ObservedRank> ranks(static_cast<size_t>(job.config.mesh.ranks));
  run_ranks(job.config.mesh.ranks, [&](Communicator& world) {
    const auto recorder = std::make_shared<FlightRecorder>(world.rank(), world.size());
    world.record_in(recorder);
    const std::atomic<int> signal{0};
    const std::unique_ptr<RecommendTraining> run = recommend_run(world, job, nullptr, &logged_ops());
    ranks[static_cast<size_t>(world.rank())] =
        observe(run->model(), *recorder, [&] { run->advance(signal); });
  });
  return ranks;
}

// The indices of communicators whose calls differ in bytes: those of ids, which ask for other rows.
std::vector<int32_t> differing(const CallTexts& a, const CallTexts& b) {
  std::vector<int32_t> groups;
  for (const auto& [group, calls] : a)
    if (!b.contains(group) || b.at(group) != calls) groups.push_back(group);
  return groups;
}

std::vector<std::string> names_only(const std::vector<std::string>& calls) {
  std::vector<std::string> names;
  for (const std::string& call : calls) names.push_back(call.substr(0, call.find(' ')));
  return names;
}

class RehearsedRecommender : public testing::TestWithParam<const char*> {};

TEST_P(RehearsedRecommender, HoldsAndDoesWhatARealRankDoes) {
  RecommendConfig config = clicks_on(kRehearsedRanks, GetParam());
  config.training.clip_grad = 1;
  config.zero.zero_stage = std::string_view(GetParam()) == "row" ? 2 : 0;
  const RecommendJob job = prepare(config);
  const std::vector<ObservedRank> real = real_ranks(job);
  for (const int rank : {0, 3, 7}) {
    SCOPED_TRACE(rank);
    const ObservedRank& expected = real[static_cast<size_t>(rank)];
    LoneRecommender lone(job, rank, {}, false, &logged_ops());
    const ObservedRank alone = observe(lone.model(), lone.recorder(), [&] { lone.advance(); });
    EXPECT_EQ(alone.memory, expected.memory);
    EXPECT_EQ(alone.steps, expected.steps);
    EXPECT_EQ(alone.operations, expected.operations);
    EXPECT_GT(expected.operations.size(), 100U);
    const CallTexts& calls = alone.calls;
    EXPECT_EQ(calls.size(), expected.calls.size());
    for (const auto& [group, texts] : expected.calls) {
      ASSERT_TRUE(calls.contains(group));
      EXPECT_EQ(names_only(calls.at(group)), names_only(texts)) << group;
    }
    // Ids are sent over one communicator, the first of the group of tables.
    EXPECT_LE(differing(calls, expected.calls).size(), 1U);
  }
}

INSTANTIATE_TEST_SUITE_P(Placements, RehearsedRecommender, testing::Values("row", "column", "table", "auto"),
                         [](const auto& info) { return std::string(info.param); });

TEST(RehearseRecommender, MeasuresARank) {
  const RecommendJob job = prepare(clicks_on(kRehearsedRanks, "row"));
  RehearseOptions options;
  options.machine.emplace();
  const RehearsedRank rank = rehearse_rank(job, 5, options);
  EXPECT_EQ(rank.failure, "");
  EXPECT_EQ(rank.rank, 5);
  EXPECT_EQ(rank.steps, 3);
  EXPECT_GT(rank.step_seconds, 0);
  ASSERT_FALSE(rank.parts.empty());
  for (const MemoryPart& part : rank.parts) EXPECT_EQ(part.held, part.planned) << part.name;
  const auto has = [&](ActionKind kind) {
    return std::any_of(rank.actions.begin(), rank.actions.end(), [&](const MeasuredAction& action) {
      return action.kind == kind && action.count == 1 && action.median_seconds > 0;
    });
  };
  for (const ActionKind kind :
       {ActionKind::Lookup, ActionKind::Collect, ActionKind::F, ActionKind::UpdateRows})
    EXPECT_TRUE(has(kind)) << static_cast<int>(kind);
  const auto calls = [&](const std::string& group) {
    const auto found = std::find_if(rank.calls.begin(), rank.calls.end(),
                                    [&](const MeasuredCall& call) { return call.group == group; });
    return found == rank.calls.end() ? MeasuredCall{} : *found;
  };
  EXPECT_EQ(calls("ids").count, 2);      // sizes, then ids
  EXPECT_EQ(calls("vectors").count, 2);  // vectors, then gradients
  EXPECT_GT(calls("vectors").planned_seconds, 0);
}

// What peers ask for follows the law: with a large exponent nearly all ids are one row.
TEST(RehearseRecommender, PeersAskForPopularRows) {
  const RecommendConfig config = clicks_on(kRehearsedRanks, "row");
  const RecommendJob job = prepare(config);
  const RecommenderSetup setup = recommender_setup(config, job.data.schema(), kRehearsedRanks);
  const ClickFeed feed = training_feed(config, *job.data.train);
  const auto words = [&](double zipf) {
    std::vector<int64_t> all;
    for (int rank = 0; rank < kRehearsedRanks; ++rank) {
      const AbsentClicks peers(setup, rank, kRehearsedRanks, feed, {.zipf = zipf});
      std::vector<int64_t> counts(kRehearsedRanks);
      const std::vector<int64_t> ones(kRehearsedRanks, 1);
      EXPECT_TRUE(peers.rows(ids_group(0), {counts.data(), DType::I64, {kRehearsedRanks}}, ones));
      EXPECT_EQ(counts[static_cast<size_t>(rank)], 0);
      EXPECT_FALSE(peers.rows(vectors_group(0), {counts.data(), DType::I64, {kRehearsedRanks}}, ones));
      all.push_back(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
    }
    return all;
  };
  const auto spread = [](const std::vector<int64_t>& all) {
    const auto [least, most] = std::minmax_element(all.begin(), all.end());
    return static_cast<double>(*most) / static_cast<double>(*least);
  };
  EXPECT_LT(spread(words(0)), 1.5);
  EXPECT_GT(spread(words(5)), 1.5);
}

// Only the rank that is asked for exists: a large world takes no more memory or time.
TEST(RehearseRecommender, NeedsNoOtherRank) {
  RecommendConfig config = clicks_on(512, "row");
  config.training.global_batch_size = 512 * 8;
  const RehearsedRank rank = rehearse_rank(prepare(resolve(config)), 511, {});
  EXPECT_EQ(rank.failure, "");
  for (const MemoryPart& part : rank.parts) EXPECT_EQ(part.held, part.planned) << part.name;
}

TEST(RehearseRecommender, KnowsTheBytesOfPeersBeforeTheyAreMade) {
  for (const char* placement : {"row", "table", "column"})
    for (const int ranks : {1, 2, 64}) {
      SCOPED_TRACE(fmt::format("{}, {} ranks", placement, ranks));
      RecommendConfig config = clicks_on(ranks, placement);
      config.training.global_batch_size = ranks * 64;
      const RecommendJob job = prepare(resolve(config));
      const RecommenderSetup setup = recommender_setup(job.config, job.data.schema(), ranks);
      const ClickFeed feed = training_feed(job.config, *job.data.train);
      const AbsentClicks peers(setup, 0, ranks, feed, {});
      const auto bytes = static_cast<double>(peers.bytes());
      EXPECT_EQ(bytes > 0, ranks > 1);
      EXPECT_NEAR(static_cast<double>(AbsentClicks::planned_bytes(setup, 0, ranks, feed, {})), bytes,
                  0.15 * bytes);
    }
}

TEST(RehearseRecommender, TheIdsOfPeersMustFitToo) {
  constexpr size_t kGiB = size_t{1} << 30;
  EXPECT_NO_THROW(check_fits(6 * kGiB, 2 * kGiB, 8 * kGiB));
  EXPECT_NO_THROW(check_fits(6 * kGiB, 2 * kGiB, 0)) << "the host does not say how much is free";
  EXPECT_EQ(
      error_of([] { check_fits(6 * kGiB, 3 * kGiB, 8 * kGiB); }, ErrorKind::Failure),
      "the rank needs 6.00 GiB of the host's memory and the ids that absent ranks ask for 3.00 GiB, and this "
      "host has 8.00 GiB free");
}

TEST(RehearseRecommender, LoadsItsPartOfACheckpoint) {
  const TempDir dir;
  RecommendConfig config = clicks_on(2, "row");
  config.training.train_iters = 3;
  config.checkpoint.save = dir.file("run");
  class Silent final : public RecommendObserver {
    void on_start(const RecommendReport&) override {}
    void on_step(const StepReport&) override {}
    void on_eval(const ClickEvaluation&) override {}
    void on_target(int64_t, double, double) override {}
    void on_saved(int64_t, const std::string&) override {}
    void on_warning(const std::string&) override {}
  } silent;
  const std::atomic<int> signal{0};
  const RecommendJob first = prepare(resolve(config));
  run_ranks(2, [&](Communicator& world) { recommend(world, first, silent, signal); });

  RecommendConfig next = clicks_on(kRehearsedRanks, "row");
  next.checkpoint.load = config.checkpoint.save;
  const RecommendJob job = prepare(resolve(next));
  std::map<std::string, std::vector<std::byte>> expected;
  const auto bytes_of = [](Recommender& model) {
    std::map<std::string, std::vector<std::byte>> bytes;
    model.settle();
    for (const NamedTensor& tensor : model.checkpoint_tensors(true)) {
      const auto* data = static_cast<const std::byte*>(tensor.data.data);
      std::vector<std::byte>& all = bytes[tensor.spec.name];
      all.insert(all.end(), data, data + tensor.data.bytes());
    }
    return bytes;
  };
  run_ranks(kRehearsedRanks, [&](Communicator& world) {
    const std::unique_ptr<RecommendTraining> run = recommend_run(world, job, nullptr);
    run->load(*job.start.from, job.start);
    if (world.rank() == 3) expected = bytes_of(run->model());
  });
  LoneRecommender lone(job, 3, {}, false);
  EXPECT_NE(bytes_of(lone.model()), expected);
  EXPECT_FALSE(lone.load().empty());
  EXPECT_EQ(bytes_of(lone.model()), expected);
  const RehearsedRank rank = rehearse_rank(job, 3, {});
  EXPECT_EQ(rank.failure, "");
  EXPECT_FALSE(rank.loaded.empty());
}

TEST(RehearseRecommender, RefusesRanksThatDoNotExist) {
  const RecommendJob job = prepare(clicks_on(kRehearsedRanks, "row"));
  EXPECT_NE(refusal([&] { rehearse_rank(job, 8, {}); }).find("0 to 7"), std::string::npos);
  RehearseOptions cut;
  cut.micro_batches = 3;
  EXPECT_NE(refusal([&] { rehearse_rank(job, 0, cut); }).find("--micro-batches"), std::string::npos);
}

}  // namespace
}  // namespace trifold::test
