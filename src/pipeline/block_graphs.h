// BlockGraphs: what a block puts on a device's queue for its part of an action, written down once and
// launched as one from then on (DeviceQueue::begin_capture; a CUDA graph). The host then neither walks the
// layers nor launches their kernels one by one, which is what a step of many small kernels waits for.
//
// A graph is good as long as every address in it is. Addresses repeat from step to step, because slots,
// messages, batches and arenas are taken in the order of the plan; but not from micro-batch to micro-batch.
// So graphs are kept by all that a block's work is made of: the part (forward, backward ...), the block, and
// the addresses of its input, of what it saved, its batch, weights and gradients, which of the gradients are
// begun, and the fill of the arenas.
//   first time met    done as ever: libraries choose their algorithms and workspaces grow, which no graph may
//   second time       captured, and launched
//   from then on      launched; the tensors that it leaves and the fill of the arenas are as they were then
// Numbers that change from step to step are read from the device's memory (Batch::sample, loss_factors).
//
// Where a queue refuses to capture a part it is done as ever from then on, and `note` says so. Waiting for
// weights, messages and collectives of other streams is the executor's and outside. Not for blocks with
// collectives of their own (tensor ranks): they would be captured on some ranks, and met by others that do
// not wait for them.
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

// A block's part of an action, as it is about to be computed.
struct BlockWork {
  ActionKind kind;
  int block = 0;              // of the model
  const Run& run;             // its arenas are the same objects each time
  Tensor* through = nullptr;  // what goes in, and then what comes out; null: nothing does
  Saved& saved;
  bool reads_weights = true;   // they are there
  bool adds_gradients = true;  // they are open
};

class BlockGraphs {
 public:
  // Of the blocks of a rank, whose parameters `params` names. All work is on `stream`, which has a device.
  // Both must outlive this.
  BlockGraphs(const ParamList& params, Stream& stream);

  // Does `work`, or what it would do. `compute` does it through the layer, and sets work.through.
  void run(const BlockWork& work, FunctionRef<void()> compute);

  // The first part that could not be captured, and why; empty while all could. A part that the queue refused
  // takes precedence over one with too many addresses.
  const std::string& note() const { return note_; }
  // Whether `note` is of a part that the queue refused.
  bool refused() const { return refused_; }

 private:
  // Of a block's part: sets of addresses that are kept. Each graph takes memory of the device.
  static constexpr int kMostGraphs = 64;
  using Key = std::vector<uint64_t>;
  using Fill = std::array<Arena::Mark, 4>;  // of keep, flow, scratch and output
  struct Entry {
    std::unique_ptr<DeviceGraph> graph;  // null: met once
    Tensor through;                      // as the work leaves them
    std::vector<Tensor> saved;
    Fill fill{};
    std::vector<ParamId> begins;  // gradients
  };
  struct Part {
    int entries = 0;
    bool refused = false;
  };

  void make_key(const BlockWork& work);
  // Of the gradients that the work may write, those that are not begun.
  std::vector<ParamId> not_begun(const BlockWork& work) const;
  void add(const Tensor& tensor);
  void capture(const BlockWork& work, Part& part, Entry& entry, FunctionRef<void()> compute);
  void launch(const BlockWork& work, Entry& entry);

  Stream& stream_;
  std::vector<std::vector<ParamId>> params_;  // of each block
  std::map<Key, Entry> entries_;
  std::map<std::pair<ActionKind, int>, Part> parts_;
  Key key_;  // of the work at hand
  std::string note_;
  bool refused_ = false;
};

}  // namespace trifold
