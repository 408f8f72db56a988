#include "optim/step_numbers.h"

#include <algorithm>

namespace trifold {

StepNumbers::StepNumbers(const OpTable& ops, int64_t rows) : ops_(ops), rows_(rows) {
  if (ops.device == nullptr) return;
  const size_t bytes = static_cast<size_t>(rows) * sizeof(RuleNumbers);
  host_ = Buffer::shared(bytes, ops.device);
  device_ = Buffer(bytes, ops.device);
}

Tensor StepNumbers::all(const Buffer& buffer) const {
  return buffer.tensor(DType::F64, {rows_, static_cast<int64_t>(kRuleNumbers)});
}

void StepNumbers::send(Stream& stream, FunctionRef<RuleNumbers(int64_t row)> write) {
  if (ops_.device == nullptr) return;
  stream.host().wait(copied_);  // the previous copy has been read from host memory
  for (int64_t row = 0; row < rows_; ++row) {
    const RuleNumbers numbers = write(row);
    std::copy(numbers.begin(), numbers.end(), all(host_).rows(row, row + 1).as<double>());
  }
  ops_.copy(stream, all(device_), all(host_));
  copied_ = stream.record();
}

Tensor StepNumbers::row(int64_t index) const {
  if (ops_.device == nullptr) return {};
  return all(device_).rows(index, index + 1).flat();
}

}  // namespace trifold
