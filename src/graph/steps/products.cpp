// Rules of matrix products: with weights, as linear layers, and between activations.
#include "core/error.h"
#include "graph/steps/matrices.h"
#include "graph/steps/rules.h"

namespace trifold::graph {

namespace {

// A parameter [N, K] or, transposed, [K, N], that is used whole: as a factor of a product it needs no copy.
struct Weight {
  int base = -1;
  ParamId id;
  bool transposed = false;
  int64_t outputs = 0, inputs = 0;  // the extents of w in x -> x w^T
};

// The operand as a factor [outputs, inputs] of a linear layer; not a weight if it is no whole parameter.
bool is_weight(const StepParts& parts, const Operand& operand) {
  if (!parts.is_parameter(operand) || operand.view.dims.size() != 2 || operand.view.begin != Size{})
    return false;
  const View& view = operand.view;
  const int64_t rows = view.dims[0].fixed, columns = view.dims[1].fixed;
  const Base& base = *parts.bases[static_cast<size_t>(operand.base)].base;
  if (rows * columns != base.elements().fixed) return false;
  const bool plain = view.strides[0].fixed == columns && view.strides[1].fixed == 1;
  const bool transposed = view.strides[0].fixed == 1 && view.strides[1].fixed == rows;
  return plain || transposed;
}

// `operand` is [outputs, inputs] if `is_linear`, else [inputs, outputs] as the second factor of a matrix product.
Weight weight_of(const StepParts& parts, const Operand& operand, bool is_linear) {
  const View& view = operand.view;
  const bool in_order = view.is_dense();
  Weight weight;
  weight.base = operand.base;
  weight.id = parts.bases[static_cast<size_t>(operand.base)].param;
  weight.outputs = view.dims[is_linear ? 0 : 1].fixed;
  weight.inputs = view.dims[is_linear ? 1 : 0].fixed;
  weight.transposed = in_order != is_linear;
  return weight;
}

// y = x w^T + bias, where w is a parameter.
class LinearStep final : public Step {
 public:
  LinearStep(const StepParts& parts, Operand x, Weight weight, Operand bias, bool trains_weight)
      : x_(std::move(x)),
        weight_(weight),
        bias_(std::move(bias)),
        trains_weight_(trains_weight),
        trains_bias_(parts.needs_gradient(bias_)) {
    if (trains_bias_) bias_id_ = parts.bases[static_cast<size_t>(bias_.base)].param;
  }

  void forward(Frame& frame, Saved&, Tensor y) const override {
    const OpTable& ops = frame.run.ops;
    Stream& stream = frame.run.stream;
    const Tensor x = input(frame), out = y.reshape({x.dim(0), weight_.outputs});
    const Tensor w = matrix(frame);
    const Tensor bias = bias_.exists() ? frame.dense(bias_, y.dtype) : Tensor{};
    if (!weight_.transposed) return ops.affine(stream, out, x, w, bias);
    if (bias_.exists()) ops.fill_rows(stream, out, bias);
    ops.gemm(stream, out, x, false, w, false, 1.0, bias_.exists() ? 1.0 : 0.0);
  }

  void backward(Frame& frame, Saved&, Tensor dy) const override {
    if (!frame.wants(x_)) return;
    const Frame::Target dx = frame.gradient(x_, true);
    const Tensor out = rows(dx.tensor, weight_.inputs), w = matrix(frame);
    const double beta = dx.adds ? 1 : 0;
    if (weight_.transposed)
      frame.run.ops.gemm(frame.run.stream, out, rows(dy, weight_.outputs), false, w, true, 1.0, beta);
    else
      frame.run.ops.affine_backward_input(frame.run.stream, out, rows(dy, weight_.outputs), w, beta);
    frame.give(x_, dx);
  }

  std::vector<Operand> weight_operands() const override {
    std::vector<Operand> all;
    if (trains_weight_) all.push_back({weight_.base, {}});
    if (trains_bias_) all.push_back(bias_);
    return all;
  }
  void backward_weight(Frame& frame, Saved&, Tensor dy) const override {
    Run& run = frame.run;
    const Tensor out = rows(dy, weight_.outputs);
    if (trains_weight_) {
      const Tensor x = input(frame), dw = as_matrix(run.grad(weight_.id));
      const bool adds = run.adds_to(weight_.id);
      if (weight_.transposed)
        run.ops.gemm(run.stream, dw, x, true, out, false, 1.0, adds ? 1.0 : 0.0);
      else
        run.ops.gemm(run.stream, dw, out, true, x, false, 1.0, adds ? 1.0 : 0.0);
    }
    if (trains_bias_) run.ops.column_sum(run.stream, run.grad(bias_id_), out, run.adds_to(bias_id_));
  }
  std::vector<Operand> weight_reads() const override {
    return trains_weight_ ? std::vector{x_} : std::vector<Operand>();
  }

 private:
  static Tensor rows(Tensor tensor, int64_t columns) {
    return tensor.reshape({tensor.elements() / columns, columns});
  }
  // The parameter, or its gradient, which may have other axes: a view has the same elements in the same order.
  Tensor as_matrix(Tensor whole) const {
    return rows(whole, weight_.transposed ? weight_.outputs : weight_.inputs);
  }
  Tensor matrix(Frame& frame) const { return as_matrix(frame.value(weight_.base)); }
  Tensor input(Frame& frame) const { return rows(frame.dense(x_, frame.run.dtype), weight_.inputs); }

  Operand x_;
  Weight weight_;
  Operand bias_;
  ParamId bias_id_;
  bool trains_weight_, trains_bias_;
};

// y = a b + bias over matrices: a [.., M, K] and b [.., K, N], broadcast over all axes but the last two.
class MatrixProduct final : public Step {
 public:
  MatrixProduct(const StepParts& parts, const Operand& a, const Operand& b, const Operand& bias = {})
      : result_(parts.result()), a_(spread(a)), b_(spread(b)), bias_(bias) {
    if (bias_.exists()) bias_.view = broadcast(bias_.view, result_.dims);
  }

  void forward(Frame& frame, Saved&, Tensor y) const override {
    multiply(frame, in_order(y, result_.box(frame.batch)), matrices(frame, a_, y.dtype),
             matrices(frame, b_, y.dtype));
    if (!bias_.exists()) return;
    const StridedTensor bias = frame.strided(bias_, y.dtype);
    const Box box = result_.box(frame.batch);
    frame.map(y, {y, bias.tensor}, {MapOp::Add, 1, 0, box, {contiguous_view(box), bias.view}});
  }

  void backward(Frame& frame, Saved&, Tensor dy) const override {
    const Matrices out = in_order(dy, result_.box(frame.batch));
    if (frame.wants(a_)) {
      const Frame::Target da = frame.gradient(a_);
      multiply(frame, in_order(da.tensor, a_.view.box(frame.batch)), out,
               matrices(frame, b_, dy.dtype).transposed());
      frame.give(a_, da);
    }
    if (frame.wants(b_)) {
      const Frame::Target db = frame.gradient(b_);
      multiply(frame, in_order(db.tensor, b_.view.box(frame.batch)),
               matrices(frame, a_, dy.dtype).transposed(), out);
      frame.give(b_, db);
    }
    if (frame.wants(bias_)) frame.give(bias_, {dy});
  }

  std::vector<Operand> reads() const override { return {a_, b_}; }

 private:
  // The operand with the leading axes of the result.
  Operand spread(const Operand& operand) const {
    const size_t rank = result_.dims.size(), own = operand.view.dims.size();
    std::vector<Size> dims(result_.dims.begin(), result_.dims.end());
    for (size_t axis = 1; axis <= 2; ++axis) dims[rank - axis] = operand.view.dims[own - axis];
    return {operand.base, broadcast(operand.view, dims)};
  }

  View result_;
  Operand a_, b_, bias_;
};

Operand with_axes_swapped(Operand operand) {
  const size_t rank = operand.view.dims.size();
  std::swap(operand.view.dims[rank - 1], operand.view.dims[rank - 2]);
  std::swap(operand.view.strides[rank - 1], operand.view.strides[rank - 2]);
  return operand;
}

std::unique_ptr<Step> linear_step(const StepParts& parts, const Operand& x, const Operand& weight,
                                  const Operand& bias, bool is_linear) {
  return std::make_unique<LinearStep>(parts, x, weight_of(parts, weight, is_linear), bias,
                                      parts.needs_gradient(weight));
}

std::unique_ptr<Step> make_linear(const StepParts& parts) {
  const Operand weight = parts.operand(1);
  if (is_weight(parts, weight)) return linear_step(parts, parts.operand(0), weight, parts.operand(2), true);
  return std::make_unique<MatrixProduct>(parts, parts.operand(0), with_axes_swapped(weight),
                                         parts.operand(2));
}

std::unique_ptr<Step> make_addmm(const StepParts& parts) {
  const Operand weight = parts.operand(2);
  if (is_weight(parts, weight)) return linear_step(parts, parts.operand(1), weight, parts.operand(0), false);
  return std::make_unique<MatrixProduct>(parts, parts.operand(1), weight, parts.operand(0));
}

std::unique_ptr<Step> make_product(const StepParts& parts) {
  const Operand a = parts.operand(0), b = parts.operand(1);
  if (is_weight(parts, b)) return linear_step(parts, a, b, {}, false);
  return std::make_unique<MatrixProduct>(parts, a, b);
}

// Factors are arguments `first` and the next one.
std::string factors_limit(const Graph& graph, const Node& node, size_t first) {
  for (const size_t argument : {first, first + 1}) {
    const std::vector<Extent>& dims = graph.at(std::get<ValueId>(node.arguments.at(argument))).dims;
    if (dims.size() < 2)
      return fmt::format("a factor has the shape {}, and has to have two axes", to_text(dims));
  }
  return {};
}
std::string product_limit(const Graph& graph, const Node& node) { return factors_limit(graph, node, 0); }

std::string addmm_limit(const Graph& graph, const Node& node) {
  for (const size_t argument : {size_t{3}, size_t{4}}) {
    const auto* whole = std::get_if<Extent>(&node.arguments.at(argument));
    const auto* real = std::get_if<double>(&node.arguments.at(argument));
    if ((whole == nullptr || *whole != Extent{1}) && (real == nullptr || *real != 1))
      return "its factors alpha and beta have to be 1";
  }
  return factors_limit(graph, node, 1);
}

}  // namespace

void add_product_rules(std::vector<Rule>& rules) {
  const std::vector<Rule> all{
      {"linear", make_linear, 0, 1U << 2, false, nullptr, product_limit},
      {"addmm", make_addmm, 0, 1U << 0, false, nullptr, addmm_limit},
      {"matmul", make_product, 0, 0, false, nullptr, product_limit},
      {"mm", make_product, 0, 0, false, nullptr, product_limit},
      {"bmm", make_product, 0, 0, false, nullptr, product_limit},
  };
  rules.insert(rules.end(), all.begin(), all.end());
}

}  // namespace trifold::graph
