// What the NCCL communicators of one rank share: the library, the watch over what is enqueued, the abort.
// Internal to nccl_comm.cpp.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "core/cuda/cuda_device.h"
#include "core/cuda/library.h"

namespace trifold::cuda {

// The functions of NCCL that are used.
struct Nccl {
  Nccl();
  Library library{"libnccl.so.2", "NCCL"};
  decltype(ncclGetErrorString)* text;
  decltype(ncclGetLastError)* last_error;
  decltype(ncclGetUniqueId)* unique_id;
  decltype(ncclCommInitRankConfig)* init;
  decltype(ncclCommSplit)* split;
  decltype(ncclCommGetAsyncError)* async_error;
  decltype(ncclCommAbort)* abort;
  decltype(ncclGroupStart)* group_start;
  decltype(ncclGroupEnd)* group_end;
  decltype(ncclAllReduce)* all_reduce;
  decltype(ncclReduceScatter)* reduce_scatter;
  decltype(ncclAllGather)* all_gather;
  decltype(ncclBroadcast)* broadcast;
  decltype(ncclSend)* send;
  decltype(ncclRecv)* receive;
};
const Nccl& nccl();

class NcclWorld {
 public:
  // Collective over `host`.
  NcclWorld(Communicator& host, CudaDevice& device, std::chrono::milliseconds timeout);
  // Communicators are gone by now, or will not be used any more.
  ~NcclWorld();
  NcclWorld(const NcclWorld&) = delete;
  NcclWorld& operator=(const NcclWorld&) = delete;

  CudaDevice& device() const { return device_; }

  // Makes a communicator: `start` is a call of NCCL that begins it. Waits, with the deadline.
  template <class Start>
  ncclComm_t make(const char* what, Start start) {
    throw_if_aborted();
    device_.use();
    ncclComm_t made = nullptr;
    const ncclResult_t begun = start(&made);
    accept(begun, made, what, time_to_connect());
    const std::lock_guard lock(mutex_);
    communicators_.push_back(made);
    return made;
  }

  // Enqueues one call, or a group of them, on `stream` and watches it.
  template <class Call>
  void enqueue(ncclComm_t communicator, cudaStream_t stream, const std::string& what, Call call) {
    throw_if_aborted();
    {
      const std::lock_guard calling(call_mutex_);
      accept(call(), communicator, what.c_str(), timeout_);
    }
    watch(communicator, stream, what);
  }

  void forget(ncclComm_t communicator) noexcept;
  void abort(std::string_view why) noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  struct Pending {
    cudaEvent_t done;
    ncclComm_t communicator;
    Clock::time_point deadline;
    std::string what;
  };

  void throw_if_aborted() const;
  // Longer than a call may take where that is given little, for ranks begin NCCL in seconds.
  std::chrono::milliseconds time_to_connect() const;
  void accept(ncclResult_t result, ncclComm_t communicator, const char* what,
              std::chrono::milliseconds timeout);
  void watch(ncclComm_t communicator, cudaStream_t stream, const std::string& what);
  void watch_loop();
  std::string trouble_with(const Pending& pending);
  std::string trouble_of_others();
  cudaEvent_t take_event();

  Communicator& host_;
  std::unique_ptr<Communicator> news_;  // of the host too, for the watching thread alone
  CudaDevice& device_;
  std::chrono::milliseconds timeout_;
  std::atomic<bool> aborted_{false};
  std::string why_;           // written once, before aborted_
  std::mutex call_mutex_;     // nobody is inside NCCL while it is aborted
  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::vector<ncclComm_t> communicators_;
  std::deque<Pending> pending_;
  std::vector<cudaEvent_t> spare_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace trifold::cuda
