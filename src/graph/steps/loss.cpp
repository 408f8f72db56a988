// Rules of losses. Other losses are rewritten into elementwise operations and sums (graph/lower/rewrite.h).
#include <algorithm>

#include "graph/steps/class_counter.h"
#include "graph/steps/rules.h"

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
        sum_(parts.builder.slot()),
        class_counter_(parts) {}

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
    const Tensor row_weights = weights(frame);
    class_counter_.add(frame, logits, target, row_weights);
    const Tensor total = frame.temporary(DType::F64, {1});
    ops.fill(stream, total, 0.0);
    ops.weighted_sum(stream, total, loss, row_weights);
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
  ClassCounter class_counter_;
};

// The model's loss: the sum over rows of weight * cross entropy of the logits x w^T + bias, over a divisor. The logits
// exist for some rows at a time: in a training step forward computes their gradient at once, and with it the gradients
// of x, which backward gives, and of the parameters (docs/decisions/0006). That needs the gradient of the loss itself,
// so nothing may follow it.
class LinearCrossEntropy final : public Step {
 public:
  explicit LinearCrossEntropy(const StepParts& parts)
      : x_(parts.operand(0)),
        weight_(parts.operand(1)),
        bias_(parts.operand(2)),
        labels_(parts.operand(3)),
        row_weights_(parts.operand(4)),
        divisor_(parts.operand(5)),
        classes_(weight_.view.dims[0].fixed),
        width_(weight_.view.dims[1].fixed),
        trains_weight_(parts.needs_gradient(weight_)),
        trains_bias_(parts.needs_gradient(bias_)),
        dx_(parts.builder.slot()),
        class_counter_(parts) {}

  void take_saved(Frame& frame, Saved& saved) const override {
    if (frame.run.has_backward()) saved[dx_] = frame.run.keep->take(frame.run.dtype, {rows(frame), width_});
  }

  void forward(Frame& frame, Saved& saved, Tensor y) const override {
    const OpTable& ops = frame.run.ops;
    Stream& stream = frame.run.stream;
    const int64_t all = rows(frame), each = std::max<int64_t>(1, kChunkElements / classes_);
    const Tensor x = frame.dense(x_, frame.run.dtype).reshape({all, width_});
    const Tensor labels = frame.dense(labels_),
                 row_weights = frame.converted(frame.dense(row_weights_), DType::F32);
    const Tensor losses = frame.temporary(accumulate_type(x.dtype), {all});
    const Tensor scale = gradient_scale(frame);
    for (int64_t begin = 0; begin < all; begin += each) {
      const int64_t end = std::min(all, begin + each);
      const Arena::Mark mark = frame.run.scratch.mark();
      run_chunk(frame, x.rows(begin, end), labels.rows(begin, end), row_weights.rows(begin, end),
                losses.rows(begin, end), scale,
                frame.run.has_backward() ? saved[dx_].rows(begin, end) : Tensor{});
      frame.run.scratch.release(mark);
    }
    const Tensor total = frame.temporary(DType::F64, {1});
    ops.fill(stream, total, 0.0);
    ops.weighted_sum(stream, total, losses, row_weights);
    if (divisor_.exists()) ops.scale(stream, total, Factor(1, reciprocal(frame)));
    ops.convert(stream, y, total);
  }

  void backward(Frame& frame, Saved& saved, Tensor /*dy*/) const override {
    if (frame.wants(x_)) frame.give(x_, {saved[dx_].flat()});
  }
  bool adds_in_forward() const override { return trains_weight_ || trains_bias_; }

 private:
  static constexpr int64_t kChunkElements = int64_t{1} << 23;  // logits of a chunk

  int64_t rows(const Frame& frame) const { return x_.view.elements(frame.batch) / width_; }

  // 1 / divisor, f64 [1].
  Tensor reciprocal(Frame& frame) const {
    const Tensor divisor = frame.converted(frame.dense(divisor_), DType::F64);
    const Tensor inverse = frame.temporary(DType::F64, {1});
    frame.map(inverse, {divisor}, {MapOp::Reciprocal, 0, 0, {}, {}});
    return inverse;
  }
  // The gradient of the loss with respect to a row's cross entropy, without the row's weight; f64 [1].
  Tensor gradient_scale(Frame& frame) const {
    const Tensor scale = frame.temporary(DType::F64, {1});
    frame.run.ops.fill(frame.run.stream, scale, 1.0);
    if (divisor_.exists()) frame.run.ops.copy(frame.run.stream, scale, reciprocal(frame));
    frame.run.ops.scale(frame.run.stream, scale, frame.run.loss_factor(frame.loss_weight));
    return scale;
  }

  void run_chunk(Frame& frame, Tensor x, Tensor labels, Tensor row_weights, Tensor losses, Tensor scale,
                 Tensor dx) const {
    Run& run = frame.run;
    const OpTable& ops = run.ops;
    const DType wide = accumulate_type(x.dtype);
    const Tensor w = frame.value(weight_.base).reshape({classes_, width_});
    const Tensor logits = frame.temporary(x.dtype, {x.dim(0), classes_});
    const Tensor max = frame.temporary(wide, losses.shape), sum = frame.temporary(wide, losses.shape);
    const Tensor target = frame.temporary(wide, losses.shape);
    ops.affine(run.stream, logits, x, w, bias_.exists() ? frame.dense(bias_, x.dtype) : Tensor{});
    if (!run.has_backward()) {
      ops.softmax_stats(run.stream, max, sum, target, logits, labels, 0, classes_);
      class_counter_.add(frame, logits, target, row_weights);
      return ops.cross_entropy(run.stream, losses, max, sum, target);
    }
    ops.cross_entropy_all(run.stream, logits, max, sum, target, logits, labels, row_weights, Factor(1, scale),
                          0, classes_);
    ops.cross_entropy(run.stream, losses, max, sum, target);
    if (frame.wants(x_)) ops.affine_backward_input(run.stream, dx, logits, w, 0);
    if (trains_weight_)
      ops.gemm(run.stream, run.grad(frame.param(weight_)), logits, true, x, false, 1.0,
               run.adds_to(frame.param(weight_)) ? 1.0 : 0.0);
    if (trains_bias_)
      ops.column_sum(run.stream, run.grad(frame.param(bias_)), logits, run.adds_to(frame.param(bias_)));
  }

  Operand x_, weight_, bias_, labels_, row_weights_, divisor_;
  int64_t classes_, width_;
  bool trains_weight_, trains_bias_;
  SlotId dx_;
  ClassCounter class_counter_;
};

// Scores have a column for each class.
std::string classes_limit(const Graph& graph, const Node& node) {
  const std::vector<Extent>& dims = graph.at(std::get<ValueId>(node.arguments[0])).dims;
  if (dims.empty() || dims.back().per_sample || dims.back().value < 1)
    return fmt::format("its classes are the last axis of {}, which must have a fixed length", to_text(dims));
  return {};
}

// The weight [V, K] has a row for each class.
std::string rows_of_classes_limit(const Graph& graph, const Node& node) {
  const std::vector<Extent>& dims = graph.at(std::get<ValueId>(node.arguments[1])).dims;
  if (dims.size() != 2 || dims[0].per_sample || dims[0].value < 1 || dims[1].per_sample || dims[1].value < 1)
    return fmt::format("its classes are the rows of a weight {}, of which there must be some", to_text(dims));
  return {};
}

}  // namespace

void add_loss_rules(std::vector<Rule>& rules) {
  rules.push_back({"cross_entropy_sum",
                   [](const StepParts& parts) -> std::unique_ptr<Step> {
                     return std::make_unique<CrossEntropySum>(parts);
                   },
                   1U << 1,
                   0,
                   true,
                   nullptr,
                   classes_limit,
                   false,
                   {1, 0, 1, 2}});
  rules.push_back({"linear_cross_entropy",
                   [](const StepParts& parts) -> std::unique_ptr<Step> {
                     return std::make_unique<LinearCrossEntropy>(parts);
                   },
                   1U << 3,
                   1U << 1 | 1U << 2,
                   true,
                   nullptr,
                   rows_of_classes_limit,
                   false,
                   {3, 1, 0, 4}});
}

}  // namespace trifold::graph
