// GraphBlock: a block of a model that was lowered from a graph, as a layer of the engine.
//
// Its input and output are one tensor of one dim each: the bases that cross the boundary, one after another, each at an
// offset that is a multiple of kBoundaryAlignment. A base that a later block reads is passed on by every block between.
// Gradients of a boundary are packed in the same way; a block adds its contributions to the gradients from later blocks, so sums
// have the order of the consumers, from the last to the first.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/lower/lowered.h"
#include "graph/steps/step.h"
#include "nn/layer.h"

namespace trifold::graph {

// The parameters of a model while its blocks are made.
struct ModelParameters {
  ModelParameters(const LoweredGraph& lowered, Init values)
      : init(values), first_uses(lowered.bases.size()) {}

  Init init;                        // for all parameters
  std::vector<ParamId> first_uses;  // for each of LoweredGraph::bases
};

// Parts of a boundary begin at multiples of so many elements, and its sizes are multiples too.
constexpr int64_t kBoundaryAlignment = 64;

// Elements of the boundary after a block; 0 after the last.
Size boundary_elements(const LoweredGraph& lowered, const BlockPlan& block);

class GraphBlock final : public Layer {
 public:
  // Block `index` of `lowered`, which must outlive it. Adds the block's parameters to `builder` and to `parameters`.
  GraphBlock(BlockBuilder& builder, std::shared_ptr<const LoweredGraph> lowered, size_t index,
             ModelParameters& parameters);
  ~GraphBlock() override;

  Tensor forward(Run& run, Tensor x, Saved& saved) const override;
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override;
  void backward_weight(Run& run, Saved& saved) const override;
  bool adds_in_backward_input() const override { return adds_in_backward_input_; }
  bool adds_in_forward() const override { return adds_in_forward_; }
  bool weight_backward_reads_weights() const override { return true; }

 private:
  struct BlockStep;
  using StepOperands = std::vector<std::vector<std::vector<Operand>>>;  // [step][argument]

  int local(int base);
  void add_parameter(BlockBuilder& builder, BlockBase& base, int index, ModelParameters& parameters);
  void make_steps(BlockBuilder& builder, ModelParameters& parameters);
  // The operands' bases that steps of this block compute; and those, or the output, that a step's backward reads.
  std::vector<int> computed_here(std::span<const Operand> operands) const;
  std::vector<int> read_in_backward(const BlockStep& step) const;
  void find_added_in_parts(BlockBuilder& builder, const StepOperands& operands) const;
  void find_repeated(const StepOperands& operands);
  template <class ReadBy>
  void plan_repeats(const StepOperands& operands, std::span<const int> step_of,
                    std::vector<int> BlockStep::*repeats, const ReadBy& read_by);
  void repeat(Frame& frame, Saved& saved, const std::vector<int>& steps) const;
  double loss_weight(int64_t batch) const { return count_.exists() ? 1 : static_cast<double>(batch); }
  void add_loss(Run& run, Frame& frame) const;
  Tensor take_gradients(Run& run, const Frame& frame, Saved& saved) const;
  void begin_gradients(Run& run, Frame& frame, Tensor dx, Tensor dy, const Saved& saved) const;

  std::shared_ptr<const LoweredGraph> lowered_;
  const BlockPlan& plan_;
  bool is_first_, is_last_;
  Size entering_, leaving_;     // elements of the boundaries
  std::map<int, int> numbers_;  // the block's index of a base of the model
  std::vector<BlockBase> bases_;
  std::vector<BlockStep> steps_;
  Operand loss_, count_;  // with bases of the block; only in the last
  SlotId x_;
  bool adds_in_backward_input_ = false, adds_in_forward_ = false;
};

}  // namespace trifold::graph
