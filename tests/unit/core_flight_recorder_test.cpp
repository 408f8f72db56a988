// The flight recorder: its ring, its communicators, its file, and files that are damaged.
#include "core/flight/flight_recorder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "core/error.h"
#include "core/flight/recorded_copy.h"
#include "core/thread_pool.h"
#include "support/files.h"

namespace trifold::test {
namespace {

using Kind = FlightEvent::Kind;

FlightEvent action(const std::string& name) {
  FlightEvent event;
  event.kind = Kind::Action;
  event.set_name(name);
  return event;
}

TEST(FlightRecorder, KeepsEventsInOrderWithTheirTimes) {
  FlightRecorder recorder(3, 8);
  recorder.set_step(12);
  const uint64_t first = recorder.begin(action("0F1"));
  FlightEvent call;
  call.kind = Kind::Collective;
  call.set_name("all_reduce");
  call.group = recorder.add_group(std::array{1, 3, 5});
  call.number = 17;
  call.bytes = 4096;
  recorder.end(recorder.begin(call));
  recorder.end(first);
  const uint64_t open = recorder.begin(action("0B1"));
  const FlightLog log = recorder.log();
  EXPECT_EQ(log.rank, 3);
  EXPECT_EQ(log.ranks, 8);
  EXPECT_EQ(log.step, 12);
  EXPECT_EQ(log.end, FlightLog::End::Running);
  EXPECT_EQ(log.groups, (std::vector<std::vector<int>>{{1, 3, 5}}));
  ASSERT_EQ(log.events.size(), 3U);
  EXPECT_EQ(log.events[0].name(), "0F1");
  EXPECT_EQ(log.events[1].name(), "all_reduce");
  EXPECT_EQ(log.events[1].number, 17);
  EXPECT_EQ(log.events[1].bytes, 4096);
  EXPECT_EQ(log.events[1].step, 12);
  EXPECT_LE(log.events[0].begin_ns, log.events[1].begin_ns);
  EXPECT_LE(log.events[1].begin_ns, log.events[1].end_ns);
  EXPECT_LE(log.events[1].end_ns, log.events[0].end_ns);
  EXPECT_EQ(log.events[2].end_ns, 0);
  EXPECT_EQ(log.events[2].ticket, open);
  EXPECT_EQ(recorder.place(), "step 12, 0B1");
}

TEST(FlightRecorder, KeepsTheLastEvents) {
  FlightRecorder recorder(0, 1);
  const uint64_t oldest = recorder.begin(action("old"));
  for (size_t i = 0; i < 2 * FlightRecorder::kSlots; ++i) recorder.end(recorder.begin(action("new")));
  recorder.end(oldest);  // its slot belongs to another event by now
  const FlightLog log = recorder.log();
  ASSERT_EQ(log.events.size(), FlightRecorder::kSlots);
  EXPECT_EQ(log.events.front().ticket, FlightRecorder::kSlots + 1);
  for (const FlightEvent& event : log.events) {
    EXPECT_EQ(event.name(), "new");
    EXPECT_GE(event.end_ns, event.begin_ns);
  }
}

TEST(FlightRecorder, CutsLongNamesAndManyCommunicators) {
  FlightRecorder recorder(0, 100);
  recorder.begin(action("123456789012345678901234567890"));
  EXPECT_EQ(recorder.log().events[0].name(), "123456789012345678901");
  std::vector<int> odd;  // no arithmetic sequence
  for (int rank = 0; rank < 90; rank += 1 + rank % 3) odd.push_back(rank);
  int32_t last = 0;
  for (int i = 0; i < 1000; ++i) last = recorder.add_group(odd);
  const FlightLog log = recorder.log();
  EXPECT_EQ(last, -1);
  EXPECT_EQ(log.groups.front(), odd);
  EXPECT_LT(log.groups.size(), 1000U);
}

TEST(FlightRecorder, AnExceptionLeavesTheEventOpen) {
  FlightRecorder recorder(0, 1);
  try {
    const FlightScope scope(&recorder, Kind::Action, "0F1");
    throw 1;
  } catch (int) {
  }
  { const FlightScope scope(&recorder, Kind::Action, "0F2"); }
  { const FlightScope none(nullptr, Kind::Action, "0F3"); }
  const FlightLog log = recorder.log();
  ASSERT_EQ(log.events.size(), 2U);
  EXPECT_EQ(log.events[0].end_ns, 0);
  EXPECT_GT(log.events[1].end_ns, 0);
}

TEST(FlightRecorder, ATraceKeepsMoreThanTheRing) {
  FlightRecorder recorder(0, 1);
  const uint64_t before = recorder.begin(action("before"));
  recorder.start_trace();
  recorder.set_step(7);
  const uint64_t first = recorder.begin(action("first"));
  for (size_t i = 0; i < 2 * FlightRecorder::kSlots; ++i) recorder.end(recorder.begin(action("other")));
  recorder.end(before);
  recorder.end(first);  // the ring has it no more
  const uint64_t open = recorder.begin(action("open"));
  const FlightLog log = recorder.take_trace();
  ASSERT_EQ(log.events.size(), 2 * FlightRecorder::kSlots + 2);
  EXPECT_EQ(log.events.front().name(), "first");
  EXPECT_EQ(log.events.front().step, 7);
  EXPECT_GE(log.events.front().end_ns, log.events[log.events.size() - 2].end_ns);
  EXPECT_EQ(log.events.back().name(), "open");
  EXPECT_EQ(log.events.back().end_ns, 0);
  recorder.end(open);
  recorder.end(recorder.begin(action("after")));
  EXPECT_EQ(recorder.log().events.back().name(), "after");
  EXPECT_THROW(recorder.take_trace(), Error);
  EXPECT_THROW(recorder.start_trace(), Error);
}

TEST(FlightRecorder, AnEventLastsAsLongAsItsMeasuredSpan) {
  FlightRecorder recorder(0, 1);
  recorder.start_trace();
  ClockSpan span;
  {
    FlightScope scope(&recorder, Kind::Part, "step");
    span.begin = Clock::now();
    span.end = span.begin + std::chrono::nanoseconds(123'456'789);
    scope.lasted(span);
  }
  for (const FlightEvent& event : {recorder.log().events.at(0), recorder.take_trace().events.at(0)}) {
    EXPECT_EQ(event.end_ns - event.begin_ns, 123'456'789);
    EXPECT_EQ(span.seconds(), static_cast<double>(event.end_ns - event.begin_ns) / 1e9);
  }
}

TEST(RecordedCopy, LastsFromTheBeginOfItsWorkToItsEnd) {
  FlightRecorder recorder(0, 1);
  ThreadPool pool(1);
  Stream stream(Stream::Mode::Worker, pool);
  { const RecordedCopy of_no_rank("offload", 3, stream); }
  std::atomic<bool> may_begin{false};
  int64_t begun = 0, ended = 0;
  {
    const FlightRecorder::Here here(recorder);
    stream.run([&] {
      while (!may_begin) std::this_thread::yield();
    });
    const RecordedCopy recorded("offload", 4096, stream);
    stream.run([&] {
      begun = FlightRecorder::now_ns();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ended = FlightRecorder::now_ns();
    });
  }
  const int64_t enqueued = FlightRecorder::now_ns();
  may_begin = true;
  stream.synchronize();
  { const RecordedCopy of_no_rank("fetch", 3); }
  const FlightLog log = recorder.log();
  ASSERT_EQ(log.events.size(), 1U);
  EXPECT_EQ(log.events[0].kind, Kind::Copy);
  EXPECT_EQ(log.events[0].name(), "offload");
  EXPECT_EQ(log.events[0].bytes, 4096);
  EXPECT_GE(log.events[0].begin_ns, enqueued);
  EXPECT_LE(log.events[0].begin_ns, begun);
  EXPECT_GE(log.events[0].end_ns, ended);
}

TEST(FlightRecorder, ItsFileHasEverythingAndIsNeverReplaced) {
  const TempDir folder;
  const std::string file = folder.file("rank.flight");
  {
    FlightRecorder recorder(1, 2, file);
    recorder.add_group(std::array{0, 1});
    recorder.begin(action("0F1"));
    EXPECT_EQ(read_flight_log(file).events.size(), 1U);
    recorder.finish(FlightLog::End::Failed);
    EXPECT_THROW(FlightRecorder(1, 2, file), Error);
  }
  const FlightLog log = read_flight_log(file);
  EXPECT_EQ(log.rank, 1);
  EXPECT_EQ(log.end, FlightLog::End::Failed);
  EXPECT_FALSE(log.host.empty());
  EXPECT_EQ(log.pid, getpid());
  EXPECT_GT(log.wall_seconds(log.beat_ns), 1.7e9);  // after 2023
  EXPECT_THROW(FlightRecorder(1, 2, folder.file("none/rank.flight")), Error);
}

TEST(FlightRecorder, DamagedFilesAreRefusedOrRead) {
  const TempDir folder;
  const std::string file = folder.file("rank.flight");
  {
    FlightRecorder recorder(1, 4, file);
    for (const auto& ranks : {std::vector{0, 1, 2, 3}, std::vector{1, 3}}) recorder.add_group(ranks);
    for (int i = 0; i < 50; ++i) recorder.end(recorder.begin(action("0F1")));
  }
  const std::string good = read_file(file);
  const auto try_read = [&](const std::string& content) {
    write_file(file, content);
    try {
      const FlightLog log = read_flight_log(file);
      for (const FlightEvent& event : log.events) EXPECT_LE(event.name().size(), FlightEvent::kNameBytes);
      return true;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::BadInput);
      return false;
    }
  };
  EXPECT_TRUE(try_read(good));
  for (const size_t bytes : {size_t{0}, size_t{1}, good.size() / 2, good.size() - 1})
    EXPECT_FALSE(try_read(good.substr(0, bytes)));
  EXPECT_FALSE(try_read(good + "x"));
  std::mt19937_64 random(1);
  for (int i = 0; i < 100; ++i) {
    std::string bad = good;
    for (int change = 0; change < 4; ++change) bad[random() % 1000] = static_cast<char>(random());
    try_read(bad);
  }
  EXPECT_THROW(read_flight_log(folder.file("none")), Error);
  ASSERT_EQ(mkfifo(folder.file("pipe").c_str(), 0600), 0);
  EXPECT_THROW(read_flight_log(folder.file("pipe")), Error);
  EXPECT_THROW(read_flight_log(folder.path().string()), Error);
}

TEST(FlightRecorder, ThreadsMayReadWhileOthersWrite) {
  FlightRecorder recorder(0, 1);
  std::atomic<bool> ends{false};
  std::vector<std::thread> writers;
  for (const char* name : {"first", "second"})
    writers.emplace_back([&, name] {
      while (!ends) {
        const FlightScope scope(&recorder, Kind::Action, name);
      }
    });
  for (int reads = 0; reads < 100;) {
    const FlightLog log = recorder.log();
    reads += log.events.empty() ? 0 : 1;
    for (const FlightEvent& event : log.events)
      ASSERT_TRUE(event.name() == "first" || event.name() == "second") << event.name();
    recorder.place();
    recorder.beat();
  }
  ends = true;
  for (std::thread& writer : writers) writer.join();
}

}  // namespace
}  // namespace trifold::test
