#include "graph/pt2/arguments.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/printable.h"
#include "graph/pt2/archive.h"

namespace trifold::graph {

namespace {

// A float, which may be infinite: JSON cannot express that, and PyTorch writes text.
double read_float(const JsonView& view) {
  if (!view.value().is_string()) return view.number();
  const std::string text = view.text();
  if (text == "Infinity") return std::numeric_limits<double>::infinity();
  if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  view.refuse("a number, or Infinity, -Infinity or NaN");
}

// An integer by name: its expression is in the graph's table.
Extent named_integer(const std::string& name, const ArgumentNames& names) {
  if (names.symbolic_integers == nullptr || !names.symbolic_integers->has(name.c_str()))
    bad_input("the size '{}' is not defined", printable(name));
  const UnionValue entry = union_value(names.symbolic_integers->at(name.c_str()));
  if (entry.kind == "as_int") return {entry.value.integer()};
  const std::string expression = entry.value.at("expr_str").text();
  const auto extent = extent_of(expression, names.batch);
  if (!extent)
    bad_input("the size '{}' is {}, which is neither constant nor a multiple of the batch", printable(name),
              printable(expression));
  return *extent;
}

Extent symbolic_integer(const JsonView& view, const ArgumentNames& names) {
  const UnionValue item = union_value(view);
  if (item.kind == "as_int") return {item.value.integer()};
  if (item.kind != "as_name") view.refuse("as_int or as_name");
  return named_integer(item.value.text(), names);
}

ValueId tensor(const JsonView& view, const ArgumentNames& names) {
  return names.tensor(view.at("name").text());
}

ValueId optional_tensor(const JsonView& view, const ArgumentNames& names) {
  const UnionValue item = union_value(view);
  if (item.kind == "as_none") return {};
  if (item.kind != "as_tensor") view.refuse("as_tensor or as_none");
  return tensor(item.value, names);
}

template <class T, class Read>
std::vector<T> list(const JsonView& view, Read&& read) {
  std::vector<T> values;
  values.reserve(view.size());
  view.each([&](const JsonView& item) { values.push_back(read(item)); });
  return values;
}

// The argument by its own kind; none for kinds that no parameter of the table takes.
std::optional<Argument> read_kind(const UnionValue& given, const ArgumentNames& names) {
  const auto& [kind, view] = given;
  const auto integer = [](const JsonView& item) { return Extent{item.integer()}; };
  const auto symbolic = [&](const JsonView& item) { return symbolic_integer(item, names); };
  const auto one_tensor = [&](const JsonView& item) { return tensor(item, names); };
  const auto maybe_tensor = [&](const JsonView& item) { return optional_tensor(item, names); };
  if (kind == "as_none") return Argument();
  if (kind == "as_tensor") return one_tensor(view);
  if (kind == "as_optional_tensor") return maybe_tensor(view);
  if (kind == "as_tensors") return list<ValueId>(view, one_tensor);
  if (kind == "as_optional_tensors") return list<ValueId>(view, maybe_tensor);
  if (kind == "as_int") return integer(view);
  if (kind == "as_ints") return list<Extent>(view, integer);
  if (kind == "as_sym_int") return symbolic(view);
  if (kind == "as_sym_ints") return list<Extent>(view, symbolic);
  if (kind == "as_float") return read_float(view);
  if (kind == "as_floats") return list<double>(view, read_float);
  if (kind == "as_bool") return view.flag();
  if (kind == "as_string") return view.text();
  if (kind == "as_scalar_type") return element_type(view.integer(), view.path());
  if (kind == "as_sym_bool" || kind == "as_sym_float")
    bad_input("it is computed from data or from the batch ({})", kind);
  return std::nullopt;
}

bool is_ignored(std::string_view kind) {
  return kind == "as_layout" || kind == "as_device" || kind == "as_memory_format" || kind == "as_none";
}

template <class T>
bool holds(const Argument& argument) {
  return std::holds_alternative<T>(argument);
}
bool is_number(const Argument& argument) {
  return holds<Extent>(argument) || holds<double>(argument) || holds<bool>(argument);
}

// An empty list of the parameter's kind: the file writes empty lists as lists of integers.
Argument empty_list(ParameterKind kind) {
  if (kind == ParameterKind::Tensor) return std::vector<ValueId>();
  if (kind == ParameterKind::Float) return std::vector<double>();
  return std::vector<Extent>();
}

bool is_empty_list(const Argument& argument) {
  const auto* integers = std::get_if<std::vector<Extent>>(&argument);
  const auto* tensors = std::get_if<std::vector<ValueId>>(&argument);
  return (integers != nullptr && integers->empty()) || (tensors != nullptr && tensors->empty());
}

// The argument as the parameter takes it: a number for a list is a list of one, an integer for a float is a float. None
// if it does not fit.
std::optional<Argument> fitted(Argument argument, const Parameter& parameter) {
  if (holds<std::monostate>(argument)) {
    if (parameter.optional) return argument;
    return std::nullopt;
  }
  if (parameter.is_list) {
    if (is_empty_list(argument)) return empty_list(parameter.kind);
    if (parameter.kind == ParameterKind::Int && holds<Extent>(argument))
      return std::vector<Extent>{std::get<Extent>(argument)};
    const bool fits = parameter.kind == ParameterKind::Tensor  ? holds<std::vector<ValueId>>(argument)
                      : parameter.kind == ParameterKind::Int   ? holds<std::vector<Extent>>(argument)
                      : parameter.kind == ParameterKind::Float ? holds<std::vector<double>>(argument)
                                                               : false;
    return fits ? std::optional(std::move(argument)) : std::nullopt;
  }
  const Extent* integer = std::get_if<Extent>(&argument);
  if (parameter.kind == ParameterKind::Float && integer != nullptr && !integer->per_sample)
    return static_cast<double>(integer->value);
  const auto fits = [&] {
    switch (parameter.kind) {
      case ParameterKind::Tensor:  // a number is a tensor without dims
        return holds<ValueId>(argument) || is_number(argument);
      case ParameterKind::Int:
        return holds<Extent>(argument);
      case ParameterKind::Float:
        return holds<double>(argument);
      case ParameterKind::Bool:
        return holds<bool>(argument);
      case ParameterKind::Number:
        return is_number(argument);
      case ParameterKind::Text:
        return holds<std::string>(argument);
      case ParameterKind::Type:
        return holds<ElementType>(argument);
      case ParameterKind::Ignored:
        return false;
    }
    return false;
  };
  return fits() ? std::optional(std::move(argument)) : std::nullopt;
}

Argument read_argument(const JsonView& view, const Parameter& parameter, const ArgumentNames& names) {
  const UnionValue given = union_value(view);
  if (parameter.kind == ParameterKind::Ignored && is_ignored(given.kind)) return {};
  auto argument = read_kind(given, names);
  if (argument) argument = fitted(std::move(*argument), parameter);
  if (!argument) bad_input("the argument '{}' cannot be {}", parameter.name, printable(given.kind));
  return *argument;
}

}  // namespace

UnionValue union_value(const JsonView& view) {
  if (view.object().size() != 1) view.refuse("an object with one key");
  const std::string kind = view.object().begin().key();
  // A null is a value too, and `at` would take it for a missing one.
  if (view.object().begin().value().is_null()) view.refuse("an object with one key whose value is not null");
  return {kind, view.at(kind.c_str())};
}

std::optional<Extent> read_integer(const JsonView& argument, const ArgumentNames& names) {
  const UnionValue given = union_value(argument);
  if (given.kind == "as_int") return Extent{given.value.integer()};
  if (given.kind == "as_sym_int") return symbolic_integer(given.value, names);
  return std::nullopt;
}

Extent read_size(const JsonView& view, const BatchSymbols& batch, const std::string& what) {
  const UnionValue size = union_value(view);
  constexpr int64_t kMost = int64_t{1} << 48;
  if (size.kind == "as_int") return {size.value.integer(0, kMost)};
  if (size.kind != "as_expr") view.refuse("as_int or as_expr");
  const std::string expression = size.value.at("expr_str").text();
  const auto extent = extent_of(expression, batch);
  if (!extent || extent->value < 0 || extent->value > kMost)
    bad_input(
        "{}: a size is {}; only the first dimension of inputs may be dynamic, and other sizes constants or "
        "multiples of it",
        what, printable(expression));
  return *extent;
}

std::vector<Argument> read_arguments(const JsonView& inputs, const std::vector<Parameter>& parameters,
                                     const ArgumentNames& names) {
  std::vector<std::optional<Argument>> given(parameters.size());
  inputs.each([&](const JsonView& input) {
    const std::string name = input.at("name").text();
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (parameters[i].name != name) continue;
      if (given[i]) bad_input("the argument '{}' is given twice", printable(name));
      given[i] = read_argument(input.at("arg"), parameters[i], names);
      return;
    }
    bad_input("the operation has no argument '{}'", printable(name));
  });
  std::vector<Argument> arguments;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!given[i] && !parameters[i].has_default)
      bad_input("the argument '{}' is missing", parameters[i].name);
    arguments.push_back(std::move(given[i]).value_or(parameters[i].absent));
  }
  return arguments;
}

std::vector<Argument> read_tensors(const JsonView& inputs, const ArgumentNames& names) {
  std::vector<Argument> arguments;
  inputs.each([&](const JsonView& input) {
    const UnionValue given = union_value(input.at("arg"));
    const bool tensors = given.kind.starts_with("as_tensor") || given.kind.starts_with("as_optional_tensor");
    arguments.push_back(tensors ? read_kind(given, names).value_or(Argument()) : Argument());
  });
  return arguments;
}

}  // namespace trifold::graph
