// --check-overlap: a step computed twice, as always and with nothing at the same time, must give the same
// bits; what differs was read or written too early or too late.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "data_parallel/gradient_buffer.h"
#include "pipeline/executor.h"

namespace trifold {

// Lets nothing overlap: after each action waits for all streams of the rank. A plan whose messages were put
// in by add_communication cannot deadlock that way (schedule/passes.h).
class OneByOne final : public StepWatch {
 public:
  // For all streams of the rank.
  OneByOne(std::vector<Stream*> streams, StepWatch* inner) : StepWatch(inner), streams_(std::move(streams)) {}

  void after(const Action& action) override;

 private:
  std::vector<Stream*> streams_;
};

// What a step gave: its loss, and the reduced gradients that are summed on this rank.
class OverlapCheck {
 public:
  // Copies the gradients; they must be complete as of now on `stream`. References must outlive the object.
  OverlapCheck(const OpTable& ops, Stream& stream, const FlatLayout& layout, const GradientBuffer& grads,
               const LossSums& loss);

  // Throws an Error that names what differs first now, element, parameter and unit; `step` begins its text.
  void compare(const LossSums& loss, const std::string& step) const;

 private:
  const OpTable& ops_;
  Stream& stream_;
  const FlatLayout& layout_;
  const GradientBuffer& grads_;
  LossSums loss_;
  std::vector<std::byte> sums_;  // of the segments of all units, in order
};

}  // namespace trifold
