// The memory in which one rank's executor works: slots for micro-batches in flight, memory for gradients that
// wait for their W, and messages. All of it is allocated once; a dry walk of the plan measures its size.
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
  size_t keep = 0;  // of one slot
  int slots = 0;    // micro-batches in flight at once
  size_t held = 0;  // activation gradients of one micro-batch from its I to its W
  int pending = 0;  // micro-batches between I and W at once
  // [block] what it keeps of one micro-batch if the plan off-loads that, otherwise 0: it is in `keep`. Empty: none.
  std::vector<size_t> kept_blocks = {};
  // Without kept blocks.
  size_t total() const { return keep * static_cast<size_t>(slots) + held * static_cast<size_t>(pending); }
};

// Bytes of activation memory that a plan needs on one rank, and the other results of its walk.
struct ActivationMemory {
  std::vector<StageMemory> stages;
  size_t flow = 0;     // of one of the gradient arenas of B
  int flows = 2;       // 1 if every stage has only one block
  size_t scratch = 0;  // temporaries
  size_t beside = 0;   // those of a forward beside a backward; 0 if the plan has no such pairs
  size_t message = 0;  // of one message
  int messages = 0;
  size_t kept_blocks = 0;  // the most bytes of kept blocks in memory at once; on a device those of the places
  int kept_places = 0;     // for them there
  int batches = 1;         // micro-batches whose data must stay valid at once, copied by the
                           // executor to a device; 0: they are already there
  std::vector<int> micro_order;  // micro-batches in the order in which their data is requested
  size_t total() const;
  // Bytes of the file, or of host memory, for all kept blocks of all slots.
  size_t file_bytes() const;
  size_t largest_kept_block() const;
};

// A tensor sent between two stages: an activation going forward or its gradient coming back.
struct Message {
  // x of a stage, dy of a stage; y and dx to be sent.
  enum class Role { Free, Input, Gradient, Output, Outgoing };
  explicit Message(Arena arena) : memory(std::move(arena)) {}

  Arena memory;
  Tensor tensor;
  Role role = Role::Free;
  int stage = 0;  // the stage of x, dy or dx
  int micro = 0;
  Event ready;  // the content has arrived
  Event spare;  // the last reader is done
};

class Messages {
 public:
  // `count` messages of `bytes`; a measuring instance makes messages on demand.
  Messages(size_t bytes, int count, Device* device = nullptr);
  static Messages measuring();

  // A free message, the one that has been free longest; `stream` waits until its last reader is done.
  Message& take(Message::Role role, int stage, int micro, DType dtype, const Shape& shape, Stream& stream);
  // Null if there is none.
  Message* find(Message::Role role, int stage, int micro);
  // `spare`: completes when its last reader is done.
  void release(Message& message, const Event& spare = {});

  void release_all();

  int count() const { return static_cast<int>(all_.size()); }
  size_t bytes() const;  // of the largest

 private:
  std::vector<std::unique_ptr<Message>> all_;
  std::vector<Message*> free_;  // in the order of their release
  bool measuring_ = false;
};

// The tensors that one micro-batch keeps on one stage from its forward to its last backward.
struct Slot {
  explicit Slot(Arena arena) : keep(std::move(arena)) {}

  Arena keep;
  // [block] null: what it keeps is in `keep`. Blocks at the end may be missing.
  std::vector<std::unique_ptr<KeptBlock>> kept_blocks;
  // Of a block; null if there is none, or no such block.
  KeptBlock* kept_block(int block) {
    const auto index = static_cast<size_t>(block);
    return block >= 0 && index < kept_blocks.size() ? kept_blocks[index].get() : nullptr;
  }
  std::vector<Saved> saved;  // one per block; made when the slot is first used
  int forwarded = 0;         // blocks that have gone forward
  Batch batch;
  Tensor output;    // of the stage's last block; in a message if another rank continues
  Tensor gradient;  // of the output of the block whose backward comes next
  int micro = Action::kAll;
  Event sent;             // its output has been sent
  bool finished = false;  // its last backward is done; a stage behind may still read its output
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
  // `place` is where the kept blocks begin in their file, and is moved behind them; on a device they have no memory of
  // their own.
  StageSlots(const StageMemory& memory, Device* device, size_t& place);
  static StageSlots measuring();

  // Of a measuring instance: the plan off-loads what this block keeps.
  void add_kept_block(int block);
  Slot& take(int micro, Stream& stream);
  Slot* find(int micro);  // null if the micro-batch is not in flight
  Slot& of(int micro);    // throws then
  void release(Slot& slot) { slot.micro = Action::kAll; }
  PendingWeightGrad& add_pending(int micro);
  PendingWeightGrad* find_pending(int micro);
  void release(PendingWeightGrad& pending) { pending.micro = Action::kAll; }
  void release_all();

  StageMemory measured() const;

 private:
  StageSlots() = default;

  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<std::unique_ptr<PendingWeightGrad>> pending_;
  std::vector<bool> offloaded_;  // [block] of a measuring instance
  bool measuring_ = false;
};

}  // namespace trifold
