// WholeMatrices: the directions of matrices, made orthogonal by their owners (MatrixPlan). Parts of directions are in
// the memory of gradients, where `update` of the rule then finds the results.
#pragma once

#include <vector>

#include "data_parallel/gradient_buffer.h"
#include "optim/update_rule.h"
#include "zero/matrix_plan.h"

namespace trifold {

class WholeMatrices {
 public:
  // Directions are in `dtype`. References must outlive the object. Collective over the ranks of the stage.
  WholeMatrices(const FlatLayout& layout, const Mesh& mesh, const GradientBuffer& grads,
                const UpdateRule& rule, const OpTable& ops, DType dtype, Stream& stream);

  // Replaces the directions of a unit's matrices by orthogonal ones, multiplied by the rule's scale. Called by all ranks
  // of the stage, unit by unit, in the order of `step` of the optimizer.
  void orthogonalise(size_t unit, Stream& stream);

  size_t bytes() const { return staging_.bytes() + work_.bytes() + partials_.bytes(); }

 private:
  // This rank's elements of a part, in the memory of gradients.
  Tensor own(const FlatLayout::Unit& unit, ParamId id, const MatrixPlan::Part& part) const;
  // Sends parts to owners, or, if `back`, from owners.
  void exchange(size_t unit, bool back, Stream& stream);
  void compute(const FlatLayout::Unit& unit, const MatrixPlan::Matrix& matrix, int64_t& taken,
               Stream& stream);
  // Copies the boxes of a part to the matrix in `x`, or, if `back`, from it.
  void place(const MatrixPlan::Matrix& matrix, const MatrixPlan::Part& part, Tensor values, Tensor x,
             bool back, Stream& stream) const;
  Tensor staged(int64_t begin, int64_t count) const;

  const FlatLayout& layout_;
  const Mesh& mesh_;
  const GradientBuffer& grads_;
  const UpdateRule& rule_;
  const OpTable& ops_;
  DType dtype_;
  MatrixPlan plan_;
  Buffer staging_, work_, partials_;
  std::vector<Transfer> transfers_;
};

}  // namespace trifold
