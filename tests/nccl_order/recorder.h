// OrderRecorder writes an OrderRecord (record.h) while ranks run, each on a fake device of its own.
#pragma once

#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "fake_device/device.h"
#include "nccl_order/record.h"

namespace trifold::test {

class OrderRecorder final : public DeviceWatch {
 public:
  // The one of this process.
  static OrderRecorder& instance();

  // Records from now on, for this many ranks; `take` ends that.
  void begin(int ranks);
  OrderRecord take();

  // The index of a communicator, the same on all ranks that give the same `key`.
  int comm(const std::string& key, const std::string& kind, const std::vector<int>& world_ranks);
  // Adds a call of the calling thread. `queue`: of its stream, or null.
  void add(int rank, OrderEntry entry, const FakeDeviceQueue* queue = nullptr);

  void on_record(FakeDeviceQueue& queue, uint64_t ticket) override;
  void on_wait(FakeDeviceQueue& queue, FakeDeviceQueue& other, uint64_t ticket) override;
  void on_await(FakeDeviceQueue& queue, uint64_t ticket) override;
  void on_synchronize(FakeDeviceQueue& queue) override;
  void on_end(FakeDeviceQueue& queue) override;

 private:
  struct StreamState {
    int number = 0;
    int64_t end = 0;                     // behind its last entry; 0: it has none
    std::map<uint64_t, int64_t> marked;  // by ticket, `end` when it was drawn
  };
  struct RankState {
    std::map<std::thread::id, int> threads;
    std::map<const FakeDeviceQueue*, StreamState> streams;
    std::map<std::pair<int, int>, int64_t> awaited;  // by thread and stream: entries waited for already
    int streams_made = 0;
  };

  StreamState& stream(RankState& rank, const FakeDeviceQueue& queue);
  RankState* rank_of(FakeDeviceQueue& queue);
  void put(int rank, RankState& state, OrderEntry entry);
  void wait_on_host(FakeDeviceQueue& queue, const uint64_t* ticket);

  std::mutex mutex_;
  bool active_ = false;
  OrderRecord record_;
  std::vector<RankState> ranks_;
  std::map<std::string, int> comms_;
};

}  // namespace trifold::test
