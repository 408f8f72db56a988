// Rules of elementwise operations, with PyTorch's broadcasting, and of dropout.
#include <limits>

#include "core/error.h"
#include "graph/steps/rules.h"

namespace trifold::graph {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// y = f(x)
class Unary final : public Step {
 public:
  enum class Reads : uint8_t { Nothing, Input, Output };

  // `reads`: what the gradient is computed with, in addition to dy.
  Unary(Operand x, MapOp op, MapOp gradient, Reads reads, double a = 0, double b = 0)
      : x_(std::move(x)), op_(op), gradient_(gradient), reads_(reads), a_(a), b_(b) {}

  void forward(Frame& frame, Saved&, Tensor y) const override {
    const StridedTensor x = frame.strided(x_, y.dtype);
    frame.map(y, {x.tensor}, {op_, a_, b_, x_.view.box(frame.batch), {x.view}});
  }

  void backward(Frame& frame, Saved&, Tensor dy) const override {
    if (!frame.wants(x_)) return;
    const Box box = x_.view.box(frame.batch);
    const Frame::Target dx = frame.gradient(x_);
    const StridedView rows = contiguous_view(box);
    if (reads_ == Reads::Nothing) {
      frame.map(dx.tensor, {frame.converted(dy, dx.tensor.dtype)}, {gradient_, a_, 0, box, {rows}});
    } else {
      const StridedTensor saved =
          reads_ == Reads::Input ? frame.strided(x_, dx.tensor.dtype) : StridedTensor{frame.output(), rows};
      frame.map(dx.tensor, {frame.converted(dy, dx.tensor.dtype), saved.tensor},
                {gradient_, a_, b_, box, {rows, saved.view}});
    }
    frame.give(x_, dx);
  }

  std::vector<Operand> reads() const override {
    return reads_ == Reads::Input ? std::vector{x_} : std::vector<Operand>();
  }
  bool reads_output() const override { return reads_ == Reads::Output; }
  bool is_cheap() const override { return true; }

 private:
  Operand x_;
  MapOp op_, gradient_;
  Reads reads_;
  double a_, b_;
};

// y = f(x0, x1, x2) of operands that are broadcast to the shape of y, and the gradient of one operand as a function of
// dy, operands and y.
class Broadcast final : public Step {
 public:
  static constexpr int kDy = -1, kY = -2;  // inputs of a gradient that are no operands
  struct Gradient {
    size_t operand;
    MapOp op;
    std::vector<int> inputs;  // operands by index, kDy or kY
    double a = 0;
  };

  Broadcast(const StepParts& parts, const std::vector<Operand>& operands, MapOp op, double a,
            std::vector<Gradient> gradients)
      : result_(parts.result()), op_(op), a_(a) {
    for (const Operand& operand : operands)
      operands_.push_back({operand.base, broadcast(operand.view, result_.dims)});
    for (Gradient& gradient : gradients)
      if (parts.needs_gradient(operands_.at(gradient.operand))) gradients_.push_back(std::move(gradient));
  }

  void forward(Frame& frame, Saved&, Tensor y) const override {
    std::array<Tensor, 3> tensors;
    Map map{op_, a_, 0, result_.box(frame.batch), {}};
    for (size_t i = 0; i < operands_.size(); ++i) {
      const StridedTensor x = frame.strided(operands_[i], y.dtype);
      tensors[i] = x.tensor;
      map.from[i] = x.view;
    }
    frame.run.ops.map(frame.run.stream, y, std::span(tensors).first(operands_.size()), map);
  }

  void backward(Frame& frame, Saved&, Tensor dy) const override {
    const Box box = result_.box(frame.batch);
    for (const Gradient& gradient : gradients_) {
      const Operand& operand = operands_[gradient.operand];
      const Frame::Target dx = frame.gradient(operand);
      std::array<Tensor, 3> tensors;
      Map map{gradient.op, gradient.a, 0, box, {}};
      for (size_t i = 0; i < gradient.inputs.size(); ++i) {
        const int input = gradient.inputs[i];
        const StridedTensor x =
            input >= 0 ? frame.strided(operands_[static_cast<size_t>(input)], dx.tensor.dtype)
                       : StridedTensor{frame.converted(input == kDy ? dy : frame.output(), dx.tensor.dtype),
                                       contiguous_view(box)};
        tensors[i] = x.tensor;
        map.from[i] = x.view;
      }
      frame.run.ops.map(frame.run.stream, dx.tensor, std::span(tensors).first(gradient.inputs.size()), map);
      frame.give(operand, dx);
    }
  }

  std::vector<Operand> reads() const override {
    std::vector<Operand> all;
    for (const Gradient& gradient : gradients_)
      for (const int input : gradient.inputs)
        if (input >= 0) all.push_back(operands_[static_cast<size_t>(input)]);
    return all;
  }
  bool reads_output() const override {
    for (const Gradient& gradient : gradients_)
      for (const int input : gradient.inputs)
        if (input == kY) return true;
    return false;
  }
  bool is_cheap() const override { return true; }

 private:
  View result_;
  std::vector<Operand> operands_;
  MapOp op_;
  double a_;
  std::vector<Gradient> gradients_;
};

using Gradients = std::vector<Broadcast::Gradient>;
constexpr int kDy = Broadcast::kDy, kY = Broadcast::kY;

std::unique_ptr<Step> unary(const StepParts& parts, MapOp op, MapOp gradient, Unary::Reads reads,
                            double a = 0, double b = 0) {
  return std::make_unique<Unary>(parts.operand(0), op, gradient, reads, a, b);
}

template <MapOp Op, MapOp Gradient, Unary::Reads Reads>
std::unique_ptr<Step> make_unary(const StepParts& parts) {
  return unary(parts, Op, Gradient, Reads);
}

// a x + b
std::unique_ptr<Step> linear(const Operand& x, double a, double b) {
  return std::make_unique<Unary>(x, MapOp::Linear, MapOp::Linear, Unary::Reads::Nothing, a, b);
}

std::unique_ptr<Step> make_gelu(const StepParts& parts) {
  const bool tanh = parts.text(1) == "tanh";
  return unary(parts, tanh ? MapOp::Gelu : MapOp::GeluErf, tanh ? MapOp::GeluGrad : MapOp::GeluErfGrad,
               Unary::Reads::Input);
}

std::unique_ptr<Step> make_power(const StepParts& parts) {
  const double exponent = parts.number(1);
  if (exponent == 2) return unary(parts, MapOp::Square, MapOp::SquareGrad, Unary::Reads::Input);
  return unary(parts, MapOp::Power, MapOp::PowerGrad, Unary::Reads::Input, exponent);
}

template <size_t Least, size_t Most>
std::unique_ptr<Step> make_clamp(const StepParts& parts) {
  const double least = Least == 0 ? -kInfinity : parts.number(Least, -kInfinity);
  const double most = Most == 0 ? kInfinity : parts.number(Most, kInfinity);
  return unary(parts, MapOp::Clamp, MapOp::ClampGrad, Unary::Reads::Input, least, most);
}

// self + sign alpha other, where either may be a number.
std::unique_ptr<Step> sum(const StepParts& parts, double sign) {
  const Operand self = parts.operand(0), other = parts.operand(1);
  const double a = sign * parts.number(2, 1);
  if (!other.exists()) return linear(self, 1, a * parts.number(1));
  if (!self.exists()) return linear(other, a, parts.number(0));
  return std::make_unique<Broadcast>(parts, std::vector{self, other}, MapOp::Add, a,
                                     Gradients{{0, MapOp::Identity, {kDy}}, {1, MapOp::Linear, {kDy}, a}});
}

std::unique_ptr<Step> make_add(const StepParts& parts) { return sum(parts, 1); }
std::unique_ptr<Step> make_sub(const StepParts& parts) { return sum(parts, -1); }

// other - alpha self
std::unique_ptr<Step> make_rsub(const StepParts& parts) {
  const Operand self = parts.operand(0), other = parts.operand(1);
  const double alpha = parts.number(2, 1);
  if (!other.exists()) return linear(self, -alpha, parts.number(1));
  return std::make_unique<Broadcast>(
      parts, std::vector{other, self}, MapOp::Add, -alpha,
      Gradients{{0, MapOp::Identity, {kDy}}, {1, MapOp::Linear, {kDy}, -alpha}});
}

std::unique_ptr<Step> make_mul(const StepParts& parts) {
  const Operand self = parts.operand(0), other = parts.operand(1);
  if (!other.exists()) return linear(self, parts.number(1), 0);
  if (!self.exists()) return linear(other, parts.number(0), 0);
  return std::make_unique<Broadcast>(parts, std::vector{self, other}, MapOp::Mul, 0,
                                     Gradients{{0, MapOp::Mul, {kDy, 1}}, {1, MapOp::Mul, {kDy, 0}}});
}

std::unique_ptr<Step> make_div(const StepParts& parts) {
  const Operand self = parts.operand(0), other = parts.operand(1);
  if (!other.exists()) return linear(self, 1 / parts.number(1), 0);
  return std::make_unique<Broadcast>(parts, std::vector{self, other}, MapOp::Div, 0,
                                     Gradients{{0, MapOp::Div, {kDy, 1}}, {1, MapOp::DivGrad, {kDy, kY, 1}}});
}

template <MapOp Op, MapOp Gradient>
std::unique_ptr<Step> make_extreme(const StepParts& parts) {
  return std::make_unique<Broadcast>(parts, std::vector{parts.operand(0), parts.operand(1)}, Op, 0,
                                     Gradients{{0, Gradient, {kDy, 0, 1}}, {1, Gradient, {kDy, 1, 0}}});
}

template <MapOp Op>
std::unique_ptr<Step> make_comparison(const StepParts& parts) {
  return std::make_unique<Broadcast>(parts, std::vector{parts.operand(0), parts.operand(1)}, Op, 0,
                                     Gradients{});
}

std::unique_ptr<Step> make_where(const StepParts& parts) {
  return std::make_unique<Broadcast>(
      parts, std::vector{parts.operand(0), parts.operand(1), parts.operand(2)}, MapOp::Where, 0,
      Gradients{{1, MapOp::Select, {0, kDy}}, {2, MapOp::SelectNot, {0, kDy}}});
}

// x where the condition holds, else a number; or the reverse.
std::unique_ptr<Step> choose(const StepParts& parts, const Operand& condition, const Operand& x, MapOp op,
                             double number) {
  return std::make_unique<Broadcast>(parts, std::vector{condition, x}, op, number,
                                     Gradients{{1, op, {0, kDy}}});
}

std::unique_ptr<Step> make_where_other(const StepParts& parts) {
  return choose(parts, parts.operand(0), parts.operand(1), MapOp::Select, parts.number(2));
}
std::unique_ptr<Step> make_where_self(const StepParts& parts) {
  return choose(parts, parts.operand(0), parts.operand(2), MapOp::SelectNot, parts.number(1));
}
std::unique_ptr<Step> make_masked_fill(const StepParts& parts) {
  return choose(parts, parts.operand(1), parts.operand(0), MapOp::SelectNot, parts.number(2));
}
std::unique_ptr<Step> make_masked_fill_tensor(const StepParts& parts) {
  if (!parts.operand(2).exists()) return make_masked_fill(parts);
  return std::make_unique<Broadcast>(
      parts, std::vector{parts.operand(1), parts.operand(2), parts.operand(0)}, MapOp::Where, 0,
      Gradients{{1, MapOp::Select, {0, kDy}}, {2, MapOp::SelectNot, {0, kDy}}});
}

// y = drop(x), keyed by the element of the sample. Backward draws the same mask.
class DropoutStep final : public Step {
 public:
  DropoutStep(const StepParts& parts)
      : x_(parts.operand(0)), probability_(parts.number(1)), key_(parts.key()) {}

  void forward(Frame& frame, Saved&, Tensor y) const override {
    const Tensor x = frame.dense(x_, y.dtype);
    frame.run.ops.dropout(frame.run.stream, y, x, dropout(frame));
  }
  void backward(Frame& frame, Saved&, Tensor dy) const override {
    if (!frame.wants(x_)) return;
    const Frame::Target dx = frame.gradient(x_);
    frame.run.ops.dropout(frame.run.stream, dx.tensor, dy, dropout(frame));
    frame.give(x_, dx);
  }
  bool is_cheap() const override { return true; }

 private:
  Dropout dropout(const Frame& frame) const {
    return sample_dropout(frame.run, frame.run.training ? probability_ : 0, key_, 0,
                          x_.view.elements(frame.batch) / frame.batch);
  }

  Operand x_;
  double probability_;
  PhiloxKey key_;
};

std::unique_ptr<Step> make_dropout(const StepParts& parts) { return std::make_unique<DropoutStep>(parts); }

std::string dropout_limit(const Graph& graph, const Node& node) {
  const std::vector<Extent>& dims = graph.at(node.outputs.front()).dims;
  const double probability = std::get<double>(node.arguments.at(1));
  if (!(probability >= 0 && probability < 1))
    return fmt::format("its probability is {}, not at least 0 and below 1", probability);
  for (size_t axis = 0; axis < dims.size(); ++axis)
    if (dims[axis].per_sample != (axis == 0 && graph.has_batch))
      return fmt::format(
          "its input has the shape {}, and random numbers are drawn for each sample, "
          "whose axis must be the first",
          to_text(dims));
  return {};
}

}  // namespace

void add_elementwise_rules(std::vector<Rule>& rules) {
  using enum MapOp;
  using Reads = Unary::Reads;
  const std::vector<Rule> all{
      {"neg", [](const StepParts& parts) { return linear(parts.operand(0), -1, 0); }},
      {"abs", make_unary<Abs, AbsGrad, Reads::Input>},
      {"log", make_unary<Log, LogGrad, Reads::Input>},
      {"log1p", make_unary<Log1p, Log1pGrad, Reads::Input>},
      {"exp", make_unary<Exp, ExpGrad, Reads::Output>},
      {"sqrt", make_unary<Sqrt, SqrtGrad, Reads::Output>},
      {"rsqrt", make_unary<Rsqrt, RsqrtGrad, Reads::Output>},
      {"reciprocal", make_unary<Reciprocal, ReciprocalGrad, Reads::Output>},
      {"square", make_unary<Square, SquareGrad, Reads::Input>},
      {"cos", make_unary<Cos, CosGrad, Reads::Input>},
      {"sin", make_unary<Sin, SinGrad, Reads::Input>},
      {"erf", make_unary<Erf, ErfGrad, Reads::Input>},
      {"tanh", make_unary<Tanh, TanhGrad, Reads::Output>},
      {"sigmoid", make_unary<Sigmoid, SigmoidGrad, Reads::Output>},
      {"relu", make_unary<Relu, ReluGrad, Reads::Output>},
      {"silu", make_unary<Silu, SiluGrad, Reads::Input>},
      {"gelu", make_gelu},
      {"pow.Tensor_Scalar", make_power},
      {"clamp", make_clamp<1, 2>},
      {"clamp_min", make_clamp<1, 0>},
      {"clamp_max", make_clamp<0, 1>},
      {"add.Tensor", make_add},
      {"add.Scalar", make_add},
      {"sub.Tensor", make_sub},
      {"sub.Scalar", make_sub},
      {"rsub.Tensor", make_rsub},
      {"rsub.Scalar", make_rsub},
      {"mul.Tensor", make_mul},
      {"mul.Scalar", make_mul},
      {"div.Tensor", make_div},
      {"div.Scalar", make_div},
      {"minimum", make_extreme<Minimum, MinimumGrad>},
      {"min.other", make_extreme<Minimum, MinimumGrad>},
      {"maximum", make_extreme<Maximum, MaximumGrad>},
      {"max.other", make_extreme<Maximum, MaximumGrad>},
      {"eq.Tensor", make_comparison<Equal>},
      {"ne.Tensor", make_comparison<NotEqual>},
      {"lt.Tensor", make_comparison<Less>},
      {"le.Tensor", make_comparison<LessEqual>},
      {"gt.Tensor", make_comparison<Greater>},
      {"ge.Tensor", make_comparison<GreaterEqual>},
      {"where.self", make_where},
      {"where.ScalarOther", make_where_other},
      {"where.ScalarSelf", make_where_self},
      {"masked_fill.Scalar", make_masked_fill},
      {"masked_fill.Tensor", make_masked_fill_tensor},
      {"dropout", make_dropout, 0, 0, false, nullptr, dropout_limit},
  };
  rules.insert(rules.end(), all.begin(), all.end());
}

}  // namespace trifold::graph
