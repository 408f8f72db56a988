// Rules of losses. Other losses are rewritten into elementwise operations and sums (graph/lower/rewrite.h).
#include "graph/lower/rules.h"

namespace trifold::graph {

namespace {

// The sum over rows of weight * cross entropy of logits [R, V] and labels.
class CrossEntropySum final : public Step {
 public:
  explicit CrossEntropySum(const StepParts& parts)
      : logits_(parts.operand(0)),
        labels_(parts.operand(1)),
        weights_(parts.operand(2)),
        columns_(logits_.view.dims[1].fixed),
        max_(parts.builder.slot()),
        sum_(parts.builder.slot()) {}

  void take_saved(Frame& frame, Saved& saved) const override {
    const Shape rows{logits_.view.dims[0].at(frame.batch)};
    for (const SlotId slot : {max_, sum_})
      saved[slot] = frame.run.keep->take(accumulate_type(frame.run.dtype), rows);
  }
  void forward(Frame& frame, Saved& saved, Tensor y) const override {
    const OpTable& ops = frame.run.ops;
    Stream& stream = frame.run.stream;
    const Tensor logits = rows(frame);
    const DType wide = accumulate_type(logits.dtype);
    const Shape each{logits.dim(0)};
    const Tensor target = frame.temporary(wide, each), loss = frame.temporary(wide, each);
    ops.softmax_stats(stream, saved[max_], saved[sum_], target, logits, frame.dense(labels_), 0, columns_);
    ops.cross_entropy(stream, loss, saved[max_], saved[sum_], target);
    const Tensor total = frame.temporary(DType::F64, {1});
    ops.fill(stream, total, 0.0);
    ops.weighted_sum(stream, total, loss, weights(frame));
    ops.convert(stream, y, total);
  }

  void backward(Frame& frame, Saved& saved, Tensor dy) const override {
    if (!frame.wants(logits_)) return;
    const Frame::Target dx = frame.gradient(logits_);
    const Tensor logits = rows(frame);
    const Factor scale(1, frame.converted(dy, DType::F64));
    frame.run.ops.cross_entropy_backward(frame.run.stream, dx.tensor.reshape(logits.shape), logits,
                                         saved[max_], saved[sum_], frame.dense(labels_), weights(frame),
                                         scale, 0, columns_);
    frame.give(logits_, dx);
  }

  std::vector<Operand> reads() const override { return {logits_}; }

 private:
  Tensor rows(Frame& frame) const {
    const Tensor logits = frame.dense(logits_, frame.run.dtype);
    return logits.reshape({logits.elements() / columns_, columns_});
  }
  Tensor weights(Frame& frame) const { return frame.converted(frame.dense(weights_), DType::F32); }

  Operand logits_, labels_, weights_;
  int64_t columns_;
  SlotId max_, sum_;
};

}  // namespace

void add_loss_rules(std::vector<Rule>& rules) {
  rules.push_back({"cross_entropy_sum",
                   [](const StepParts& parts) -> std::unique_ptr<Step> {
                     return std::make_unique<CrossEntropySum>(parts);
                   },
                   1U << 1, 0, true});
}

}  // namespace trifold::graph
