// ClassCounter: counts the labels that a cross entropy's scores predict (nn/class_reports.h), for the steps of losses.
#pragma once

#include "graph/steps/rules.h"
#include "nn/layer.h"

namespace trifold::graph {

class ClassCounter {
 public:
  // Declares the counter of the step's node.
  explicit ClassCounter(const StepParts& parts);

  // Counts rows of scores. logits [R, V]; target [R], the logits of the labels, in their accumulate_type; weights [R] f32,
  // 0 for labels that do not count. Does nothing but in an evaluation whose executor collects counters and trains
  // nothing: other executors have no memory for it. May be called for some rows after others.
  void add(const Frame& frame, Tensor logits, Tensor target, Tensor weights) const;

 private:
  CounterId counter_;
  BatchValueId top_k_;
};

}  // namespace trifold::graph
