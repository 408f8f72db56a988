// What the blocks of a model do with one micro-batch: found by walking their layers on Dry streams with a log
// (core/work_log.h). No block states its costs.
#pragma once

#include <span>
#include <vector>

#include "config/fields/config.h"
#include "models/model.h"

namespace trifold {

// In F, I, W and in a whole backward (schedule/action.h).
struct WalkedBlock {
  std::vector<Work> forward, input, weight, backward;
};

// Blocks that are alike (Block::like) share one.
class WalkedModel {
 public:
  WalkedModel() = default;
  WalkedModel(std::vector<WalkedBlock> kinds, std::vector<size_t> kind_of_block)
      : kinds_(std::move(kinds)), kind_of_block_(std::move(kind_of_block)) {}
  const WalkedBlock& of_block(size_t block) const { return kinds_[kind_of_block_[block]]; }
  size_t blocks() const { return kind_of_block_.size(); }

 private:
  std::vector<WalkedBlock> kinds_;
  std::vector<size_t> kind_of_block_;
};

// A training step of one micro-batch, `batch`, whose tensors need no memory, on the rank of `mesh`, which is planned.
// `ops` is one of counting_ops; `load` as in WorkLog.
WalkedModel walk_work(const Model& model, const Mesh& mesh, const Batch& batch, DType dtype,
                      const OpTable& ops, double load = 1);

double flops_of(std::span<const Work> work);

// Model flops of one sample in a training step, forward and backward: those of the whole model on one rank, so that no
// mesh and no recomputation counts. By Megatron-LM's convention causal attention counts half of the T x T scores, and
// the vocabulary as it is padded for `tensor_ranks` in full.
struct SampleFlops {
  std::vector<double> layers;
  double head = 0;
  double embedded = 0;  // not flops: the numbers that the embedding writes
  double all() const;
};
SampleFlops sample_flops(const ModelConfig& config, int tensor_ranks);

// By which stages are balanced: flops of a forward of each block of a model of that configuration. The embedding has no
// products; its cost is that of moving its rows, expressed in the flops that a machine does in the time.
std::vector<double> block_costs(const Model& model, const SampleFlops& flops);

}  // namespace trifold
