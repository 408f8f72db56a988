// StepNumbers keeps scalars that change every step in device memory, so that kernels read them at run time
// (Factor::number, the `numbers` of update rules) and a captured graph can be replayed. The host writes a pinned copy
// and enqueues the transfer on the reading stream; work already enqueued keeps the old values. On the CPU the scalars
// are passed with the calls instead.
#pragma once

#include "core/function_ref.h"
#include "ops/ops.h"

namespace trifold {

class StepNumbers {
 public:
  // Allocates [rows, kRuleNumbers] scalars. `ops` must outlive this object.
  StepNumbers(const OpTable& ops, int64_t rows);

  // Calls write(row) for every row and enqueues the copy, once the previous copy has been read. Does nothing on the
  // CPU. `stream` must be the stream of all readers, the same each time, and outlive this object.
  void send(Stream& stream, FunctionRef<RuleNumbers(int64_t row)> write);

  // f64 [kRuleNumbers] in device memory; without memory on the CPU.
  Tensor row(int64_t index) const;

 private:
  Tensor all(const Buffer& buffer) const;  // f64 [rows, kRuleNumbers]

  const OpTable& ops_;
  int64_t rows_;
  Buffer host_, device_;
  Event copied_;
};

}  // namespace trifold
