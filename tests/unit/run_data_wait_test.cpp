// A rank whose data are late keeps the others waiting: they excuse it, up to a limit.
#include <gtest/gtest.h>

#include <thread>

#include "core/error.h"
#include "core/flight/flight_recorder.h"
#include "data/slot_reader.h"
#include "run/ranks.h"
#include "support/ranks.h"

namespace trifold::test {
namespace {

using std::chrono::milliseconds;

// Ranks meet in a barrier, to which rank 1 comes once its data are read, which takes as long as `slow` says and must
// not take longer than `patience`, and rank 2 after `hang`. All have learned a time-out of `learned`. What the first
// error says; "" without one.
std::string meet_beside_late_data(milliseconds learned, milliseconds slow, milliseconds patience,
                                  milliseconds hang = milliseconds(0)) {
  try {
    run_ranks(3, [&](Communicator& comm) {
      const auto recorder = std::make_shared<FlightRecorder>(comm.rank(), comm.size());
      recorder->set_wait_limit(learned);
      comm.record_in(recorder);
      if (comm.rank() == 1) {
        SlotReader reader(
            1, 1, 1, [&](int64_t) { std::this_thread::sleep_for(slow); },
            [](int64_t) { return std::string("samples from 12 on"); });
        abort_on_error(comm, [&] { reader.get(patience); });  // before the reader waits for its thread
      }
      if (comm.rank() == 2) std::this_thread::sleep_for(hang);
      comm.barrier();
    });
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(DataWait, IsLongerThanALearnedTimeOut) {
  // The time-out is long enough for a busy machine to start rank 1's thread.
  EXPECT_EQ(meet_beside_late_data(milliseconds(1000), milliseconds(2500), milliseconds(10'000)), "");
}

TEST(DataWait, EndsAtTheLimitOfTheReader) {
  const std::string text = meet_beside_late_data(milliseconds(400), milliseconds(2000), milliseconds(900));
  EXPECT_NE(text.find("reading samples from 12 on takes longer than 900 ms"), std::string::npos) << text;
}

TEST(DataWait, HasALimitOfTheRanksToo) {
  const std::string text = meet_beside_late_data(milliseconds(200), milliseconds(3000), milliseconds(10'000));
  EXPECT_EQ(text.find("rank 1 (host "), 0U) << text;
  for (const char* part :
       {" s for samples from 12 on to be read. Rank ",
        " gave up after 1200 ms (6 times the time-out of 200 ms, the limit while ranks wait for the "
        "disk or for data) in barrier"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(DataWait, HidesNoRankThatHangs) {
  const std::string text =
      meet_beside_late_data(milliseconds(400), milliseconds(1500), milliseconds(10'000), milliseconds(1500));
  EXPECT_EQ(text.find("rank 2 (host "), 0U) << text;
  EXPECT_NE(text.find(" gave up after 400 ms in barrier"), std::string::npos) << text;
}

}  // namespace
}  // namespace trifold::test
