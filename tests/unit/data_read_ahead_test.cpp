#include "data/read_ahead.h"

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "unit/text_test_support.h"

namespace trifold {
namespace {

using namespace std::chrono_literals;
using test::error_of;
using test::expect_has;

// Every token of sample i is i. Fails at sample `fail_at`; waits for `gate` before sample `wait_at`.
class CountingSource : public DataSource {
 public:
  int64_t fail_at = -1;
  int64_t wait_at = -1;
  std::shared_future<void> gate;
  mutable std::atomic<int> reads{0};

  int64_t seq_length() const override { return 4; }
  int64_t samples() const override { return 1 << 20; }
  void read(Batch& batch, int64_t first_sample) const override {
    ++reads;
    if (first_sample == fail_at) bad_input("sample {} is broken", first_sample);
    if (first_sample == wait_at) gate.wait();
    batch.first_sample = first_sample;
    for (int64_t i = 0; i < batch.tokens.elements(); ++i)
      batch.tokens.as<int32_t>()[i] = static_cast<int32_t>(first_sample + i / 4);
  }
};

TEST(ReadAhead, GivesTheBatchesInOrder) {
  const CountingSource source;
  ReadAhead ahead(source, {100, 6, 2, 50});
  for (int i = 0; i < 50; ++i) {
    const Batch& batch = ahead.get();
    EXPECT_EQ(batch.first_sample, 100 + 6 * i);
    EXPECT_EQ(batch.samples(), 2);
    EXPECT_EQ(batch.tokens.as<int32_t>()[7], 101 + 6 * i);
  }
  expect_has(error_of([&] { ahead.get(); }, ErrorKind::Failure), "all 50 micro-batches");
}

TEST(ReadAhead, KeepsHeldBatchesValid) {
  const CountingSource source;
  ReadAhead ahead(source, {0, 1, 1, 200}, 3, 2);
  std::vector<const Batch*> held;
  for (int i = 0; i < 200; ++i) {
    held.push_back(&ahead.get());
    if (i % 50 == 0) std::this_thread::sleep_for(2ms);  // lets the reader run as far as it may
    for (int k = std::max(0, i - 2); k <= i; ++k)
      EXPECT_EQ(held[static_cast<size_t>(k)]->tokens.as<int32_t>()[0], k);
  }
}

TEST(ReadAhead, StaysWithinItsMemory) {
  const CountingSource source;
  ReadAhead ahead(source, {0, 1, 1, 1000}, 1, 3);
  ahead.get();
  std::this_thread::sleep_for(20ms);
  EXPECT_LE(source.reads, 4);  // the one held and three ahead
}

TEST(ReadAhead, HandsErrorsToTheConsumerInTheirPlace) {
  CountingSource source;
  source.fail_at = 3;
  ReadAhead ahead(source, {0, 1, 1, 10}, 1, 8);
  for (int i = 0; source.reads < 4 && i < 5000; ++i) std::this_thread::sleep_for(1ms);  // the error is there
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ahead.get().first_sample, i);
  for (int again = 0; again < 2; ++again) expect_has(error_of([&] { ahead.get(); }), "sample 3 is broken");
}

TEST(ReadAhead, TimesOutAndGoesOn) {
  CountingSource source;
  std::promise<void> open;
  source.gate = open.get_future().share();
  source.wait_at = 1;
  ReadAhead ahead(source, {0, 1, 1, 10});
  ahead.get();
  expect_has(error_of([&] { ahead.get(10ms); }, ErrorKind::Failure),
             "samples from 1 on takes longer than 10 ms");
  open.set_value();
  EXPECT_EQ(ahead.get().first_sample, 1);
}

TEST(ReadAhead, StopsAtAnyTime) {
  const CountingSource source;
  for (int taken = 0; taken < 20; ++taken) {
    ReadAhead ahead(source, {0, 1, 1, 1000});
    for (int i = 0; i < taken; ++i) ahead.get();
  }
  const ReadAhead nothing(source, {0, 1, 1, 0});
}

}  // namespace
}  // namespace trifold
