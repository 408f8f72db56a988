#include "graph/lower/decompose.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "graph/operations.h"

namespace trifold::graph {

namespace {

constexpr int64_t kNone = 0, kMean = 1, kSum = 2;  // reductions of losses

class Decomposer {
 public:
  Decomposer(Graph graph, const std::vector<bool>& trained) : graph_(std::move(graph)), trained_(trained) {}

  Graph run() {
    std::vector<Node> nodes;
    nodes.swap(graph_.nodes);
    for (Node& node : nodes) {
      origin_ = node.origin;
      const bool has_results = !node.outputs.empty() && node.outputs[0].index >= 0;
      if (node.operation == nullptr || !has_results || !decompose(node))
        graph_.nodes.push_back(std::move(node));
    }
    return std::move(graph_);
  }

 private:
  bool decompose(const Node& node) {
    const std::string_view name = node.name;
    if (name == "squeeze" || name == "squeeze.dims" || name == "unflatten.int") return reshaped(node);
    if (name == "numpy_T" || name == "mT") return turned(node);
    if (name == "broadcast_tensors") return broadcast(node);
    if (name == "repeat") return repeated(node);
    if (name == "repeat_interleave.self_int") return interleaved(node);
    if (name == "baddbmm") return product(node);
    if (name == "mse_loss") return squares(node);
    if (name == "l1_loss") return distances(node);
    if (name == "smooth_l1_loss" || name == "huber_loss") return huber(node);
    if (name == "kl_div") return divergence(node);
    if (name == "binary_cross_entropy") return binary(node);
    if (name == "binary_cross_entropy_with_logits") return logistic(node);
    if (name == "cross_entropy_loss") return smoothed(node);
    if (name.ends_with(".Tensor") || name.ends_with(".Scalar")) return arithmetic(node);
    return false;
  }

  // ---- reading ----

  static std::optional<ValueId> tensor(const Argument& argument) {
    const auto* id = std::get_if<ValueId>(&argument);
    return id != nullptr && id->index >= 0 ? std::optional(*id) : std::nullopt;
  }
  static std::optional<double> number(const Argument& argument) {
    if (const auto* real = std::get_if<double>(&argument)) return *real;
    if (const auto* whole = std::get_if<Extent>(&argument); whole != nullptr && !whole->per_sample)
      return static_cast<double>(whole->value);
    return std::nullopt;
  }
  // The reduction that an argument means, if it is one.
  static std::optional<int64_t> reduction_of(const Argument& argument) {
    const auto* kind = std::get_if<Extent>(&argument);
    if (kind == nullptr || kind->per_sample || kind->value < kNone || kind->value > kSum) return std::nullopt;
    return kind->value;
  }
  std::vector<Extent> dims(ValueId id) const { return graph_.at(id).dims; }

  // ---- writing ----

  void emit(std::string_view operation, std::vector<Argument> arguments, ValueId output) {
    const Operation* const row = find_operation(operation);
    check(row != nullptr, "the operation '{}' has no row", operation);
    graph_.nodes.push_back({row, std::string(operation), std::move(arguments), {output}, origin_});
  }
  ValueId add(std::string_view operation, std::vector<Argument> arguments, ElementType type,
              std::vector<Extent> of_dims) {
    const ValueId value = graph_.add({origin_.node, type, std::move(of_dims)});
    emit(operation, std::move(arguments), value);
    return value;
  }
  // An elementwise operation of the shape and type of `like`.
  ValueId each(std::string_view operation, std::vector<Argument> arguments, ValueId like) {
    return add(operation, std::move(arguments), graph_.at(like).type, dims(like));
  }
  ValueId scaled(ValueId x, double factor) { return each("mul.Scalar", {x, factor}, x); }

  // ---- numbers that depend on the batch ----

  // Arithmetic with such a number takes a tensor for it, which the host prepares.
  bool arithmetic(const Node& node) {
    const std::string name = node.name.substr(0, node.name.find('.'));
    constexpr std::string_view kNames[] = {"add", "sub", "rsub", "mul", "div"};
    if (std::find(std::begin(kNames), std::end(kNames), name) == std::end(kNames)) return false;
    if (!is_trained(node.outputs[0])) return false;  // the host computes it as it is
    std::vector<Argument> arguments = node.arguments;
    bool replaced = false;
    for (size_t i = 0; i < 2 && i < arguments.size(); ++i) {
      const auto* const given = std::get_if<Extent>(&arguments[i]);
      if (given == nullptr || !given->per_sample) continue;
      arguments[i] = add("scalar_tensor", {*given}, graph_.at(node.outputs[0]).type, {});
      replaced = true;
    }
    if (replaced) emit(name + ".Tensor", std::move(arguments), node.outputs[0]);
    return replaced;
  }

  // ---- views ----

  bool reshaped(const Node& node) {
    const auto x = tensor(node.arguments[0]);
    if (!x) return false;
    emit("reshape", {*x, dims(node.outputs[0])}, node.outputs[0]);
    return true;
  }

  bool turned(const Node& node) {
    const auto x = tensor(node.arguments[0]);
    if (!x) return false;
    const auto rank = static_cast<int64_t>(dims(*x).size());
    if (node.name == "mT") {
      if (rank < 2) return false;
      emit("transpose.int", {*x, Extent{rank - 2}, Extent{rank - 1}}, node.outputs[0]);
      return true;
    }
    std::vector<Extent> order;
    for (int64_t axis = rank; axis-- > 0;) order.push_back({axis});
    emit("permute", {*x, order}, node.outputs[0]);
    return true;
  }

  bool broadcast(const Node& node) {
    const auto* const given = std::get_if<std::vector<ValueId>>(&node.arguments[0]);
    if (given == nullptr || given->size() != node.outputs.size()) return false;
    for (size_t i = 0; i < given->size(); ++i)
      if (node.outputs[i].index >= 0 && (*given)[i].index >= 0)
        emit("expand", {(*given)[i], dims(node.outputs[i]), false}, node.outputs[i]);
    return true;
  }

  struct Repeat {
    Extent extent;
    int64_t count = 1;
  };
  // Whether a file gives the result the extents that follow from these.
  bool has_extents(ValueId output, const std::vector<Repeat>& axes) const {
    const std::vector<Extent> given = dims(output);
    if (given.size() != axes.size()) return false;
    for (size_t axis = 0; axis < axes.size(); ++axis) {
      int64_t value = 0;
      if (__builtin_mul_overflow(axes[axis].extent.value, axes[axis].count, &value)) return false;
      if (given[axis] != Extent{value, axes[axis].extent.per_sample}) return false;
    }
    return true;
  }
  // x with these extents, repeated along one axis after another: as a whole (`whole`), or each of its elements.
  void repeat(ValueId x, const std::vector<Repeat>& axes, bool whole, ValueId output) {
    const ElementType type = graph_.at(x).type;
    std::vector<Extent> shape;
    for (const Repeat& axis : axes) shape.push_back(axis.extent);
    for (size_t at = 0; at < axes.size(); ++at) {
      const Extent count{axes[at].count}, own = shape[at], one{1};
      if (count == one) continue;
      const auto place = static_cast<std::ptrdiff_t>(at);
      std::vector<Extent> narrow = shape, wide = shape;
      narrow.insert(narrow.begin() + place + (whole ? 0 : 1), one);
      wide.insert(wide.begin() + place + (whole ? 0 : 1), count);
      shape[at] = {own.value * count.value, own.per_sample};
      const ValueId split = add("reshape", {x, narrow}, type, narrow);
      const ValueId expanded = add("expand", {split, wide, false}, type, wide);
      x = add("reshape", {expanded, shape}, type, shape);
    }
    emit("reshape", {x, dims(output)}, output);
  }

  // The host repeats what no parameter has an effect on.
  bool repeated(const Node& node) {
    const auto x = tensor(node.arguments[0]);
    const auto* const repeats = std::get_if<std::vector<Extent>>(&node.arguments[1]);
    if (!x || repeats == nullptr || !is_trained(*x)) return false;
    const std::vector<Extent> own = dims(*x);
    if (repeats->size() < own.size()) return false;
    const size_t added = repeats->size() - own.size();
    std::vector<Repeat> axes;
    for (size_t axis = 0; axis < repeats->size(); ++axis) {
      if ((*repeats)[axis].per_sample || (*repeats)[axis].value < 1) return false;
      axes.push_back({axis < added ? Extent{1} : own[axis - added], (*repeats)[axis].value});
    }
    if (!has_extents(node.outputs[0], axes)) return false;
    repeat(*x, axes, true, node.outputs[0]);
    return true;
  }

  bool interleaved(const Node& node) {
    const auto x = tensor(node.arguments[0]);
    const auto* const count = std::get_if<Extent>(&node.arguments[1]);
    if (!x || count == nullptr || count->per_sample || count->value < 1) return false;
    ValueId from = *x;
    std::vector<Extent> own = dims(*x);
    size_t at = 0;
    if (const auto* const given = std::get_if<Extent>(&node.arguments[2])) {
      const auto rank = static_cast<int64_t>(own.size());
      if (given->value < -rank || given->value >= rank) return false;
      at = static_cast<size_t>(given->value < 0 ? given->value + rank : given->value);
    } else {  // all elements in order are repeated
      const std::vector<Extent> result = dims(node.outputs[0]);
      if (result.size() != 1 || result[0].value % count->value != 0) return false;
      const Extent all = result[0];
      own = {{all.value / count->value, all.per_sample}};
      from = add("reshape", {*x, own}, graph_.at(*x).type, own);
    }
    std::vector<Repeat> axes;
    for (size_t axis = 0; axis < own.size(); ++axis)
      axes.push_back({own[axis], axis == at ? count->value : 1});
    if (!has_extents(node.outputs[0], axes)) return false;
    repeat(from, axes, false, node.outputs[0]);
    return true;
  }

  // beta self + alpha batch1 batch2
  bool product(const Node& node) {
    const auto self = tensor(node.arguments[0]);
    const auto beta = number(node.arguments[3]), alpha = number(node.arguments[4]);
    if (!self || !beta || !alpha) return false;
    const ValueId y = node.outputs[0];
    ValueId of_factors = each("bmm", {node.arguments[1], node.arguments[2]}, y);
    if (*alpha != 1) of_factors = scaled(of_factors, *alpha);
    if (*beta == 0) {  // self is not read then, and may be infinite
      emit("mul.Scalar", {of_factors, 1.0}, y);
      return true;
    }
    emit("add.Tensor", {of_factors, *self, *beta}, y);
    return true;
  }

  // ---- losses ----

  bool is_trained(ValueId id) const {
    const auto index = static_cast<size_t>(id.index);
    return index < trained_.size() && trained_[index];
  }

  void reduce(ValueId losses, int64_t kind, ValueId output) {
    if (kind == kNone)
      emit("mul.Scalar", {losses, 1.0}, output);
    else
      emit(kind == kMean ? "mean" : "sum", {losses, {}}, output);
  }

  // Whether PyTorch repeats the elements of `small` to the shape of `large`.
  bool fits(ValueId small, ValueId large) const {
    const std::vector<Extent> from = dims(small), to = dims(large);
    if (from.size() > to.size()) return false;
    for (size_t axis = 0; axis < from.size(); ++axis)
      if (from[axis] != to[axis + to.size() - from.size()] && from[axis] != Extent{1}) return false;
    return true;
  }
  // self - target.
  std::optional<ValueId> difference(const Node& node) {
    const auto x = tensor(node.arguments[0]), target = tensor(node.arguments[1]);
    if (!x || !target || !reduction_of(node.arguments[2]) || !fits(*target, *x)) return std::nullopt;
    return each("sub.Tensor", {*x, *target, Extent{1}}, *x);
  }

  bool squares(const Node& node) {
    const auto d = difference(node);
    if (!d) return false;
    reduce(each("square", {*d}, *d), *reduction_of(node.arguments[2]), node.outputs[0]);
    return true;
  }

  bool distances(const Node& node) {
    const auto d = difference(node);
    if (!d) return false;
    reduce(each("abs", {*d}, *d), *reduction_of(node.arguments[2]), node.outputs[0]);
    return true;
  }

  // With c = min(|d|, beta): c (|d| - c / 2), which is d^2 / 2 up to beta and beta (|d| - beta / 2) beyond; the smooth
  // loss is that divided by beta.
  bool huber(const Node& node) {
    const auto beta = number(node.arguments[3]);
    if (!beta || *beta < 0) return false;
    const auto d = difference(node);
    if (!d) return false;
    const ValueId a = each("abs", {*d}, *d);
    const int64_t kind = *reduction_of(node.arguments[2]);
    const bool smooth = node.name == "smooth_l1_loss";
    if (*beta == 0) {
      reduce(smooth ? a : scaled(a, 0), kind, node.outputs[0]);
      return true;
    }
    const ValueId c = each("clamp_max", {a, *beta}, a);
    const ValueId rest = each("sub.Tensor", {a, c, 0.5}, a);
    const ValueId loss = each("mul.Tensor", {c, rest}, a);
    reduce(smooth ? scaled(loss, 1 / *beta) : loss, kind, node.outputs[0]);
    return true;
  }

  // t (log t - x), which is 0 where t is 0; with the logarithm of t given, exp(t) (t - x).
  bool divergence(const Node& node) {
    const auto x = tensor(node.arguments[0]), target = tensor(node.arguments[1]);
    const auto kind = reduction_of(node.arguments[2]);
    if (!x || !target || !kind || dims(*x) != dims(*target)) return false;
    ValueId t = *target, log = *target;
    if (std::get<bool>(node.arguments[3]))
      t = each("exp", {log}, *target);
    else
      log = each("log", {each("clamp_min", {t, 1e-37}, t)}, t);
    reduce(each("mul.Tensor", {t, each("sub.Tensor", {log, *x, Extent{1}}, *x)}, *x), *kind, node.outputs[0]);
    return true;
  }

  // -(t log p + (1 - t) log(1 - p)), with logarithms of at least -100 as in PyTorch.
  bool binary(const Node& node) {
    const auto p = tensor(node.arguments[0]), t = tensor(node.arguments[1]);
    const auto kind = reduction_of(node.arguments[3]);
    if (!p || !t || !kind || dims(*p) != dims(*t)) return false;
    const auto bounded = [&](ValueId log) { return each("clamp_min", {log, -100.0}, *p); };
    const ValueId yes = bounded(each("log", {*p}, *p));
    const ValueId no = bounded(each("log1p", {each("neg", {*p}, *p)}, *p));
    // no + t (yes - no)
    const ValueId gain = each("mul.Tensor", {*t, each("sub.Tensor", {yes, no, Extent{1}}, *p)}, *p);
    ValueId loss = each("neg", {each("add.Tensor", {no, gain, Extent{1}}, *p)}, *p);
    if (const auto weight = tensor(node.arguments[2])) loss = each("mul.Tensor", {loss, *weight}, *p);
    reduce(loss, *kind, node.outputs[0]);
    return true;
  }

  // max(z, 0) - z t + log(1 + exp(-|z|)); with a weight p of positive samples
  // (1 - t) z + (1 + (p - 1) t) (log(1 + exp(-|z|)) + max(-z, 0)).
  bool logistic(const Node& node) {
    const auto given = tensor(node.arguments[0]), labels = tensor(node.arguments[1]);
    const auto kind = reduction_of(node.arguments[4]);
    if (!given || !labels || !kind) return false;
    const ValueId z = *given, t = *labels;
    // max(z, 0) is (|z| + z) / 2, whose derivative at 0 is 1/2, as that of the whole formula has to be.
    const auto half = [&](ValueId value) { return each("mul.Scalar", {value, 0.5}, z); };
    const ValueId magnitude = each("abs", {z}, z);
    const ValueId soft = each("log1p", {each("exp", {each("neg", {magnitude}, z)}, z)}, z);
    ValueId loss;
    if (const auto positive = tensor(node.arguments[3])) {
      const ValueId excess =
          each("mul.Tensor", {each("sub.Scalar", {*positive, 1.0, Extent{1}}, *positive), t}, z);
      const ValueId factor = each("add.Scalar", {excess, 1.0, Extent{1}}, z);
      const ValueId below = half(each("add.Tensor", {magnitude, each("neg", {z}, z), Extent{1}}, z));
      const ValueId logs = each("add.Tensor", {soft, below, Extent{1}}, z);
      const ValueId rest = each("mul.Tensor", {each("rsub.Scalar", {t, 1.0, Extent{1}}, z), z}, z);
      loss = each("add.Tensor", {rest, each("mul.Tensor", {factor, logs}, z), Extent{1}}, z);
    } else {
      const ValueId above = half(each("add.Tensor", {magnitude, z, Extent{1}}, z));
      const ValueId linear = each("sub.Tensor", {above, each("mul.Tensor", {z, t}, z), Extent{1}}, z);
      loss = each("add.Tensor", {linear, soft, Extent{1}}, z);
    }
    if (const auto weight = tensor(node.arguments[2])) loss = each("mul.Tensor", {loss, *weight}, z);
    reduce(loss, *kind, node.outputs[0]);
    return true;
  }

  // Class scores x [R, V] with e of the labels' weight spread over all classes, e / V for each; or with probabilities of
  // classes t [R, V] as labels, which are then mixed in the same way. A mean is over the rows that count.
  bool smoothed(const Node& node) {
    const auto x = tensor(node.arguments[0]), labels = tensor(node.arguments[1]);
    const auto kind = reduction_of(node.arguments[3]);
    const auto smoothing = number(node.arguments[5]);
    if (!x || !labels || !kind || *kind == kNone || !smoothing || dims(*x).size() != 2) return false;
    if (tensor(node.arguments[2]) || dims(*x)[1].per_sample || dims(*x)[1].value < 1) return false;
    const bool soft = is_float(graph_.at(*labels).type) && dims(*labels) == dims(*x);
    if (!soft && (*smoothing == 0 || dims(*labels).size() != 1)) return false;
    const std::vector<Extent> rows{dims(*x)[0]};
    const ElementType type = graph_.at(*x).type;
    const double part = *smoothing / static_cast<double>(dims(*x)[1].value);
    const ValueId logs = each("log_softmax.int", {*x, Extent{1}, {}}, *x);
    const auto over_classes = [&](ValueId values) {
      return add("sum.dim_IntList", {values, std::vector<Extent>{{1}}, false, {}}, type, rows);
    };
    if (soft) {
      const ValueId mixed = each("add.Scalar", {scaled(*labels, 1 - *smoothing), part, Extent{1}}, *labels);
      const ValueId sums = over_classes(each("mul.Tensor", {logs, mixed}, *x));
      reduce(each("neg", {sums}, sums), *kind, node.outputs[0]);
      return true;
    }
    if (is_trained(*labels)) return false;
    const auto one = [&](std::string_view operation, std::vector<Argument> arguments) {
      return add(operation, std::move(arguments), type, {});
    };
    const ValueId counted = add("ne.Scalar", {*labels, node.arguments[4]}, ElementType::Bool, rows);
    const ValueId of_labels =
        one("cross_entropy_loss", {*x, *labels, {}, Extent{kSum}, node.arguments[4], 0.0});
    const ValueId of_rows = add("where.ScalarOther", {counted, over_classes(logs), 0.0}, type, rows);
    const ValueId spread = one("mul.Scalar", {one("sum", {of_rows, {}}), -part});
    const ValueId total =
        one("add.Tensor", {spread, one("mul.Scalar", {of_labels, 1 - *smoothing}), Extent{1}});
    if (*kind == kSum) {
      emit("mul.Scalar", {total, 1.0}, node.outputs[0]);
      return true;
    }
    const ValueId floats = add("to.dtype", {counted, type, false, false, {}}, type, rows);
    // Without any label PyTorch's mean is 0 / 0; here it is 0.
    emit("div.Tensor", {total, one("clamp_min", {one("sum", {floats, {}}), 1e-30})}, node.outputs[0]);
    return true;
  }

  Graph graph_;
  const std::vector<bool>& trained_;
  Origin origin_;
};

}  // namespace

Graph decomposed(Graph graph, const std::vector<bool>& trained) {
  return Decomposer(std::move(graph), trained).run();
}

}  // namespace trifold::graph
