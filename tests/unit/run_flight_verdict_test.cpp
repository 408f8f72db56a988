// What the files of flight recorders tell about a run that ended badly.
#include "run/flight/flight_verdict.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <thread>

#include "comm/thread_comm.h"
#include "core/error.h"
#include "run/flight/flight_run.h"
#include "support/files.h"
#include "support/ranks.h"

namespace trifold::test {
namespace {

using Kind = FlightEvent::Kind;

// The recorders of a run whose ranks call what a test lets them call.
class FlownRun {
 public:
  explicit FlownRun(int ranks) {
    std::vector<int> all;
    for (int rank = 0; rank < ranks; ++rank) {
      all.push_back(rank);
      recorders_.push_back(std::make_unique<FlightRecorder>(rank, ranks));
    }
    for (const auto& recorder : recorders_) recorder->add_group(all);
  }

  FlightRecorder& of(int rank) { return *recorders_[static_cast<size_t>(rank)]; }
  uint64_t begin(int rank, int64_t number, const std::string& name = "all_reduce", int32_t group = 0) {
    FlightEvent event;
    event.kind = Kind::Collective;
    event.set_name(name);
    event.group = group;
    event.number = number;
    return of(rank).begin(event);
  }
  uint64_t message(int rank, Kind kind, int peer, int64_t number) {
    FlightEvent event;
    event.kind = kind;
    event.set_name(kind == Kind::Send ? "send" : "receive");
    event.group = 0;
    event.peer = peer;
    event.number = number;
    return of(rank).begin(event);
  }
  // By the thread that runs the plan.
  void action(int rank) {
    FlightEvent event;
    event.kind = Kind::Action;
    event.set_name("0F0");
    of(rank).begin(event);
  }
  void call(int rank, int64_t number) { of(rank).end(begin(rank, number)); }
  FlightFiles files() const {
    FlightFiles files{"folder", {}, {}};
    for (const auto& recorder : recorders_) files.logs.push_back(recorder->log());
    return files;
  }

 private:
  std::vector<std::unique_ptr<FlightRecorder>> recorders_;
};

TEST(FlightVerdict, NamesTheRankThatNeverCame) {
  FlownRun run(4);
  for (int rank = 0; rank < 4; ++rank) run.call(rank, 0);
  for (const int rank : {0, 1, 3}) run.begin(rank, 1);
  const FlightVerdict verdict = judge(run.files());
  EXPECT_EQ(verdict.never_came, (std::vector{2}));
  EXPECT_NE(verdict.text.find("rank 2"), std::string::npos);
  EXPECT_NE(verdict.text.find("never came to all_reduce, call 1 in the world of 4 ranks"), std::string::npos)
      << verdict.text;
  const std::string report = flight_report(run.files());
  EXPECT_LT(report.find("  rank 2 (host"), report.find("  rank 0 (host")) << report;
}

// Rank 1 waits for rank 2, so that it is not at fault that rank 0 waits for rank 1.
TEST(FlightVerdict, FollowsChainsOfWaits) {
  FlownRun run(3);
  const int32_t pair01 = run.of(0).add_group(std::array{0, 1});
  run.of(1).add_group(std::array{0, 1});
  run.begin(0, 0, "all_reduce", pair01);
  run.message(1, Kind::Receive, 2, 0);
  const FlightVerdict verdict = judge(run.files());
  EXPECT_EQ(verdict.never_came, (std::vector{2}));
  EXPECT_NE(verdict.text.find("never sent message 0 to rank 1"), std::string::npos) << verdict.text;
}

TEST(FlightVerdict, MessagesMatchByNumber) {
  FlownRun run(2);
  run.of(0).end(run.message(0, Kind::Send, 1, 0));
  run.of(1).end(run.message(1, Kind::Receive, 0, 0));
  run.message(0, Kind::Send, 1, 1);
  EXPECT_EQ(judge(run.files()).never_came, (std::vector{1}));
  run.message(1, Kind::Receive, 0, 1);
  const FlightVerdict verdict = judge(run.files());
  EXPECT_EQ(verdict.never_came, std::vector<int>{});
  EXPECT_EQ(verdict.text, "all ranks have come to the calls that did not end");
}

// Rank 1 skipped a call, as NCCL would not notice.
TEST(FlightVerdict, NamesASkippedCall) {
  FlownRun run(3);
  for (const int rank : {0, 2}) run.begin(rank, 0);
  run.begin(1, 0, "all_gather");
  EXPECT_NE(judge(run.files()).text.find("rank 1 called all_gather as its call 0 there"), std::string::npos)
      << judge(run.files()).text;
}

TEST(FlightVerdict, ARankWithoutAFileNeverCame) {
  FlownRun run(3);
  for (const int rank : {0, 1, 2}) run.begin(rank, 0);
  FlightFiles files = run.files();
  files.logs.erase(files.logs.begin() + 1);
  EXPECT_EQ(judge(files).never_came, (std::vector{1}));
  EXPECT_NE(flight_report(files).find("rank 1 left no file"), std::string::npos);
}

// All have come, but the process of rank 1 ended seconds before the others.
TEST(FlightVerdict, NamesAProcessThatWasKilledInACall) {
  FlownRun run(3);
  for (int rank = 0; rank < 3; ++rank) run.begin(rank, 0);
  FlightFiles files = run.files();
  files.logs[1].beat_ns -= 10'000'000'000;
  EXPECT_EQ(judge(files).never_came, (std::vector{1}));
}

// The thread that runs the plan of rank 1 hangs, and its background save waits for that of rank 0.
TEST(FlightVerdict, AnotherThreadsWaitDoesNotExcuseARankThatHangs) {
  FlownRun run(3);
  std::vector<int32_t> saves;
  for (int rank = 0; rank < 3; ++rank) saves.push_back(run.of(rank).add_group(std::array{0, 1, 2}));
  for (int rank = 0; rank < 3; ++rank) run.action(rank);
  std::thread([&] { run.begin(1, 0, "barrier", saves[1]); }).join();
  for (const int rank : {0, 2}) run.begin(rank, 0);
  const FlightVerdict verdict = judge(run.files());
  EXPECT_EQ(verdict.never_came, (std::vector{1})) << verdict.text;
  EXPECT_NE(verdict.text.find("never came to all_reduce, call 0 in the world of 3 ranks"), std::string::npos)
      << verdict.text;
}

// Each waits for a call of another thread of the other one.
TEST(FlightVerdict, ACircleOfWaitsBlamesNobody) {
  FlownRun run(2);
  const int32_t other = run.of(0).add_group(std::array{0, 1});
  run.of(1).add_group(std::array{0, 1});
  for (const int rank : {0, 1}) run.action(rank);
  run.begin(0, 0);
  run.begin(1, 0, "all_reduce", other);
  const FlightVerdict verdict = judge(run.files());
  EXPECT_EQ(verdict.never_came, std::vector<int>{});
  EXPECT_EQ(verdict.text, "every rank that others wait for waits itself");
}

// The thread that runs the plan of rank 1 hangs, and another one of it awaits a message early. That of rank 0 waits for
// its own thread of communication, and is in no call either. The files do not show which rank hangs.
TEST(FlightVerdict, CallsOfOtherThreadsAloneBlameNobody) {
  FlownRun run(2);
  for (const int rank : {0, 1}) run.action(rank);
  std::thread([&] { run.message(1, Kind::Receive, 0, 0); }).join();
  std::thread([&] { run.begin(0, 0); }).join();
  const FlightVerdict verdict = judge(run.files());
  EXPECT_EQ(verdict.never_came, std::vector<int>{}) << verdict.text;
  EXPECT_EQ(verdict.text, "every rank that others wait for waits itself");
}

// Clocks of hosts differ by more than heartbeats do.
TEST(FlightVerdict, ComparesNoClocksOfHosts) {
  FlownRun run(4);
  for (const int rank : {0, 2, 3}) run.begin(rank, 0);
  FlightFiles files = run.files();
  for (const size_t rank : {0, 1}) {
    files.logs[rank].host = "late";
    files.logs[rank].wall_ns -= 100'000'000'000;
  }
  EXPECT_EQ(judge(files).never_came, (std::vector{1}));
  EXPECT_EQ(judge(files).text.find("did not come either"), std::string::npos);
}

// A launcher killed the host of rank 0, which had come, before the host of rank 2, which hung.
TEST(FlightVerdict, ProofsComeBeforeSilence) {
  FlownRun run(4);
  for (const int rank : {0, 1, 3}) run.begin(rank, 0);
  FlightFiles files = run.files();
  files.logs[0].beat_ns -= 5'000'000'000;
  EXPECT_EQ(judge(files).never_came, (std::vector{2, 0}));
}

// Rank 2 was stopped in a call with rank 1, for which rank 0 waits.
TEST(FlightVerdict, AWaitForASilentRankIsAWait) {
  FlownRun run(3);
  const int32_t pair12 = run.of(1).add_group(std::array{1, 2});
  run.of(2).add_group(std::array{1, 2});
  for (const int rank : {1, 2}) run.begin(rank, 0, "all_reduce", pair12);
  run.begin(0, 0);
  FlightFiles files = run.files();
  files.logs[2].beat_ns -= 10'000'000'000;
  EXPECT_EQ(judge(files).never_came.front(), 2);
}

// A rank that is silent is not blamed for a message between two others.
TEST(FlightVerdict, MessagesConcernTwoRanks) {
  FlownRun run(4);
  run.message(0, Kind::Send, 1, 5);
  FlightFiles files = run.files();
  files.logs[2].beat_ns -= 10'000'000'000;
  const FlightVerdict verdict = judge(files);
  EXPECT_EQ(verdict.never_came, (std::vector{1}));
  EXPECT_NE(verdict.text.find("rank 1 (host"), std::string::npos);
  EXPECT_NE(verdict.text.find("never took message 5 from rank 0"), std::string::npos) << verdict.text;
}

TEST(FlightVerdict, RanksWithoutAFileComeLast) {
  FlownRun run(4);
  for (const int rank : {1, 2}) run.begin(rank, 0);
  FlightFiles files = run.files();
  files.logs.erase(files.logs.begin());
  EXPECT_EQ(judge(files).never_came, (std::vector{3, 0}));
}

TEST(FlightVerdict, SaysThatNobodyWaited) {
  FlownRun run(2);
  for (int rank = 0; rank < 2; ++rank) {
    run.call(rank, 0);
    run.of(rank).finish(FlightLog::End::Finished);
  }
  EXPECT_EQ(judge(run.files()).text, "no rank waited for another");
}

TEST(FlightVerdict, AWorldOfThreadsIsRecorded) {
  const TempDir folder;
  const std::string root = folder.file("flight");
  run_ranks(4, [&](Communicator& world) {
    FlightRun flight([] { return std::string(); }, nullptr);
    const auto recorder = flight.start(world, root);
    const auto pairs = world.split(world.rank() / 2, world.rank());
    ThreadPool pool(1);
    Stream stream(Stream::Mode::Inline, pool);
    std::array<float, 4> values{};
    const Tensor tensor{values.data(), DType::F32, {4}};
    pairs->all_reduce(tensor, Reduce::Sum, stream);
    const Transfer::Direction way =
        pairs->rank() == 0 ? Transfer::Direction::Send : Transfer::Direction::Receive;
    const Transfer transfer{way, 1 - pairs->rank(), tensor};
    pairs->exchange({&transfer, 1}, stream);
    EXPECT_NE(world.status().find("rank 3"), std::string::npos);
    world.barrier();
    recorder->finish(FlightLog::End::Finished);
    // The communicators know the recorder until their end.
  });
  const FlightFiles files = read_flight_files(root);
  ASSERT_EQ(files.logs.size(), 4U);
  const FlightLog& log = files.logs[3];
  EXPECT_EQ(log.groups, (std::vector<std::vector<int>>{{0, 1, 2, 3}, {2, 3}}));
  std::vector<std::string> names;
  int64_t bytes = 0;
  for (const FlightEvent& event : log.events) {
    names.emplace_back(event.name());
    bytes += event.bytes;
    EXPECT_GT(event.end_ns, 0);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"split", "all_reduce", "receive", "barrier"}));
  EXPECT_EQ(bytes, 16);  // 2 (n-1)/n of the sum; it sends no message
  EXPECT_EQ(log.events[2].peer, 2);
  EXPECT_EQ(judge(files).text, "no rank waited for another");
}

TEST(FlightFiles, OfTheNewestRunAreRead) {
  const TempDir folder;
  EXPECT_THROW(read_flight_files(folder.file("none")), Error);
  EXPECT_THROW(read_flight_files(folder.path().string()), Error);
  for (const std::string run : {"run_20260101_000000_7", "run_20260102_000000_3"}) {
    std::filesystem::create_directory(folder.file(run));
    FlightRecorder(0, 1, folder.file(run + "/" + flight_file_name(0)));
  }
  EXPECT_EQ(read_flight_files(folder.path().string()).folder.substr(folder.path().string().size() + 1),
            "run_20260102_000000_3");
  write_file(folder.file("run_20260102_000000_3/rank_00001.flight"), "damaged");
  const FlightFiles files = read_flight_files(folder.file("run_20260102_000000_3"));
  EXPECT_EQ(files.logs.size(), 1U);
  ASSERT_EQ(files.problems.size(), 1U);
  EXPECT_NE(files.problems[0].find("rank_00001.flight"), std::string::npos);
}

}  // namespace
}  // namespace trifold::test
