// BlockGraphs captures the work that a block enqueues on a device for its part of an action, and replays it
// as one launch from then on (DeviceQueue::begin_capture; a CUDA graph). The host then neither walks the
// layers nor launches their kernels one by one, which would limit a step of many small kernels.
//
// A graph is valid as long as all addresses in it are. Addresses repeat from step to step, because slots, messages,
// batches and arenas are taken in the order of the plan, but differ between micro-batches. The key of a graph therefore
// includes everything that a block's work depends on: the part (forward, backward, ...), the block, the addresses of
// its input, saved tensors, batch, weights and gradients, the gradients that are begun, and the fill levels of the
// arenas.
//   first time    executed without capture, because libraries choose algorithms and allocate workspaces, which a graph
//                 must not contain
//   second time   captured and launched
//   later         launched; output tensors and fill levels of the arenas are restored as they were after the capture
// Values that change every step are read from device memory (Batch::sample, loss_factors).
//
// If a queue refuses to capture a part, that part is executed without graphs from then on, and `note` says why. The
// executor waits for weights, messages and collectives on other streams outside of graphs. Blocks that contain
// collectives (tensor ranks) are not supported: some ranks might capture a collective while others execute it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/function_ref.h"
#include "nn/layer.h"
#include "schedule/action.h"

namespace trifold {

// A block's part of an action.
struct BlockWork {
  ActionKind kind;
  int block = 0;              // index in the model
  const Run& run;             // its arenas must be the same objects in every call
  Tensor* through = nullptr;  // the input, then the output; null: nothing flows through
  Saved& saved;
  bool reads_weights = true;   // the weights are available
  bool adds_gradients = true;  // the gradients are open
};

class BlockGraphs {
 public:
  // For the blocks of a rank, with the model's parameters `params`. All work is on `stream`, which has a device. Both
  // must outlive this object.
  BlockGraphs(const ParamList& params, Stream& stream);

  // Executes `work`, by a graph or by calling `compute`, which must call the layer and set work.through.
  void run(const BlockWork& work, FunctionRef<void()> compute);

  // The first part that could not be captured, and why; empty if all could. A part that the queue refused
  // takes precedence over one with too many sets of addresses.
  const std::string& note() const { return note_; }
  // Whether `note` is about a part that the queue refused.
  bool refused() const { return refused_; }

 private:
  // The most graphs for a block's part; each takes device memory.
  static constexpr int kMostGraphs = 64;
  using Key = std::vector<uint64_t>;
  using Fill = std::array<Arena::Mark, 4>;  // fill levels of keep, flow, scratch and output
  struct Entry {
    std::unique_ptr<DeviceGraph> graph;  // null: executed once, not captured yet
    Tensor through;                      // value after the work
    std::vector<Tensor> saved;
    Fill fill{};
    std::vector<ParamId> begins;  // gradients that the work begins
  };
  struct Part {
    int entries = 0;
    bool refused = false;
  };

  void make_key(const BlockWork& work);
  // The gradients that the work may write and that have not been begun.
  std::vector<ParamId> not_begun(const BlockWork& work) const;
  void add(const Tensor& tensor);
  void capture(const BlockWork& work, Part& part, Entry& entry, FunctionRef<void()> compute);
  void launch(const BlockWork& work, Entry& entry);

  Stream& stream_;
  std::vector<std::vector<ParamId>> params_;  // by block
  std::map<Key, Entry> entries_;
  std::map<std::pair<ActionKind, int>, Part> parts_;
  Key key_;  // key of the current work
  std::string note_;
  bool refused_ = false;
};

}  // namespace trifold
