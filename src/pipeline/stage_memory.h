// The memory one rank's executor works in: slots for micro-batches in flight, memory for gradients that wait
// for their W, and messages. All of it is allocated once; a dry walk of the plan measures how much there must
// be.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "nn/layer.h"
#include "schedule/action.h"

namespace trifold {

// Bytes of activation memory of one stage.
struct StageMemory {
  size_t keep = 0;  // of one slot
  int slots = 0;    // micro-batches in flight at once
  size_t held = 0;  // activation gradients of one micro-batch from its I to its W
  int helds = 0;    // micro-batches between I and W at once
  size_t total() const { return keep * static_cast<size_t>(slots) + held * static_cast<size_t>(helds); }
};

// Bytes of activation memory a plan needs on one rank, and the other results of its walk.
struct ActivationMemory {
  std::vector<StageMemory> stages;
  size_t flow = 0;     // of one of the gradient arenas of B
  int flows = 2;       // 1 where no stage has a second block to take turns with
  size_t scratch = 0;  // temporaries
  size_t message = 0;  // of one message
  int messages = 0;
  int batches = 1;               // micro-batches whose data must stay valid at once, and which a device gets
                                 // from the executor; 0: they are there already
  std::vector<int> micro_order;  // micro-batches in the order in which their data is asked for
  size_t total() const;
};

// What travels between two stages: an activation going forward or its gradient coming back.
struct Message {
  // x of a stage, dy of a stage; y and dx that are to be sent.
  enum class Role { Free, Input, Gradient, Output, Outgoing };
  explicit Message(Arena arena) : memory(std::move(arena)) {}

  Arena memory;
  Tensor tensor;
  Role role = Role::Free;
  int stage = 0;  // whose x, dy or dx it is
  int micro = 0;
  Event ready;  // the content is there
  Event spare;  // nobody reads it any more
};

class Messages {
 public:
  // `count` messages of `bytes`; measuring ones are made when they are asked for.
  Messages(size_t bytes, int count, Device* device = nullptr);
  static Messages measuring();

  // A free message, the one longest free; `stream` waits until its last reader is done.
  Message& take(Message::Role role, int stage, int micro, DType dtype, const Shape& shape, Stream& stream);
  // Null when there is none.
  Message* find(Message::Role role, int stage, int micro);
  // `spare`: when its last reader is done.
  void release(Message& message, const Event& spare = {});

  void release_all();

  int count() const { return static_cast<int>(all_.size()); }
  size_t bytes() const;  // of the largest

 private:
  std::vector<std::unique_ptr<Message>> all_;
  std::vector<Message*> free_;  // in the order of their release
  bool measuring_ = false;
};

// What one micro-batch keeps on one stage from its forward to its last backward.
struct Slot {
  explicit Slot(Arena arena) : keep(std::move(arena)) {}

  Arena keep;
  std::vector<Saved> saved;  // a block each; made when the slot is used first
  int forwarded = 0;         // blocks that have gone forward
  Batch batch;
  Tensor output;    // of the stage's last block; in a message where another rank continues
  Tensor gradient;  // of the output of the block whose backward comes next
  int micro = Action::kAll;
  Event sent;  // its output has left
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
  explicit StageSlots(const StageMemory& memory, Device* device = nullptr);
  static StageSlots measuring();

  Slot& take(int micro, Stream& stream);
  Slot& of(int micro);  // throws when the micro-batch is not in flight
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
  bool measuring_ = false;
};

}  // namespace trifold
