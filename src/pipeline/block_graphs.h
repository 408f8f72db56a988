// BlockGraphs captures the work that a block enqueues on a device for its part of an action, and replays it
// as one launch from then on (DeviceQueue::begin_capture; a CUDA graph). The host then neither walks the
// layers nor launches their kernels one by one, which would limit a step of many small kernels.
//
// A graph is valid as long as all addresses in it are. Addresses repeat from step to step, because slots,
// messages, batches and arenas are taken in the order of the plan, but not from micro-batch to micro-batch.
// Graphs are therefore stored under everything that a block's work depends on: the part (forward, backward
// ...), the block, the addresses of its input, saved tensors, batch, weights and gradients, which of the
// gradients are begun, and the fill levels of the arenas.
//   first time        executed without capture, because libraries choose algorithms and allocate workspaces,
//                     which no graph may contain
//   second time       captured and launched
//   from then on      launched; output tensors and the arenas' fill levels are set to those of the capture
// Values that change every step are read from device memory (Batch::sample, loss_factors).
//
// If a queue refuses to capture a part, that part is executed without graphs from then on, and `note` says
// why. Waiting for weights, messages and collectives on other streams is left to the executor, outside of
// graphs. Blocks with collectives of their own (tensor ranks) are not supported: some ranks might capture a
// collective while others execute it.
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

// A block's part of an action that is about to be computed.
struct BlockWork {
  ActionKind kind;
  int block = 0;              // of the model
  const Run& run;             // its arenas must be the same objects each time
  Tensor* through = nullptr;  // the input, then the output; null: nothing flows through
  Saved& saved;
  bool reads_weights = true;   // the weights are available
  bool adds_gradients = true;  // the gradients are open
};

class BlockGraphs {
 public:
  // For the blocks of a rank, whose parameters `params` names. All work is on `stream`, which has a device.
  // Both must outlive this object.
  BlockGraphs(const ParamList& params, Stream& stream);

  // Does `work` by a graph or by `compute`, which must run it through the layer and set work.through.
  void run(const BlockWork& work, FunctionRef<void()> compute);

  // The first part that could not be captured, and why; empty if all could. A part that the queue refused
  // takes precedence over one with too many sets of addresses.
  const std::string& note() const { return note_; }
  // Whether `note` is about a part that the queue refused.
  bool refused() const { return refused_; }

 private:
  // The most sets of addresses stored for a block's part. Each graph takes device memory.
  static constexpr int kMostGraphs = 64;
  using Key = std::vector<uint64_t>;
  using Fill = std::array<Arena::Mark, 4>;  // of keep, flow, scratch and output
  struct Entry {
    std::unique_ptr<DeviceGraph> graph;  // null: executed once, not captured yet
    Tensor through;                      // after the work
    std::vector<Tensor> saved;
    Fill fill{};
    std::vector<ParamId> begins;  // gradients that the work begins
  };
  struct Part {
    int entries = 0;
    bool refused = false;
  };

  void make_key(const BlockWork& work);
  // The gradients that the work may write and that are not begun.
  std::vector<ParamId> not_begun(const BlockWork& work) const;
  void add(const Tensor& tensor);
  void capture(const BlockWork& work, Part& part, Entry& entry, FunctionRef<void()> compute);
  void launch(const BlockWork& work, Entry& entry);

  Stream& stream_;
  std::vector<std::vector<ParamId>> params_;  // of each block
  std::map<Key, Entry> entries_;
  std::map<std::pair<ActionKind, int>, Part> parts_;
  Key key_;  // of the current work
  std::string note_;
  bool refused_ = false;
};

}  // namespace trifold
