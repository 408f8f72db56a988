// --check-overlap: computes a step twice, normally and without any overlap. Both must give the same bits; a difference
// means that something was read or written too early or too late.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "data_parallel/gradient_buffer.h"
#include "pipeline/executor.h"

namespace trifold {

// Prevents all overlap: waits for all streams of the rank after each action. A plan whose messages were inserted by
// add_communication (schedule/passes.h) cannot deadlock then.
class OneByOne final : public StepWatch {
 public:
  // `streams`: all streams of the rank.
  OneByOne(std::vector<Stream*> streams, StepWatch* inner) : StepWatch(inner), streams_(std::move(streams)) {}

  void after(const Action& action) override;

 private:
  std::vector<Stream*> streams_;
};

// The results of a step: its loss, and the reduced gradients summed on this rank.
class OverlapCheck {
 public:
  // Copies the gradients, which must be complete at this point of `stream`. References must outlive the object.
  OverlapCheck(const OpTable& ops, Stream& stream, const FlatLayout& layout, const GradientBuffer& grads,
               const LossSums& loss);

  // Throws an Error that names the first difference, with element, parameter and unit; `step` begins its text.
  void compare(const LossSums& loss, const std::string& step) const;

 private:
  const OpTable& ops_;
  Stream& stream_;
  const FlatLayout& layout_;
  const GradientBuffer& grads_;
  LossSums loss_;
  std::vector<std::byte> sums_;  // gradients of the segments of all units, in order
};

}  // namespace trifold
