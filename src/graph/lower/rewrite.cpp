#include "graph/lower/rewrite.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "core/error.h"
#include "graph/operations.h"

namespace trifold::graph {

namespace {

constexpr double kTanhScale = 0.7978845608028654;  // sqrt(2 / pi)

class Rewriter {
 public:
  Rewriter(Graph graph, const std::vector<bool>& trained, ConstantOf constant)
      : old_(std::move(graph)), trained_(trained), constant_(constant) {
    made_by_.assign(old_.values.size(), -1);
    for (size_t i = 0; i < old_.nodes.size(); ++i)
      for (const ValueId id : old_.nodes[i].outputs)
        if (id.index >= 0) made_by_[static_cast<size_t>(id.index)] = static_cast<int>(i);
    uses_.assign(old_.values.size(), 0);
    for (const Node& node : old_.nodes)
      each_read(node, [&](ValueId id) { ++uses_[static_cast<size_t>(id.index)]; });
    for (const Output& output : old_.outputs) ++uses_[static_cast<size_t>(output.value.index)];
    for (size_t i = 0; i < old_.values.size(); ++i) source_.push_back({static_cast<int>(i)});
    for (const Node& node : old_.nodes)
      if (is_conversion(node))
        source_[static_cast<size_t>(node.outputs[0].index)] = source(std::get<ValueId>(node.arguments[0]));
    parameters_.assign(old_.values.size(), false);
    for (const Input& input : old_.inputs)
      if (input.kind == InputKind::Parameter) parameters_[static_cast<size_t>(input.value.index)] = true;
    const auto loss = std::find_if(old_.outputs.begin(), old_.outputs.end(),
                                   [](const Output& output) { return output.updates.empty(); });
    if (loss != old_.outputs.end()) loss_ = loss->value;
  }

  Graph run() {
    new_ = old_;
    new_.nodes.clear();
    for (const Node& node : old_.nodes) {
      origin_ = node.origin;
      if (!rewrite(node)) new_.nodes.push_back(node);
    }
    return std::move(new_);
  }

 private:
  // ---- reading ----

  // The node that computes the tensor given for an argument, through conversions between floats; null if it is no node
  // of this name.
  const Node* maker(const Argument& argument, std::string_view name) const {
    const Node* node = maker(argument);
    return node != nullptr && node->name == name ? node : nullptr;
  }
  const Node* maker(const Argument& argument) const {
    const auto* id = std::get_if<ValueId>(&argument);
    if (id == nullptr || id->index < 0) return nullptr;
    const int index = made_by_[static_cast<size_t>(source(*id).index)];
    return index < 0 ? nullptr : &old_.nodes[static_cast<size_t>(index)];
  }
  // The value, before conversions between floating-point types.
  ValueId source(ValueId id) const { return source_[static_cast<size_t>(id.index)]; }
  bool is_conversion(const Node& node) const {
    if (node.name != "to.dtype" || !is_float(old_.at(node.outputs[0]).type)) return false;
    const auto* const from = std::get_if<ValueId>(&node.arguments[0]);
    return from != nullptr && from->index >= 0 && is_float(old_.at(*from).type);
  }
  std::optional<ValueId> tensor(const Argument& argument) const {
    const auto* id = std::get_if<ValueId>(&argument);
    return id != nullptr && id->index >= 0 ? std::optional(source(*id)) : std::nullopt;
  }
  static std::optional<double> number(const Argument& argument) {
    if (const auto* real = std::get_if<double>(&argument)) return *real;
    if (const auto* whole = std::get_if<Extent>(&argument); whole != nullptr && !whole->per_sample)
      return static_cast<double>(whole->value);
    return std::nullopt;
  }
  static bool is_near(const Argument& argument, double value) {
    const std::optional<double> given = number(argument);
    return given && std::abs(*given - value) <= 1e-6 * std::abs(value);
  }
  bool is_trained(ValueId id) const {
    const auto index = static_cast<size_t>(id.index);
    return index < trained_.size() && trained_[index];
  }

  // ---- writing ----

  ValueId add(std::string_view operation, std::vector<Argument> arguments, ElementType type,
              std::vector<Extent> dims) {
    const ValueId value = new_.add({origin_.node, type, std::move(dims)});
    emit(operation, std::move(arguments), value);
    return value;
  }
  void emit(std::string_view operation, std::vector<Argument> arguments, ValueId output) {
    const Operation* const row = find_operation(operation);
    check(row != nullptr, "the operation '{}' has no row", operation);
    new_.nodes.push_back({row, std::string(operation), std::move(arguments), {output}, origin_});
  }

  bool rewrite(const Node& node) {
    if (node.operation == nullptr) return false;
    if (node.name == "cross_entropy_loss") return cross_entropy(node, node.arguments[0]);
    if (node.name == "nll_loss" || node.name == "nll_loss_nd") return nll(node);
    if (node.name == "embedding") return padded(node);
    if (node.name == "index.Tensor") return indexed(node);
    if (node.name == "index_select") return selected(node);
    if (node.name == "mul.Tensor") return gelu(node) || rms_norm(node);
    if (node.name == "scaled_dot_product_attention") return attention(node);
    return false;
  }

  // Class scores [R, V] and labels [R]: sum over rows of w[label] times the cross entropy; a mean divides by the sum of
  // the weights, which are 0 for ignored labels.
  bool cross_entropy(const Node& node, const Argument& scores) {
    const ValueId logits = std::get<ValueId>(scores), labels = std::get<ValueId>(node.arguments[1]);
    const bool has_smoothing = node.name == "cross_entropy_loss";
    if (new_.at(logits).dims.size() != 2 || new_.at(labels).dims.size() != 1 || is_trained(labels))
      return false;
    if (has_smoothing && number(node.arguments[5]) != 0.0) return false;
    const int64_t reduction = std::get<Extent>(node.arguments[3]).value;
    if (reduction != 1 && reduction != 2) return false;
    const std::vector<Extent> rows = new_.at(labels).dims;
    const ElementType type = new_.at(logits).type == ElementType::F64 ? ElementType::F64 : ElementType::F32;
    const ValueId counted = add("ne.Scalar", {labels, node.arguments[4]}, ElementType::Bool, rows);
    ValueId weights = counted;
    if (const auto classes = tensor(node.arguments[2])) {
      const ValueId safe = add("where.ScalarOther", {counted, labels, Extent{0}}, new_.at(labels).type, rows);
      const ValueId of_label = add("index_select", {*classes, Extent{0}, safe}, new_.at(*classes).type, rows);
      weights = add("where.ScalarOther", {counted, of_label, 0.0}, new_.at(*classes).type, rows);
    }
    const Node* const head = head_of(logits);
    const bool is_loss = loss_ == node.outputs[0];
    if (reduction == 2) {
      if (head != nullptr && is_loss)
        emit_loss(*head, labels, weights, {}, node.outputs[0]);
      else
        emit("cross_entropy_sum", {logits, labels, weights}, node.outputs[0]);
      return true;
    }
    const ValueId floats = add("to.dtype", {weights, type, false, false, {}}, type, rows);
    const ValueId total = add("sum", {floats, {}}, type, {});
    // Without any label PyTorch's mean is 0 / 0; here it is 0.
    const ValueId least = add("clamp_min", {total, 1e-30}, type, {});
    if (head != nullptr && is_loss) {
      emit_loss(*head, labels, weights, least, node.outputs[0]);
      return true;
    }
    const ValueId sum =
        add("cross_entropy_sum", {logits, labels, weights}, new_.at(node.outputs[0]).type, {});
    emit("div.Tensor", {sum, least}, node.outputs[0]);
    return true;
  }

  void emit_loss(const Node& head, ValueId labels, ValueId weights, const Argument& divisor, ValueId output) {
    emit("linear_cross_entropy",
         {head.arguments[0], head.arguments[1], head.arguments[2], labels, weights, divisor}, output);
  }
  // The linear layer that computes the logits and nothing else; null if there is none. Its weight and bias are
  // parameters.
  const Node* head_of(ValueId logits) const {
    const Extent classes = old_.at(logits).dims.back();
    for (;;) {
      logits = source(logits);
      const int made_by = made_by_[static_cast<size_t>(logits.index)];
      if (made_by < 0 || uses_[static_cast<size_t>(logits.index)] != 1) return nullptr;
      if (old_.at(logits).dims.empty() || old_.at(logits).dims.back() != classes) return nullptr;
      const Node& node = old_.nodes[static_cast<size_t>(made_by)];
      if (node.name == "view" || node.name == "reshape") {
        logits = std::get<ValueId>(node.arguments[0]);
        continue;
      }
      if (node.name != "linear" || !is_parameter(std::get<ValueId>(node.arguments[1]))) return nullptr;
      const auto bias = tensor(node.arguments[2]);
      return !bias || is_parameter(*bias) ? &node : nullptr;
    }
  }

  bool nll(const Node& node) {
    const Node* const log = maker(node.arguments[0], "log_softmax.int");
    if (log == nullptr) return false;
    const auto& dims = old_.at(std::get<ValueId>(log->arguments[0])).dims;
    const int64_t axis = std::get<Extent>(log->arguments[1]).value;
    if (dims.size() != 2 || (axis != 1 && axis != -1)) return false;
    return cross_entropy(node, log->arguments[0]);
  }

  // The padding token's row gets no gradient: its id becomes -1, which no row has.
  bool padded(const Node& node) {
    const int64_t padding = std::get<Extent>(node.arguments[2]).value;
    const ValueId ids = std::get<ValueId>(node.arguments[1]);
    if (padding < 0 || is_trained(ids)) return false;
    const Value& like = new_.at(ids);
    const std::vector<Extent> dims = like.dims;
    const ElementType type = like.type;
    const ValueId hidden = add("eq.Scalar", {ids, Extent{padding}}, ElementType::Bool, dims);
    const ValueId trained = add("where.ScalarSelf", {hidden, Extent{-1}, ids}, type, dims);
    emit("embedding_padded", {node.arguments[0], ids, trained}, node.outputs[0]);
    return true;
  }

  bool lookup(const Argument& table, ValueId ids, ValueId output) {
    const auto rows = tensor(table);
    if (!rows || !is_trained(*rows) || old_.at(*rows).dims.size() != 2 || is_trained(ids)) return false;
    emit("embedding", {table, ids, Extent{-1}, false, false}, output);
    return true;
  }
  // Negative indices count from the end of the table.
  ValueId from_the_beginning(ValueId indices, const Argument& table) {
    const auto* const id = std::get_if<ValueId>(&table);
    if (id == nullptr || id->index < 0 || new_.at(*id).dims.empty() || is_trained(indices)) return indices;
    const Extent rows = new_.at(*id).dims[0];
    const ElementType type = new_.at(indices).type;
    const std::vector<Extent> dims = new_.at(indices).dims;
    const std::string name = new_.at(indices).name;
    const ValueId below = add("lt.Scalar", {indices, Extent{0}}, ElementType::Bool, dims);
    const ValueId moved = add("add.Scalar", {indices, rows, Extent{1}}, type, dims);
    const ValueId exists = add("ge.Scalar", {moved, Extent{0}}, ElementType::Bool, dims);
    const ValueId from_end = add("logical_and", {below, exists}, ElementType::Bool, dims);
    const ValueId all = add("where.self", {from_end, moved, indices}, type, dims);
    new_.values[static_cast<size_t>(all.index)].name = name;
    return all;
  }
  bool indexed(const Node& node) {
    const auto* indices = std::get_if<std::vector<ValueId>>(&node.arguments[1]);
    if (indices == nullptr || indices->size() != 1 || (*indices)[0].index < 0) return false;
    if (is_float(old_.at((*indices)[0]).type) || old_.at((*indices)[0]).type == ElementType::Bool)
      return false;
    return lookup(node.arguments[0], from_the_beginning((*indices)[0], node.arguments[0]), node.outputs[0]);
  }
  bool selected(const Node& node) {
    if (number(node.arguments[1]) != 0.0) return false;
    return lookup(node.arguments[0], std::get<ValueId>(node.arguments[2]), node.outputs[0]);
  }

  // 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), or 0.5 x (1 + erf(x / sqrt(2))).
  bool gelu(const Node& node) {
    for (const bool swapped : {false, true}) {
      const Node* half = maker(node.arguments[swapped ? 1 : 0], "mul.Tensor");
      const Node* one = maker(node.arguments[swapped ? 0 : 1], "add.Tensor");
      if (half == nullptr || one == nullptr || !is_near(half->arguments[1], 0.5) ||
          !is_near(one->arguments[1], 1))
        continue;
      const auto x = tensor(half->arguments[0]);
      if (!x) continue;
      if (const Node* tanh = maker(one->arguments[0], "tanh");
          tanh != nullptr && is_cubic(tanh->arguments[0], *x)) {
        emit("gelu", {*x, std::string("tanh")}, node.outputs[0]);
        return true;
      }
      if (const Node* erf = maker(one->arguments[0], "erf");
          erf != nullptr && is_over_root(erf->arguments[0], *x)) {
        emit("gelu", {*x, std::string("none")}, node.outputs[0]);
        return true;
      }
    }
    return false;
  }
  bool is_over_root(const Argument& argument, ValueId x) const {
    const Node* const quotient = maker(argument, "div.Tensor");
    if (quotient != nullptr)
      return tensor(quotient->arguments[0]) == x && is_near(quotient->arguments[1], std::sqrt(2.0));
    const Node* const product = maker(argument, "mul.Tensor");
    return product != nullptr && tensor(product->arguments[0]) == x &&
           is_near(product->arguments[1], 1 / std::sqrt(2.0));
  }
  // sqrt(2 / pi) (x + 0.044715 x^3)
  bool is_cubic(const Argument& argument, ValueId x) const {
    const Node* const scaled = maker(argument, "mul.Tensor");
    if (scaled == nullptr || !is_near(scaled->arguments[1], kTanhScale)) return false;
    const Node* const sum = maker(scaled->arguments[0], "add.Tensor");
    if (sum == nullptr || tensor(sum->arguments[0]) != x) return false;
    const Node* const part = maker(sum->arguments[1], "mul.Tensor");
    if (part == nullptr || !is_near(part->arguments[1], 0.044715)) return false;
    const Node* const cube = maker(part->arguments[0], "pow.Tensor_Scalar");
    return cube != nullptr && tensor(cube->arguments[0]) == x && is_near(cube->arguments[1], 3);
  }

  // gain (x rsqrt(mean(x^2) + eps)), where the gain is a parameter of one row.
  bool rms_norm(const Node& node) {
    for (const bool swapped : {false, true}) {
      const auto gain = tensor(node.arguments[swapped ? 1 : 0]);
      const Node* product = maker(node.arguments[swapped ? 0 : 1], "mul.Tensor");
      if (!gain || product == nullptr || !is_parameter(*gain) || old_.at(*gain).dims.size() != 1) continue;
      for (const bool turned : {false, true}) {
        const auto x = tensor(product->arguments[turned ? 1 : 0]);
        const Node* root = maker(product->arguments[turned ? 0 : 1], "rsqrt");
        if (!x || root == nullptr) continue;
        const std::optional<double> eps = eps_of_mean_square(root->arguments[0], *x);
        if (!eps || old_.at(*x).dims.empty() || old_.at(*x).dims.back() != old_.at(*gain).dims[0]) continue;
        emit("rms_norm", {*x, std::vector<Extent>{old_.at(*gain).dims[0]}, *gain, *eps}, node.outputs[0]);
        return true;
      }
    }
    return false;
  }
  // eps of mean(x^2) + eps over the last axis.
  std::optional<double> eps_of_mean_square(const Argument& argument, ValueId x) const {
    const Node* const sum = maker(argument, "add.Tensor");
    if (sum == nullptr) return std::nullopt;
    const Node* const mean = maker(sum->arguments[0], "mean.dim");
    if (mean == nullptr || !std::get<bool>(mean->arguments[2])) return std::nullopt;
    const auto* axes = std::get_if<std::vector<Extent>>(&mean->arguments[1]);
    const auto rank = static_cast<int64_t>(old_.at(x).dims.size());
    if (axes == nullptr || axes->size() != 1 || ((*axes)[0].value != -1 && (*axes)[0].value != rank - 1))
      return std::nullopt;
    const Node* square = maker(mean->arguments[0], "pow.Tensor_Scalar");
    if (square != nullptr && number(square->arguments[1]) != 2.0) return std::nullopt;
    if (square == nullptr) square = maker(mean->arguments[0], "square");
    if (square == nullptr || tensor(square->arguments[0]) != x) return std::nullopt;
    return number(sum->arguments[1]);
  }
  bool is_parameter(ValueId id) const { return parameters_[static_cast<size_t>(id.index)]; }

  // A constant mask of attention that hides nothing, or all later keys.
  bool attention(const Node& node) {
    const auto mask = tensor(node.arguments[3]);
    if (!mask || is_trained(*mask) || std::get<bool>(node.arguments[5])) return false;
    const auto& queries = old_.at(std::get<ValueId>(node.arguments[0])).dims;
    const auto& keys = old_.at(std::get<ValueId>(node.arguments[1])).dims;
    const auto& values_dims = old_.at(std::get<ValueId>(node.arguments[2])).dims;
    const std::vector<Extent>& dims = old_.at(*mask).dims;
    if (dims.size() < 2 || queries.size() < 2 || dims[dims.size() - 2] != queries[queries.size() - 2] ||
        dims.back() != keys[keys.size() - 2] || dims.back().per_sample)
      return false;
    const Sight sight = sight_of(*mask);
    if (sight == Sight::Other) return false;
    // Only the fused attention knows a causal order.
    const bool same_widths = !queries.empty() && queries.back() == keys.back() && keys == values_dims;
    if (sight == Sight::Causal && !same_widths) return false;
    Node plain = node;
    plain.arguments[3] = {};
    plain.arguments[5] = sight == Sight::Causal;
    new_.nodes.push_back(std::move(plain));
    return true;
  }
  enum class Sight : uint8_t { All, Causal, Other };
  // Layers usually share a mask.
  Sight sight_of(ValueId mask) {
    if (const auto known = sights_.find(mask.index); known != sights_.end()) return known->second;
    const std::optional<Array> values = constant_(mask);
    const Sight sight = values ? sight_of(*values, old_.at(mask).dims.back().value) : Sight::Other;
    sights_.emplace(mask.index, sight);
    return sight;
  }
  // What masks [.., queries, keys] let queries see.
  static Sight sight_of(const Array& mask, int64_t keys) {
    const bool is_bool = mask.type == ElementType::Bool;
    if (!is_bool && !is_float(mask.type)) return Sight::Other;
    const Array numbers = converted(mask, ElementType::F64);
    const auto* const values = numbers.as<double>();
    const int64_t queries = mask.dims[mask.dims.size() - 2];
    bool all = true, causal = queries == keys;
    for (int64_t i = 0; i < numbers.elements(); ++i) {
      const int64_t query = i / keys % queries, key = i % keys;
      const bool seen = is_bool ? values[i] != 0 : values[i] == 0;
      const bool hidden = is_bool ? values[i] == 0 : values[i] <= -1e30;
      if (!seen && !hidden) return Sight::Other;
      all = all && seen;
      causal = causal && seen == (key <= query);
    }
    return all ? Sight::All : causal ? Sight::Causal : Sight::Other;
  }

  const Graph old_;
  Graph new_;
  const std::vector<bool>& trained_;
  ConstantOf constant_;
  std::vector<int> made_by_;      // [value] the node of old_ that computes it
  std::vector<int> uses_;         // [value] nodes and outputs that read it
  std::vector<ValueId> source_;   // [value] the value before conversions between floats
  std::vector<bool> parameters_;  // [value] whether it is a parameter
  ValueId loss_;
  std::map<int, Sight> sights_;  // what constant masks let see
  Origin origin_;
};

}  // namespace

Graph rewritten(Graph graph, const std::vector<bool>& trained, ConstantOf constant) {
  return Rewriter(std::move(graph), trained, constant).run();
}

}  // namespace trifold::graph
