// Graphs as text, for tests: a line for each input, each node and the loss.
//
//   w: parameter [2, 3]             trained; "frozen": not trained
//   n: parameter i64 [2]            a type other than f64
//   x: data [b, 3]                  an array of the batch; b stands for its samples, 2b for twice as many
//   i: data i64 [b, 2] below 5      whole numbers from 0 on; of a bool the choice is random
//   c: constant [3] = 1 2 3         given elements; otherwise they are random, of absolute value 0.3 to 1.5
//   v: parameter [2, 3] tied w
//   p: data [b] positive            0.3 to 1.5
//   y [b, 2], z bool [b] = op w x   a node with two results; its arguments follow the schema, and defaults may be left out
//   y [b, 2] = op - [1, b] {w, x} true 0.5 'text' i64      absent, sizes, tensors, attributes
//   loss y                          y if it is one element, or else the sum of y times random numbers
//   count n                         the second output
//   without w, v                    parameters whose gradient is zero in this graph
#pragma once

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "graph/host/array.h"
#include "graph/operations.h"

namespace trifold::graph::lowering {

class SmallModel {
 public:
  explicit SmallModel(const std::string& text) {
    graph.has_batch = true;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      tokens_ = split(line);
      next_ = 0;
      if (tokens_.empty()) continue;
      if (tokens_[0].ends_with(':'))
        read_input();
      else if (tokens_[0] == "loss")
        read_loss();
      else if (tokens_[0] == "without")
        without_gradient.insert(tokens_.begin() + 1, tokens_.end());
      else if (tokens_[0] == "count")
        graph.outputs.push_back({values_.at(tokens_[1]), {}});
      else
        read_node();
    }
  }

  // The elements of an input for `batch` samples.
  const Array& elements(const Input& input, int64_t batch) {
    const auto key = std::pair(input.name, batch);
    if (const auto known = elements_.find(key); known != elements_.end()) return known->second;
    const Value& value = graph.at(input.value);
    std::vector<int64_t> dims;
    for (const Extent& extent : value.dims) dims.push_back(extent.value * (extent.per_sample ? batch : 1));
    Array numbers = make_array(ElementType::F64, dims);
    const Content& content = contents_.at(input.name);
    std::mt19937 random(static_cast<unsigned>(17 * input.value.index + 3));
    for (int64_t i = 0; i < numbers.elements(); ++i) {
      const double part = static_cast<double>(random()) / 4294967296.0, size = 0.3 + 1.2 * part;
      double& number = numbers.as<double>()[i];
      if (!content.given.empty())
        number = content.given.at(static_cast<size_t>(i));
      else if (content.below > 0)
        number = std::floor(part * static_cast<double>(content.below));
      else if (value.type == ElementType::Bool)
        number = part < 0.5 ? 0 : 1;
      else
        number = content.positive || random() % 2 == 0 ? size : -size;
    }
    return elements_.emplace(key, converted(numbers, value.type)).first->second;
  }

  ValueId at(const std::string& name) const { return values_.at(name); }

  Graph graph;
  std::set<std::string> without_gradient;

 private:
  struct Content {
    std::vector<double> given;
    int64_t below = 0;
    bool positive = false;
  };

  static std::vector<std::string> split(const std::string& line) {
    std::vector<std::string> tokens;
    std::string spaced;
    for (const char c : line) {
      const bool alone = std::string("[]{}").find(c) != std::string::npos;
      spaced += c == ',' ? " " : alone ? std::string(" ") + c + " " : std::string(1, c);
    }
    std::istringstream words(spaced);
    for (std::string word; words >> word;) tokens.push_back(word);
    return tokens;
  }

  const std::string& token() { return tokens_.at(next_++); }
  bool more() const { return next_ < tokens_.size(); }
  bool take(const std::string& expected) {
    if (!more() || tokens_[next_] != expected) return false;
    ++next_;
    return true;
  }

  static bool is_number(const std::string& word) {
    return !word.empty() && (std::isdigit(word[0]) != 0 || (word.size() > 1 && word[0] == '-'));
  }
  static bool is_extent(const std::string& word) {
    return word == "b" || (is_number(word) && word.find_first_of(".e") == word.npos);
  }
  static Extent extent_of(const std::string& word) {
    if (word == "b") return {1, true};
    return {std::stoll(word), word.back() == 'b'};
  }
  std::vector<Extent> take_dims() {
    std::vector<Extent> dims;
    check(take("["), "'[' is missing before '{}'", more() ? tokens_[next_] : "");
    while (!take("]")) dims.push_back(extent_of(token()));
    return dims;
  }
  static bool is_type(const std::string& word) {
    for (int type = 0; type <= static_cast<int>(ElementType::Bool); ++type)
      if (name_of(static_cast<ElementType>(type)) == word) return true;
    return false;
  }
  static ElementType type_of(const std::string& word) {
    int type = 0;
    while (name_of(static_cast<ElementType>(type)) != word) ++type;
    return static_cast<ElementType>(type);
  }
  ElementType take_type() { return tokens_.at(next_) == "[" ? ElementType::F64 : type_of(token()); }

  ValueId add_value(const std::string& name, ElementType type, std::vector<Extent> dims) {
    return values_[name] = graph.add({name, type, std::move(dims)});
  }

  void read_input() {
    std::string name = token(), kind = token();
    name.pop_back();
    const ElementType type = take_type();
    Input input{add_value(name, type, take_dims()), InputKind::Data, name, kind == "parameter", -1};
    if (kind == "parameter" || kind == "frozen") input.kind = InputKind::Parameter;
    if (kind == "constant") input.kind = InputKind::Constant;
    if (kind == "buffer") input.kind = InputKind::Buffer;
    Content& content = contents_[name];
    while (more()) {
      const std::string word = token();
      if (word == "below") content.below = std::stoll(token());
      if (word == "positive") content.positive = true;
      if (word == "tied")
        for (size_t i = 0; i < graph.inputs.size(); ++i)
          if (graph.inputs[i].name == tokens_[next_]) input.tied_to = static_cast<int>(i);
      if (word == "=")
        while (more()) content.given.push_back(std::stod(token()));
    }
    graph.inputs.push_back(std::move(input));
  }

  void read_node() {
    Node node;
    while (!take("=")) {
      const std::string name = token();
      const ElementType type = take_type();
      node.outputs.push_back(add_value(name, type, take_dims()));
      node.origin.node = node.origin.node.empty() ? name : node.origin.node;
    }
    node.name = token();
    node.operation = find_operation(node.name);
    node.origin.line = "model.py:" + std::to_string(graph.nodes.size() + 1);
    check(node.operation != nullptr, "the table has no operation '{}'", node.name);
    for (const Parameter& parameter : parameters_of(*node.operation))
      node.arguments.push_back(more() ? take_argument(parameter.kind) : parameter.absent);
    check(!more(), "{} has too many arguments", node.name);
    graph.nodes.push_back(std::move(node));
  }

  Argument take_argument(ParameterKind kind) {
    if (take("{")) {
      std::vector<ValueId> list;
      while (!take("}"))
        list.push_back(tokens_.at(next_) == "-" ? ValueId() : values_.at(tokens_[next_])), ++next_;
      return list;
    }
    if (tokens_.at(next_) == "[") return take_dims();
    const std::string word = token();
    if (word == "-") return {};
    if (word == "true" || word == "false") return word == "true";
    if (word[0] == '\'') return word.substr(1, word.size() - 2);
    if (kind == ParameterKind::Type && is_type(word)) return type_of(word);
    if (const auto value = values_.find(word); value != values_.end()) return value->second;
    if (is_extent(word) && kind != ParameterKind::Float) return extent_of(word);
    check(is_number(word), "'{}' is no value and no attribute", word);
    return std::stod(word);
  }

  void read_loss() {
    const std::string name = tokens_.at(1);
    const std::vector<Extent> dims = graph.at(values_.at(name)).dims;
    std::string loss = name;
    if (!dims.empty()) {
      const std::string shape = to_text(dims), weights = "weights_of_loss";
      tokens_ = {weights + ":", "data"};
      for (const std::string& word : split(shape)) tokens_.push_back(word == "batch" ? "b" : word);
      for (std::string& word : tokens_)
        if (word.ends_with("*batch")) word = word.substr(0, word.size() - 6) + "b";
      next_ = 0;
      read_input();
      add_node("weighted", "mul.Tensor", {values_.at(name), values_.at(weights)}, dims);
      add_node("total", "sum", {values_.at("weighted"), {}}, {});
      loss = "total";
    }
    graph.outputs.push_back({values_.at(loss), {}});
  }
  void add_node(const std::string& name, const std::string& operation, std::vector<Argument> arguments,
                const std::vector<Extent>& dims) {
    const ValueId value = add_value(name, ElementType::F64, dims);
    graph.nodes.push_back(
        {find_operation(operation), operation, std::move(arguments), {value}, {name, {}, {}, {}}});
  }

  std::vector<std::string> tokens_;  // the words of the line that is read
  size_t next_ = 0;
  std::map<std::string, ValueId> values_;
  std::map<std::string, Content> contents_;
  std::map<std::pair<std::string, int64_t>, Array> elements_;
};

}  // namespace trifold::graph::lowering
