// StepNumbers: numbers that change from step to step in the memory of a device, where operations read them
// when they run (Factor::number, the `numbers` of update rules). The host writes them to pinned memory when
// it knows them, and a copy follows on the stream of those who read: launches of before see the numbers of
// before. For a table of the host there are none: there numbers come with the calls.
#pragma once

#include "core/function_ref.h"
#include "ops/ops.h"

namespace trifold {

class StepNumbers {
 public:
  // Rows of kRuleNumbers numbers. `ops` must outlive this.
  StepNumbers(const OpTable& ops, int64_t rows);

  // Calls write(row) for every row and enqueues the copy, after the last one has been read. Nothing on the
  // host. `stream` is the same each time, that of all who read, and must outlive this.
  void send(Stream& stream, FunctionRef<RuleNumbers(int64_t row)> write);

  // f64 [kRuleNumbers]; without memory on the host.
  Tensor row(int64_t index) const;

 private:
  Tensor all(const Buffer& buffer) const;  // f64 [rows, kRuleNumbers]

  const OpTable& ops_;
  int64_t rows_;
  Buffer host_, device_;
  Event copied_;
};

}  // namespace trifold
