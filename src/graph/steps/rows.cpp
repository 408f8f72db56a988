// Rules of operations on rows: norms, softmax, lookups, and sums over axes.
#include "core/error.h"
#include "graph/steps/rules.h"

namespace trifold::graph {

namespace {

Tensor as_rows(Tensor tensor, int64_t columns) {
  return tensor.reshape({columns == 0 ? 0 : tensor.elements() / columns, columns});
}

// A gain or bias of a norm: a parameter, or else values that do not change, of one row.
class RowWeight {
 public:
  RowWeight(const StepParts& parts, Operand operand) : operand_(std::move(operand)) {
    trained_ = parts.needs_gradient(operand_);
    if (trained_) id_ = parts.bases[static_cast<size_t>(operand_.base)].param;
  }
  const Operand& operand() const { return operand_; }
  bool trained() const { return trained_; }
  ParamId id() const { return id_; }
  Tensor value(Frame& frame, int64_t width, double absent) const {
    if (operand_.exists()) return frame.dense(operand_, frame.run.dtype);
    const Tensor constant = frame.temporary(frame.run.dtype, {width});
    frame.run.ops.fill(frame.run.stream, constant, absent);
    return constant;
  }

 private:
  Operand operand_;
  bool trained_ = false;
  ParamId id_;
};

// Where a norm adds the gradients of its gain and bias: into memory that is not read if they are not trained.
struct RowGradients {
  Tensor gain, bias;
  bool adds = false;
};

class Norm final : public Step {
 public:
  Norm(const StepParts& parts, bool centred, Operand gain, Operand bias, double eps)
      : x_(parts.operand(0)),
        width_(x_.view.dims.back().fixed),
        centred_(centred),
        gain_(parts, std::move(gain)),
        bias_(parts, std::move(bias)),
        eps_(eps),
        mean_(parts.builder.slot()),
        rstd_(parts.builder.slot()) {}

  void take_saved(Frame& frame, Saved& saved) const override {
    const Shape rows{x_.view.elements(frame.batch) / width_};
    const DType wide = accumulate_type(frame.run.dtype);
    if (centred_) saved[mean_] = frame.run.keep->take(wide, rows);
    saved[rstd_] = frame.run.keep->take(wide, rows);
  }
  void forward(Frame& frame, Saved& saved, Tensor y) const override {
    const OpTable& ops = frame.run.ops;
    Stream& stream = frame.run.stream;
    const Tensor x = as_rows(frame.dense(x_, y.dtype), width_), out = as_rows(y, width_);
    const Tensor gain = gain_.value(frame, width_, 1);
    if (centred_)
      ops.layer_norm(stream, out, saved[mean_], saved[rstd_], x, gain, bias_.value(frame, width_, 0), eps_,
                     0);
    else
      ops.rms_norm(stream, out, saved[rstd_], x, gain, eps_, 0);
  }

  void backward(Frame& frame, Saved& saved, Tensor dy) const override {
    const OpTable& ops = frame.run.ops;
    Stream& stream = frame.run.stream;
    const Tensor x = as_rows(frame.dense(x_, dy.dtype), width_), out = as_rows(dy, width_);
    if (gain_.trained() || bias_.trained()) {
      const RowGradients weights = gradients(frame);
      if (centred_)
        ops.layer_norm_backward_weight(stream, weights.gain, weights.bias, out, x, saved[mean_], saved[rstd_],
                                       weights.adds);
      else
        ops.rms_norm_backward_weight(stream, weights.gain, out, x, saved[rstd_], weights.adds);
    }
    if (!frame.wants(x_)) return;
    const Frame::Target dx = frame.gradient(x_);
    const Tensor gain = gain_.value(frame, width_, 1), in = as_rows(dx.tensor, width_);
    if (centred_)
      ops.layer_norm_backward(stream, in, out, x, saved[mean_], saved[rstd_], gain, 0);
    else
      ops.rms_norm_backward(stream, in, out, x, saved[rstd_], gain, 0);
    frame.give(x_, dx);
  }

  std::vector<Operand> reads() const override {
    std::vector<Operand> all{x_};
    if (gain_.operand().exists()) all.push_back(gain_.operand());
    return all;
  }
  bool is_cheap() const override { return true; }

 private:
  RowGradients gradients(Frame& frame) const {
    Run& run = frame.run;
    const DType wide = accumulate_type(run.dtype);
    RowGradients weights;
    if (gain_.trained() && bias_.trained())
      weights.adds = run.adds_to(gain_.id(), bias_.id());
    else
      weights.adds = run.adds_to(gain_.trained() ? gain_.id() : bias_.id());
    weights.gain = gain_.trained() ? run.grad(gain_.id()).flat() : frame.temporary(wide, {width_});
    weights.bias = bias_.trained() ? run.grad(bias_.id()).flat() : frame.temporary(wide, {width_});
    return weights;
  }

  Operand x_;
  int64_t width_;
  bool centred_;
  RowWeight gain_, bias_;
  double eps_;
  SlotId mean_, rstd_;
};

std::unique_ptr<Step> make_layer_norm(const StepParts& parts) {
  return std::make_unique<Norm>(parts, true, parts.operand(2), parts.operand(3), parts.number(4));
}

// Without eps PyTorch takes the machine epsilon of the type.
std::unique_ptr<Step> make_rms_norm(const StepParts& parts) {
  const bool wide = parts.graph.at(parts.node.outputs.front()).type == ElementType::F64;
  return std::make_unique<Norm>(parts, false, parts.operand(2), Operand{},
                                parts.number(3, wide ? 0x1p-52 : 0x1p-23));
}

std::string norm_limit(const Graph& graph, const Node& node) {
  const auto& axes = std::get<std::vector<Extent>>(node.arguments.at(1));
  const std::vector<Extent>& dims = graph.at(std::get<ValueId>(node.arguments[0])).dims;
  if (dims.empty() || dims.back().per_sample || dims.back().value < 1)
    return fmt::format("its input has the shape {}, whose last axis must have a fixed length", to_text(dims));
  if (axes.size() != 1 || dims.back() != axes.front())
    return fmt::format("it normalises over {}, and only the last axis is possible", to_text(axes));
  return {};
}

// Softmax, or its logarithm, over the last axis.
class Softmax final : public Step {
 public:
  Softmax(const StepParts& parts, bool logarithm)
      : x_(parts.operand(0)), width_(x_.view.dims.back().fixed), logarithm_(logarithm) {}

  void forward(Frame& frame, Saved&, Tensor y) const override {
    const auto run = logarithm_ ? frame.run.ops.log_softmax : frame.run.ops.softmax;
    run(frame.run.stream, as_rows(y, width_), as_rows(frame.dense(x_, y.dtype), width_));
  }
  void backward(Frame& frame, Saved&, Tensor dy) const override {
    if (!frame.wants(x_)) return;
    const auto run = logarithm_ ? frame.run.ops.log_softmax_backward : frame.run.ops.softmax_backward;
    const Frame::Target dx = frame.gradient(x_);
    run(frame.run.stream, as_rows(dx.tensor, width_), as_rows(dy, width_), as_rows(frame.output(), width_));
    frame.give(x_, dx);
  }
  bool reads_output() const override { return true; }

 private:
  Operand x_;
  int64_t width_;
  bool logarithm_;
};

std::string softmax_limit(const Graph& graph, const Node& node) {
  const std::vector<Extent>& dims = graph.at(std::get<ValueId>(node.arguments[0])).dims;
  const int64_t axis = std::get<Extent>(node.arguments[1]).value, rank = static_cast<int64_t>(dims.size());
  if (rank == 0 || (axis != -1 && axis != rank - 1) || dims.back().per_sample || dims.back().value < 1)
    return fmt::format("it is over axis {} of {}, and only a last axis of a fixed length is possible", axis,
                       to_text(dims));
  return {};
}

// Rows of a table by ids. In backward, rows of other ids than `trained_ids`, such as a padding token's, get no gradient.
class Lookup final : public Step {
 public:
  Lookup(const StepParts& parts, Operand table, Operand ids, Operand trained_ids)
      : table_(std::move(table)), ids_(std::move(ids)), trained_ids_(std::move(trained_ids)) {
    width_ = table_.view.dims[1].fixed;
    rows_ = table_.view.dims[0];
    if (parts.is_parameter(table_))
      id_ = parts.builder.table(parts.bases[static_cast<size_t>(table_.base)].param);
    trains_ = parts.needs_gradient(table_);
  }

  void forward(Frame& frame, Saved&, Tensor y) const override {
    frame.run.ops.embedding(frame.run.stream, as_rows(y, width_),
                            as_rows(frame.dense(table_, y.dtype), width_), frame.dense(ids_), 0, false);
  }
  void backward(Frame&, Saved&, Tensor) const override {}
  std::vector<Operand> weight_operands() const override {
    return trains_ ? std::vector{table_} : std::vector<Operand>();
  }
  void backward_weight(Frame& frame, Saved&, Tensor dy) const override {
    const Tensor ids = frame.dense(trained_ids_);
    const Tensor order = frame.temporary(DType::I32, ids.shape);
    frame.run.ops.embedding_backward(frame.run.stream, frame.run.grad_from_zero(id_), as_rows(dy, width_),
                                     ids, order, 0);
  }
  bool adds_whole_gradient() const override { return true; }

 private:
  Operand table_, ids_, trained_ids_;
  int64_t width_ = 0;
  Size rows_;
  ParamId id_;
  bool trains_ = false;
};

std::unique_ptr<Step> make_lookup(const StepParts& parts) {
  return std::make_unique<Lookup>(parts, parts.operand(0), parts.operand(1), parts.operand(1));
}
std::string lookup_limit(const Graph& graph, const Node& node) {
  const std::vector<Extent>& dims = graph.at(std::get<ValueId>(node.arguments[0])).dims;
  if (dims.size() != 2 || dims[1].per_sample || dims[1].value < 1)
    return fmt::format("its table has the shape {}, not rows of a fixed length", to_text(dims));
  if (node.name == "embedding" && (std::get<bool>(node.arguments[3]) || std::get<bool>(node.arguments[4])))
    return "its gradients are scaled by frequency, or sparse";
  return {};
}
std::unique_ptr<Step> make_padded_lookup(const StepParts& parts) {
  return std::make_unique<Lookup>(parts, parts.operand(0), parts.operand(1), parts.operand(2));
}

// y = factor * the sum over axes.
class SumOverAxes final : public Step {
 public:
  SumOverAxes(Operand x, const std::vector<bool>& summed, bool mean) : x_(std::move(x)), mean_(mean) {
    View kept = x_.view;  // the shape of x, with axes of one element instead of summed ones
    for (size_t axis = 0; axis < summed.size(); ++axis)
      if (summed[axis]) kept.dims[axis] = {1, 0};
    to_ = x_.view;
    to_.begin = {};
    Size stride{1, 0};
    for (size_t axis = summed.size(); axis-- > 0;) {
      to_.strides[axis] = summed[axis] ? Size{} : stride;
      if (summed[axis]) continue;
      const Size& dim = to_.dims[axis];
      check(stride.per_sample == 0 || dim.per_sample == 0, "a sum depends on the square of the batch");
      stride = {stride.fixed * dim.fixed, stride.fixed * dim.per_sample + stride.per_sample * dim.fixed};
    }
    summed_ = summed;
  }

  void forward(Frame& frame, Saved&, Tensor y) const override {
    const StridedTensor x = frame.strided(x_, frame.type_of(x_));
    frame.run.ops.strided_sum(frame.run.stream, y, to_.strided(frame.batch), x.tensor, x.view,
                              x_.view.box(frame.batch), factor(frame.batch), false);
  }
  void backward(Frame& frame, Saved&, Tensor dy) const override {
    if (!frame.wants(x_)) return;
    const Frame::Target dx = frame.gradient(x_);
    frame.map(dx.tensor, {frame.converted(dy, dx.tensor.dtype)},
              {MapOp::Linear, factor(frame.batch), 0, x_.view.box(frame.batch), {to_.strided(frame.batch)}});
    frame.give(x_, dx);
  }

 private:
  double factor(int64_t batch) const {
    if (!mean_) return 1;
    int64_t count = 1;
    for (size_t axis = 0; axis < summed_.size(); ++axis)
      if (summed_[axis]) count *= x_.view.dims[axis].at(batch);
    return 1.0 / static_cast<double>(count);
  }

  Operand x_;
  bool mean_;
  View to_;  // the element of y that each element of x is added to
  std::vector<bool> summed_;
};

std::unique_ptr<Step> sum_over(const StepParts& parts, const std::vector<int64_t>& axes, bool mean) {
  const size_t rank = parts.operand(0).view.dims.size();
  std::vector<bool> summed(rank, axes.empty());
  for (const int64_t axis : axes)
    summed.at(static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(rank) : axis)) = true;
  return std::make_unique<SumOverAxes>(parts.operand(0), summed, mean);
}

}  // namespace

void add_row_rules(std::vector<Rule>& rules) {
  const std::vector<Rule> all{
      {"layer_norm", make_layer_norm, 0, 1U << 2 | 1U << 3, false, nullptr, norm_limit},
      {"rms_norm", make_rms_norm, 0, 1U << 2, false, nullptr, norm_limit},
      {"softmax.int",
       [](const StepParts& parts) -> std::unique_ptr<Step> {
         return std::make_unique<Softmax>(parts, false);
       },
       0, 0, false, nullptr, softmax_limit},
      {"log_softmax.int",
       [](const StepParts& parts) -> std::unique_ptr<Step> { return std::make_unique<Softmax>(parts, true); },
       0, 0, false, nullptr, softmax_limit},
      {"embedding", make_lookup, 1U << 1, 1U << 0, false, nullptr, lookup_limit, true, {1, 0, 0}},
      {"embedding_padded",
       make_padded_lookup,
       1U << 1 | 1U << 2,
       1U << 0,
       false,
       nullptr,
       lookup_limit,
       true,
       {1, 0, 0}},
      {"sum", [](const StepParts& parts) { return sum_over(parts, {}, false); }, 0, 0, true},
      {"mean", [](const StepParts& parts) { return sum_over(parts, {}, true); }, 0, 0, true},
      {"sum.dim_IntList", [](const StepParts& parts) { return sum_over(parts, parts.integers(1), false); }},
      {"mean.dim", [](const StepParts& parts) { return sum_over(parts, parts.integers(1), true); }},
  };
  rules.insert(rules.end(), all.begin(), all.end());
}

}  // namespace trifold::graph
