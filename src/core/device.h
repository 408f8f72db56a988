// Device: an accelerator with its own memory, and DeviceQueue: an in-order queue of work on it. The CUDA module
// (src/core/cuda) implements both. A null Device* means the host, which has neither.
//
// Only core, ops and comm call these. Other rooms make a Buffer, an Arena or a Stream with the device of
// their OpTable (`ops.device`) and use it as on the host, with one restriction: *the host must not read device
// memory*. It copies tensors with the table's `copy`, one side of which may be a host tensor, and reads small results
// from a Buffer::shared after `Stream::synchronize`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace trifold {

// Work captured from a queue (DeviceQueue::begin_capture). Owned by the caller; must not outlive its queue. The memory
// that the work reads and writes must still be allocated at each launch.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
};

// A queue belongs to one Stream. Calls may come from any thread, but only one thread at a time may enqueue.
class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;

  // The back end's own handle (a cudaStream_t); makes its device current on the calling thread.
  virtual void* native() = 0;

  // A ticket for all work enqueued so far. Tickets grow.
  virtual uint64_t record() = 0;
  // Work enqueued here from now on starts after `ticket` of `other`, a queue of the same back end. Does not
  // block.
  virtual void wait(DeviceQueue& other, uint64_t ticket) = 0;
  // Block the caller until the work before `ticket`, or all enqueued work, is done. Throw errors of the device.
  virtual void await(uint64_t ticket) = 0;
  virtual void synchronize() = 0;

  // Copies between any two of device, shared and ordinary memory. An ordinary source is read before this
  // returns; an ordinary destination must stay allocated until the queue has executed the copy.
  virtual void copy(void* to, const void* from, size_t bytes) = 0;
  // Scratch memory on the device for the work that is enqueued next. An earlier workspace may be reused, or freed once
  // the queue has executed its work. Calls with the same number of bytes return the same address.
  virtual void* workspace(size_t bytes) = 0;
  // Throws if the latest launch was rejected; `what` names it in the message.
  virtual void check_launch(const char* what) = 0;

  // ---- graphs: many pieces of work, launched as one ----
  // Work enqueued between begin_capture and end_capture, by the thread that calls these, is captured with its
  // arguments instead of executed; values that change between launches must be in device memory. Waits,
  // events, host work (Stream::run) and workspaces larger than any before cannot be captured: they throw.
  // end_capture must be called even after an exception; it throws itself if the device abandoned the
  // capture.
  virtual void begin_capture() = 0;
  virtual std::unique_ptr<DeviceGraph> end_capture() = 0;
  // Enqueues the work of `graph`, captured from this queue. It may be destroyed once this has returned.
  virtual void launch(DeviceGraph& graph) = 0;
};

// The purpose, and so the priority, of a queue. A device starts work of Communicating queues first, because it is short
// and other ranks wait for it. Other short work that the next step waits for uses Communicating queues too.
enum class QueueUse { Computing, Communicating };

struct DeviceMemory {
  size_t free = 0;   // bytes
  size_t total = 0;  // bytes
};

class Device {
 public:
  virtual ~Device() = default;

  virtual std::string name() const = 0;  // "cuda:0 (NVIDIA H200)", for reports and messages
  virtual DeviceMemory memory() const = 0;

  // Zero-initialised memory of the device, aligned for every access. If memory is short, throws an Error that
  // says how much was free.
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void* memory) noexcept = 0;
  // Zero-initialised host memory that the device can read and write at the same address.
  virtual void* allocate_shared(size_t bytes) = 0;
  virtual void release_shared(void* memory) noexcept = 0;

  virtual std::unique_ptr<DeviceQueue> make_queue(QueueUse use = QueueUse::Computing) = 0;
};

}  // namespace trifold
