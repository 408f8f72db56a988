// Parses schemas of operations: "Tensor(a) self, SymInt[] size, *, float? scale=None".
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <utility>

#include "core/error.h"
#include "graph/operations.h"

namespace trifold::graph {

namespace {

struct KindRow {
  std::string_view name;
  ParameterKind kind;
};
constexpr std::array kKinds{KindRow{"Tensor", ParameterKind::Tensor},
                            KindRow{"int", ParameterKind::Int},
                            KindRow{"SymInt", ParameterKind::Int},
                            KindRow{"float", ParameterKind::Float},
                            KindRow{"bool", ParameterKind::Bool},
                            KindRow{"Scalar", ParameterKind::Number},
                            KindRow{"str", ParameterKind::Text},
                            KindRow{"ScalarType", ParameterKind::Type},
                            KindRow{"Layout", ParameterKind::Ignored},
                            KindRow{"Device", ParameterKind::Ignored},
                            KindRow{"MemoryFormat", ParameterKind::Ignored}};

// Takes "(a)" or "[1]" from the beginning of `text`, if it begins with `open`.
bool take_bracket(std::string_view& text, char open, char close) {
  if (!text.starts_with(open)) return false;
  const size_t end = text.find(close);
  check(end != text.npos, "the schema '{}' has no {}", text, close);
  text.remove_prefix(end + 1);
  return true;
}

bool take(std::string_view& text, char c) {
  if (!text.starts_with(c)) return false;
  text.remove_prefix(1);
  return true;
}

// "SymInt[1]?" without its name: the suffixes, in PyTorch's order. "Tensor?[]" is a list of optional tensors, which
// every list of tensors may be.
void take_type(std::string_view& text, Parameter& parameter) {
  const size_t length = text.find_first_of("(?[ ");
  const std::string_view name = text.substr(0, length);
  const auto* const row =
      std::find_if(kKinds.begin(), kKinds.end(), [&](const KindRow& r) { return r.name == name; });
  check(row != kKinds.end(), "the type '{}' of a schema is unknown", name);
  parameter.kind = row->kind;
  text.remove_prefix(name.size());
  take_bracket(text, '(', ')');
  parameter.optional = take(text, '?');
  parameter.is_list = take_bracket(text, '[', ']');
  if (parameter.is_list) parameter.optional = take(text, '?');
  check(take(text, ' '), "the schema '{}' has no name after a type", text);
}

template <class T>
std::optional<T> number_of(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Argument default_of(std::string_view text, ParameterKind kind) {
  if (text == "None" || kind == ParameterKind::Ignored) return {};
  if (text == "True" || text == "False") return text == "True";
  if (text.starts_with('\'')) return std::string(text.substr(1, text.size() - 2));
  if (kind == ParameterKind::Float) {
    if (const auto value = number_of<double>(text)) return *value;
  } else if (const auto value = number_of<int64_t>(text)) {
    return Extent{*value};
  }
  fail("the default '{}' of a schema cannot be parsed", text);
}

Parameter parse_parameter(std::string_view text) {
  Parameter parameter;
  take_type(text, parameter);
  const size_t equals = text.find('=');
  parameter.name = text.substr(0, equals);
  if (equals == text.npos) return parameter;
  parameter.has_default = true;
  parameter.absent = default_of(text.substr(equals + 1), parameter.kind);
  return parameter;
}

}  // namespace

std::vector<Parameter> parameters_of(const Operation& operation) {
  std::vector<Parameter> parameters;
  for (std::string_view rest = operation.schema; !rest.empty();) {
    const size_t end = std::min(rest.find(", "), rest.size());
    // After "*" parameters have to be named, which every argument of a file is.
    if (rest.substr(0, end) != "*") parameters.push_back(parse_parameter(rest.substr(0, end)));
    rest.remove_prefix(std::min(end + 2, rest.size()));
  }
  return parameters;
}

}  // namespace trifold::graph
