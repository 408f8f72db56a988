// NcclWorld is the state that the NCCL communicators of one rank share: it watches enqueued calls, and aborts. Internal
// to nccl_comm.cpp and its test.
//
// NCCL's communicators are non-blocking here, so a call may continue in the background after it has returned:
// until every rank has joined a communicator, or until the first collective, or the first message between two
// ranks, has connected them. `make` and `enqueue` wait for that, one communicator at a time, because ranks
// may reach two communicators in different orders.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "comm/cuda/nccl_table.cuh"
#include "comm/cuda/stream_marks.cuh"
#include "core/error.h"
#include "core/wait_clock.h"

namespace trifold::cuda {

// A communicator of NCCL. Its address is stable, because NCCL writes a split's result into it from its own
// thread.
struct NcclHandle {
  std::mutex calling;  // held during any call of NCCL on the communicator; lock a parent before its child
  ncclComm_t nccl = nullptr;  // null before it is made, and after an abort
  std::string group;          // its ranks, as messages name them (name_group in comm/call.h)
};
using SharedHandle = std::shared_ptr<NcclHandle>;

class NcclWorld {
 public:
  // Collective over `host`. `host` and `table` must outlive this object.
  NcclWorld(Communicator& host, const Nccl& table, std::unique_ptr<StreamMarks> marks,
            std::chrono::milliseconds timeout);
  // Communicators must have been destroyed, or must no longer be used.
  ~NcclWorld();
  NcclWorld(const NcclWorld&) = delete;
  NcclWorld& operator=(const NcclWorld&) = delete;

  // The number of ranks of the world.
  int size() const { return host_.size(); }

  // Makes a communicator of the ranks `group`, split from `parent` or, if that is null, new. `start` is the
  // NCCL call that begins it. Waits until all its ranks have joined; an Error aborts the world.
  SharedHandle make(const std::string& what, std::string group, NcclHandle* parent,
                    const std::function<ncclResult_t(ncclComm_t* made)>& start);

  // The events of a call in the recorder (core/flight/flight_recorder.h), which end when the device has done it.
  using Tickets = SmallList<uint64_t, 4>;

  // Enqueues one call, or a group of them, on `stream` and watches it. An Error aborts the world.
  void enqueue(const SharedHandle& handle, cudaStream_t stream, const std::string& what,
               const std::function<ncclResult_t(ncclComm_t)>& call, Tickets tickets = {});

  // See Communicator.
  void record_in(std::shared_ptr<FlightRecorder> recorder);

  // Ends a communicator that will not be called any more. NCCL may then wait for the whole device, so this
  // first waits until all enqueued calls are done or, past their time-out, aborted. During stack unwinding it
  // does not wait: if a call is still in flight, the world is aborted.
  void forget(const SharedHandle& handle) noexcept;
  // Aborts all communicators, here and, through the host's communicator, on the other ranks. The first reason
  // is kept.
  void abort(std::string_view why) noexcept;

 private:
  struct Pending {
    cudaEvent_t done;
    SharedHandle handle;
    WaitClock clock;  // since it was enqueued
    std::string what;
    Tickets tickets;
  };
  class Calling;

  void throw_if_aborted() const;
  // At least kConnecting, even if the time-out of calls is shorter: ranks may start NCCL seconds apart.
  std::chrono::milliseconds time_to_connect() const;
  void join(const std::string& what, NcclHandle* parent, const SharedHandle& made,
            const std::function<ncclResult_t(ncclComm_t* made)>& start);
  void accept(ncclResult_t result, ncclComm_t communicator, const std::string& what, const std::string& group,
              std::chrono::milliseconds timeout);
  std::string this_rank() const;
  void tell_and_abort(const Error& error) noexcept;
  void watch(const SharedHandle& handle, cudaStream_t stream, const std::string& what, Tickets tickets);
  void watch_loop();
  std::string look();
  std::string trouble_with(Pending& pending);
  std::string trouble_of_others();
  cudaEvent_t take_event();

  Communicator& host_;
  std::unique_ptr<Communicator> news_;  // another communicator of the host, used by the watching thread only
  const Nccl& nccl_;
  std::unique_ptr<StreamMarks> marks_;
  std::chrono::milliseconds timeout_;
  std::atomic<bool> aborted_{false};
  std::string why_;   // written once, before aborted_
  std::mutex mutex_;  // guards the members below; never held while waiting for a handle
  std::condition_variable changed_;
  std::shared_ptr<FlightRecorder> recorder_;
  std::vector<SharedHandle> handles_;
  int calling_ = 0;  // threads that wait for NCCL to accept a call
  std::deque<Pending> pending_;
  std::deque<Pending> given_up_;  // the pending calls at the time of the abort
  std::vector<cudaEvent_t> spare_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace trifold::cuda
