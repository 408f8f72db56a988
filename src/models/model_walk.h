// walk_work: the work of each block of a model for one micro-batch. It calls the layers on Dry streams with a log
// (core/work_log.h), so no block needs to declare its costs.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "config/fields/config.h"
#include "core/layer_type.h"
#include "models/model.h"

namespace trifold {

// The work of a block in F, I, W and in a whole backward (schedule/action.h); in a forward without a backward, in which
// an output loss computes no gradients; and the bytes that its F keeps for the backward, its output included.
struct WalkedBlock {
  std::vector<Work> forward, input, weight, backward, evaluation;
  size_t kept = 0;
};

// The work of all blocks; blocks that are alike (Block::like) share a WalkedBlock.
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

// Walks a training step with one micro-batch, `batch`, whose tensors need no memory, on a rank of the planned mesh
// `mesh`. `ops` is one of counting_ops; `load` as in WorkLog.
WalkedModel walk_work(const Model& model, const Mesh& mesh, const Batch& batch, LayerType type,
                      const OpTable& ops, double load = 1);

double flops_of(std::span<const Work> work);

// Model flops of one sample in a training step, forward and backward, computed for the whole model on one rank, so they
// depend neither on the mesh nor on recomputation. By Megatron-LM's convention causal attention counts half of the T x
// T scores, and the vocabulary counts in full, with its padding for `tensor_ranks`.
struct SampleFlops {
  double first = 0;  // products of a first block that is not only an embedding, as a graph may have
  std::vector<double> layers;
  double head = 0;
  double embedded = 0;    // elements that the embedding writes
  double moving() const;  // the time to write them, in flops
  double all() const;
};
SampleFlops sample_flops(const ModelConfig& config, int tensor_ranks);

// Costs by which stages are balanced: the flops of each block's forward, and the time to move the embedding's rows,
// expressed in flops.
std::vector<double> block_costs(const Model& model, const SampleFlops& flops);

}  // namespace trifold
