// The memory of a rank's executor: slots for micro-batches in flight, memory for gradients between I and W, and
// messages. All of it is allocated once; a dry run of the plan measures its size.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "nn/layer.h"
#include "pipeline/offloading.h"
#include "schedule/action.h"

namespace trifold {

// Bytes of activation memory of one stage.
struct StageMemory {
  size_t keep = 0;  // one slot
  int slots = 0;    // the most micro-batches in flight at the same time
  size_t held = 0;  // activation gradients of one micro-batch from its I to its W
  int pending = 0;  // the most micro-batches between I and W at the same time
  // [block] the kept block of one micro-batch if the plan off-loads it; 0: the tensors are in `keep`. Empty: no kept
  // blocks.
  std::vector<size_t> kept_blocks = {};
  // All memory except kept blocks.
  size_t total() const { return keep * static_cast<size_t>(slots) + held * static_cast<size_t>(pending); }
};

// Bytes of activation memory that a plan needs on one rank, and the other results of its dry run.
struct ActivationMemory {
  std::vector<StageMemory> stages;
  size_t flow = 0;          // one of the gradient arenas of B
  int flows = 2;            // 1 if every stage has only one block
  size_t scratch = 0;       // temporaries
  size_t pair_scratch = 0;  // temporaries and gradients of the forward of a pair; 0 if the plan has no pairs
  size_t message = 0;       // one message
  int messages = 0;
  // The most bytes of kept blocks in memory at the same time; on a device, all their buffers.
  size_t kept_blocks = 0;
  int kept_buffers = 0;  // buffers for kept blocks on a device
  // The most micro-batches whose data must be valid at the same time, which the executor copies to a device; 0: the
  // data is already there.
  int batches = 1;
  std::vector<int> micro_order;  // micro-batches in the order in which their data is requested
  size_t total() const;
  // Bytes of the file, or of host memory, for all kept blocks of all slots.
  size_t file_bytes() const;
  size_t largest_kept_block() const;
};

// A tensor sent between two stages: an activation or its gradient.
struct Message {
  // Input: x of a stage; Gradient: dy of a stage; Output and Outgoing: y and dx to be sent.
  enum class Role { Free, Input, Gradient, Output, Outgoing };
  explicit Message(Arena arena) : memory(std::move(arena)) {}

  Arena memory;
  Tensor tensor;
  Role role = Role::Free;
  int stage = 0;  // the stage of x, dy or dx
  int micro = 0;
  Event ready;  // completes when the content has arrived
  Event spare;  // completes with the last reader
};

class Messages {
 public:
  // `count` messages of `bytes` each. A measuring instance makes messages on demand.
  Messages(size_t bytes, int count, Device* device = nullptr);
  static Messages measuring();

  // Takes the message that has been free longest; `stream` waits for its last reader.
  Message& take(Message::Role role, int stage, int micro, DType dtype, const Shape& shape, Stream& stream);
  // Null if there is none.
  Message* find(Message::Role role, int stage, int micro);
  // `spare`: completes when its last reader is done.
  void release(Message& message, const Event& spare = {});

  void release_all();

  int count() const { return static_cast<int>(all_.size()); }
  size_t bytes() const;      // size of the largest message
  size_t allocated() const;  // bytes of all messages

 private:
  std::vector<std::unique_ptr<Message>> all_;
  std::vector<Message*> free_;  // in order of release
  bool measuring_ = false;
};

// The tensors that one micro-batch keeps on one stage from its forward to its last backward.
struct Slot {
  explicit Slot(Arena arena) : keep(std::move(arena)) {}

  Arena keep;
  // [block] null: the block's tensors are in `keep`. Blocks at the end may be missing.
  std::vector<std::unique_ptr<KeptBlock>> kept_blocks;
  // The kept block of a block; null if there is none.
  KeptBlock* kept_block(int block) {
    const auto index = static_cast<size_t>(block);
    return block >= 0 && index < kept_blocks.size() ? kept_blocks[index].get() : nullptr;
  }
  std::vector<Saved> saved;  // by block; made when the slot is first used
  int forwarded = 0;         // blocks whose forward has run
  Batch batch;
  Tensor output;    // the stage's output; in a message if another rank has the next stage
  Tensor gradient;  // the gradient of the output of the block whose backward is next
  int micro = Action::kAll;
  Event sent;             // completes when the output has been sent
  bool finished = false;  // the last backward is done; a later stage may still read the output
};

// Gradients of a micro-batch between I and W.
struct PendingWeightGrad {
  explicit PendingWeightGrad(Arena arena) : memory(std::move(arena)) {}

  Arena memory;
  int micro = Action::kAll;
};

// The slots of one stage.
class StageSlots {
 public:
  // `offset`: in, the offset of the kept blocks in the file or in host memory; out, the offset after them. On a device
  // kept blocks have no memory of their own.
  StageSlots(const StageMemory& memory, Device* device, size_t& offset);
  static StageSlots measuring();

  // For a measuring instance: the plan off-loads this block's tensors.
  void add_kept_block(int block);
  Slot& take(int micro, Stream& stream);
  Slot* find(int micro);  // null if the micro-batch is not in flight
  Slot& of(int micro);    // throws if the micro-batch is not in flight
  void release(Slot& slot) { slot.micro = Action::kAll; }
  PendingWeightGrad& add_pending(int micro);
  PendingWeightGrad* find_pending(int micro);
  void release(PendingWeightGrad& pending) { pending.micro = Action::kAll; }
  void release_all();

  StageMemory measured() const;
  // Bytes of all slots and gradients, without kept blocks.
  size_t allocated() const;

 private:
  StageSlots() = default;

  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<std::unique_ptr<PendingWeightGrad>> pending_;
  std::vector<bool> offloaded_;  // [block] set by add_kept_block
  bool measuring_ = false;
};

}  // namespace trifold
