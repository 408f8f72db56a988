// Rules of operations that move elements.
#include "core/error.h"
#include "graph/steps/rules.h"

namespace trifold::graph {

namespace {

// A copy of a view in order, for operations that need another shape of it (`dense` in graphs only), and for `detach`.
class Copy final : public Step {
 public:
  explicit Copy(Operand x) : x_(std::move(x)) {}
  void forward(Frame& frame, Saved&, Tensor y) const override {
    const StridedTensor x = frame.strided(x_, y.dtype);
    const Box box = x_.view.box(frame.batch);
    frame.run.ops.strided_copy(frame.run.stream, y, contiguous_view(box), x.tensor, x.view, box);
  }
  void backward(Frame& frame, Saved&, Tensor dy) const override {
    if (frame.wants(x_)) frame.give(x_, {dy});
  }
  bool is_cheap() const override { return true; }

 private:
  Operand x_;
};

// Puts operands into parts of the result, one after another: the whole first, if the parts do not cover it.
class Assembled final : public Step {
 public:
  struct Part {
    Operand operand;
    View place;  // in the result
  };
  // `whole`, if it exists, is overwritten by the parts.
  Assembled(Operand whole, View result, std::vector<Part> parts)
      : whole_(std::move(whole)), result_(std::move(result)), parts_(std::move(parts)) {}

  void forward(Frame& frame, Saved&, Tensor y) const override {
    if (whole_.exists()) copy(frame, y, contiguous_view(result_.box(frame.batch)), whole_);
    for (const Part& part : parts_) copy(frame, y, part.place.strided(frame.batch), part.operand);
  }

  void backward(Frame& frame, Saved&, Tensor dy) const override {
    const OpTable& ops = frame.run.ops;
    Stream& stream = frame.run.stream;
    for (const Part& part : parts_) {
      if (!frame.wants(part.operand)) continue;
      const Frame::Target dx = frame.gradient(part.operand);
      const Box box = part.operand.view.box(frame.batch);
      ops.strided_copy(stream, dx.tensor, contiguous_view(box), frame.converted(dy, dx.tensor.dtype),
                       part.place.strided(frame.batch), box);
      frame.give(part.operand, dx);
    }
    if (!frame.wants(whole_)) return;
    const Frame::Target dx = frame.gradient(whole_);
    ops.copy(stream, dx.tensor, frame.converted(dy, dx.tensor.dtype));
    for (const Part& part : parts_) {
      const Box box = part.place.box(frame.batch);
      const Tensor zero = frame.temporary(dx.tensor.dtype, {1});
      ops.fill(stream, zero, 0.0);
      ops.strided_copy(stream, dx.tensor, part.place.strided(frame.batch), zero, {}, box);
    }
    frame.give(whole_, dx);
  }
  bool is_cheap() const override { return true; }

 private:
  static void copy(Frame& frame, Tensor y, const StridedView& to, const Operand& operand) {
    const StridedTensor x = frame.strided(operand, y.dtype);
    frame.run.ops.strided_copy(frame.run.stream, y, to, x.tensor, x.view, operand.view.box(frame.batch));
  }

  Operand whole_;
  View result_;
  std::vector<Part> parts_;
};

size_t axis_of(const StepParts& parts, size_t argument, size_t rank) {
  const int64_t axis = parts.integer(argument);
  return static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(rank) : axis);
}

std::unique_ptr<Step> make_cat(const StepParts& parts) {
  const View result = parts.result();
  const size_t axis = axis_of(parts, 1, result.dims.size());
  std::vector<Assembled::Part> all;
  Size offset;
  for (const Operand& operand : parts.operands.at(0)) {
    if (operand.view.dims.size() != result.dims.size())
      continue;  // PyTorch allows an empty tensor of another rank
    View place = result;
    check(offset.per_sample == 0 && result.strides[axis].per_sample == 0,
          "tensors are concatenated along the batch");
    place.begin = {offset.fixed * result.strides[axis].fixed, 0};
    place.dims = operand.view.dims;
    offset = {offset.fixed + operand.view.dims[axis].fixed,
              offset.per_sample + operand.view.dims[axis].per_sample};
    all.push_back({operand, place});
  }
  return std::make_unique<Assembled>(Operand{}, result, std::move(all));
}

std::unique_ptr<Step> make_stack(const StepParts& parts) {
  const View result = parts.result();
  const size_t axis = axis_of(parts, 1, result.dims.size());
  std::vector<Assembled::Part> all;
  for (const Operand& operand : parts.operands.at(0)) {
    View place = result;
    const auto index = static_cast<int64_t>(all.size());
    place.begin = {index * result.strides[axis].fixed, index * result.strides[axis].per_sample};
    place.dims.erase(place.dims.begin() + static_cast<std::ptrdiff_t>(axis));
    place.strides.erase(place.strides.begin() + static_cast<std::ptrdiff_t>(axis));
    all.push_back({operand, place});
  }
  return std::make_unique<Assembled>(Operand{}, result, std::move(all));
}

// slice_scatter and select_scatter: the part is a view of the result, as the operation without "_scatter" takes it.
std::unique_ptr<Step> scatter(const StepParts& parts, std::string_view view, size_t first_attribute) {
  Node part;
  part.name = view;
  part.arguments = {parts.node.arguments[0]};
  for (size_t i = first_attribute; i < parts.node.arguments.size(); ++i)
    part.arguments.push_back(parts.node.arguments[i]);
  part.outputs = {std::get<ValueId>(parts.node.arguments[1])};  // the part has the shape of what is put there
  const std::optional<View> place = view_of(parts.graph, part, 0, parts.result());
  check(place.has_value(), "the part of {} is no view", to_text(parts.node));
  return std::make_unique<Assembled>(parts.operand(0), parts.result(),
                                     std::vector{Assembled::Part{parts.operand(1), *place}});
}

std::string batch_axis_limit(const Graph& graph, const Node& node) {
  const std::vector<Extent>& dims = graph.at(node.outputs.front()).dims;
  const int64_t axis = std::get<Extent>(node.arguments.at(1)).value;
  const size_t at = static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(dims.size()) : axis);
  if (at >= dims.size()) return fmt::format("its axis {} is not one of {}", axis, to_text(dims));
  if (dims[at].per_sample) return "it concatenates along the axis of the samples";
  for (size_t i = at; i < dims.size(); ++i)
    if (dims[i].per_sample)
      return fmt::format("its result {} has the samples after axis {}", to_text(dims), axis);
  return {};
}

}  // namespace

void add_movement_rules(std::vector<Rule>& rules) {
  const auto make_copy = [](const StepParts& parts) -> std::unique_ptr<Step> {
    return std::make_unique<Copy>(parts.operand(0));
  };
  const std::vector<Rule> all{
      {"dense", make_copy},
      {"detach", make_copy},
      {"cat", make_cat, 0, 0, false, nullptr, batch_axis_limit},
      {"stack", make_stack, 0, 0, false, nullptr, batch_axis_limit},
      {"slice_scatter", [](const StepParts& parts) { return scatter(parts, "slice.Tensor", 2); }},
      {"select_scatter", [](const StepParts& parts) { return scatter(parts, "select.int", 2); }},
  };
  rules.insert(rules.end(), all.begin(), all.end());
}

}  // namespace trifold::graph
