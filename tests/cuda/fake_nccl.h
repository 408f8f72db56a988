// A fake NCCL that behaves like NCCL with non-blocking communicators: ranks are threads, a kernel is a number
// in a stream, present until it is released or aborted.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/cuda/nccl_table.cuh"
#include "comm/cuda/stream_marks.cuh"

// The meeting of a communicator's ranks at their first collective.
struct Meeting {
  std::mutex mutex;
  std::condition_variable changed;
  int missing = 0;
};

struct CUstream_st {
  std::atomic<int> stuck{0};  // kernels that wait for another rank
};

struct CUevent_st {
  CUstream_st* stream = nullptr;
};

struct ncclComm {
  std::atomic<ncclResult_t> state{ncclSuccess};
  std::atomic<bool> aborted{false};
  std::atomic<bool> freed{false};
  bool connected = false;
  std::atomic<int> asks_left{0};  // until the operation in progress is done
  Meeting* meeting = nullptr;
  std::atomic<CUstream_st*> stream{nullptr};  // stream of its enqueued kernels
  std::thread job;

  void join() {
    if (job.joinable()) job.join();
  }
};

namespace trifold::test {

// State for tests to inspect, which lives until the end of a test.
struct FakeNccl {
  std::mutex mutex;
  std::vector<std::unique_ptr<ncclComm>> all;
  std::atomic<int> touched_freed{0};  // calls on destroyed communicators
  std::atomic<int> hung{0};           // aborts that waited for another communicator's kernels
  std::chrono::milliseconds split_takes{20};
  int sum_takes_asks = 0;  // a collective stays in progress until polled this many times

  ncclComm* add() {
    const std::lock_guard lock(mutex);
    all.push_back(std::make_unique<ncclComm>());
    return all.back().get();
  }
};
// The state of the running test.
extern std::unique_ptr<FakeNccl> fake_nccl;

class FakeMarks final : public cuda::StreamMarks {
 public:
  std::string device_name() const override { return "fake"; }
  void use() noexcept override {}
  cudaEvent_t make() override { return new CUevent_st; }
  void record(cudaEvent_t mark, cudaStream_t stream) override { mark->stream = stream; }
  bool passed(cudaEvent_t mark) noexcept override { return mark->stream->stuck == 0; }
  void destroy(cudaEvent_t mark) noexcept override { delete mark; }
};

const cuda::Nccl& fake_nccl_table();

}  // namespace trifold::test
