// Products of the matrices that operands' last two axes address, for each index of the axes before them.
#pragma once

#include "graph/steps/step.h"

namespace trifold::graph {

struct Matrices {
  Tensor tensor;
  StridedView view;
  Box box;  // at least two axes

  Matrices transposed() const;
  // The matrices of one index of the first axis.
  Matrices at(int64_t index) const;
};

// Matrices whose elements lie in the order of the box.
Matrices in_order(Tensor tensor, const Box& box);
Matrices matrices(Frame& frame, const Operand& operand, DType dtype);

// c = alpha a b. The boxes of a, b and c have equal axes before the last two; c's rows are contiguous, and no element of
// c is addressed twice. Copies a and b if neither rows nor columns of their matrices are contiguous.
void multiply(const Frame& frame, const Matrices& c, Matrices a, Matrices b, double alpha = 1);

}  // namespace trifold::graph
