// Device: a place other than the host's memory where tensors live and arithmetic runs, and DeviceQueue: an
// in-order queue of work on it. The CUDA module (src/core/cuda) implements both; the host has neither, so a
// null Device* means the host everywhere.
//
// Nothing above core, ops and comm calls these: it makes a Buffer, an Arena or a Stream with the device of
// its OpTable (`ops.device`) and goes on as before. The rule that a device adds: *memory on it is not the
// host's to read*. The host reaches it with the table's `copy`, one side of which may be a host tensor, and
// reads results that are small from a Buffer::shared after `Stream::synchronize`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace trifold {

// Work that a queue wrote down (DeviceQueue::begin_capture). Belongs to whoever asked for it and must not
// outlive its queue; what it reads and writes must be there whenever it is launched.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
};

// Belongs to one Stream. Calls may come from any thread, but those that enqueue from one at a time.
class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;

  // What the back end's own calls take (a cudaStream_t); makes its device the calling thread's current one.
  virtual void* native() = 0;

  // A ticket for all work enqueued so far. Tickets grow.
  virtual uint64_t record() = 0;
  // Work enqueued here from now on starts after `ticket` of `other`, a queue of the same back end. Returns at
  // once.
  virtual void wait(DeviceQueue& other, uint64_t ticket) = 0;
  // Blocks the caller until the work before `ticket`, or all of it, is done. Throws what went wrong on the
  // device.
  virtual void await(uint64_t ticket) = 0;
  virtual void synchronize() = 0;

  // Copies between any two of device, shared and ordinary memory. Ordinary memory may be read only until this
  // returns, and must stay until the queue is past it where it is written.
  virtual void copy(void* to, const void* from, size_t bytes) = 0;
  // Memory of the device for one piece of work enqueued here: what was given before may be used again, or
  // freed once the queue is past it. Calls with the same number of bytes give the same address.
  virtual void* workspace(size_t bytes) = 0;
  // Throws when what was enqueued last was refused; `what` names it.
  virtual void check_launch(const char* what) = 0;

  // ---- graphs: many pieces of work, enqueued as one ----
  // What is enqueued from begin_capture to end_capture, by the thread that calls these, is not done but
  // written down, with its arguments: what differs from launch to launch must stand in the device's memory.
  // What waits, is waited for or is the host's (Stream::run) cannot be part of it, nor can a workspace larger
  // than any before: they throw. end_capture must follow whatever has been thrown; it throws too where the
  // device gave up writing.
  virtual void begin_capture() = 0;
  virtual std::unique_ptr<DeviceGraph> end_capture() = 0;
  // Enqueues what `graph`, of this queue, holds. It may be destroyed once this has returned.
  virtual void launch(DeviceGraph& graph) = 0;
};

// What a queue is for. Where a device can start work of several queues, that of communication goes first: it
// is little, and other ranks wait for it.
enum class QueueUse { Computing, Communicating };

struct DeviceMemory {
  size_t free = 0;   // bytes
  size_t total = 0;  // bytes
};

class Device {
 public:
  virtual ~Device() = default;

  virtual std::string name() const = 0;  // "cuda:0 (NVIDIA H200)": shown to people
  virtual DeviceMemory memory() const = 0;

  // Zero-initialised memory of the device, aligned for every access. Throws an Error that says how much was
  // free when there is not enough.
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void* memory) noexcept = 0;
  // Zero-initialised host memory that the device reads and writes under the same address.
  virtual void* allocate_shared(size_t bytes) = 0;
  virtual void release_shared(void* memory) noexcept = 0;

  virtual std::unique_ptr<DeviceQueue> make_queue(QueueUse use = QueueUse::Computing) = 0;
};

}  // namespace trifold
