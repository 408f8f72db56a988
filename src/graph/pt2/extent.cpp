#include "graph/pt2/extent.h"

#include <charconv>
#include <vector>

namespace trifold::graph {

namespace {

constexpr int kMostCalls = 32;            // nested calls of an expression
constexpr size_t kMostExpression = 4096;  // bytes

// A recursive-descent parser of NAME(argument, ...), where an argument is such a call, a quoted name, a whole number,
// or a property of a symbol (positive=True), which is skipped.
class Expression {
 public:
  Expression(std::string_view text, const BatchSymbols& batch) : rest_(text), batch_(batch) {}

  // The value of the whole text.
  std::optional<Extent> value() {
    const auto result = call(0);
    return rest_.empty() ? result : std::nullopt;
  }

 private:
  bool take(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }

  std::string_view take_until(std::string_view ends) {
    const std::string_view word = rest_.substr(0, rest_.find_first_of(ends));
    rest_.remove_prefix(word.size());
    return word;
  }

  std::optional<Extent> call(int depth) {
    const std::string_view name = take_until("(),");
    if (depth > kMostCalls || !take("(")) return std::nullopt;
    if (name == "Symbol") return symbol();
    if (name == "Integer") return integer();
    std::vector<Extent> arguments;
    do {
      const auto argument = call(depth + 1);
      if (!argument) return std::nullopt;
      arguments.push_back(*argument);
    } while (take(", "));
    return take(")") ? result_of(name, arguments) : std::nullopt;
  }

  std::optional<Extent> symbol() {
    if (!take("'")) return std::nullopt;
    const std::string_view name = take_until("'");
    take_until(")");
    if (!take(")") || batch_.find(name) == batch_.end()) return std::nullopt;
    return Extent{1, true};
  }

  std::optional<Extent> integer() {
    const std::string_view digits = take_until(")");
    int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size() || !take(")")) return std::nullopt;
    return Extent{value};
  }

  static std::optional<Extent> result_of(std::string_view name, const std::vector<Extent>& arguments) {
    if (name == "FloorDiv" || name == "CleanDiv" || name == "IntTrueDiv") return quotient(arguments);
    if (name != "Mul" && name != "Add") return std::nullopt;
    Extent result = arguments.front();
    for (size_t i = 1; i < arguments.size(); ++i) {
      const Extent& next = arguments[i];
      const bool product = name == "Mul";
      // No squares of the batch, and no sums of the batch and a constant.
      if (product ? result.per_sample && next.per_sample : result.per_sample != next.per_sample)
        return std::nullopt;
      if (product ? __builtin_mul_overflow(result.value, next.value, &result.value)
                  : __builtin_add_overflow(result.value, next.value, &result.value))
        return std::nullopt;
      result.per_sample = result.per_sample || next.per_sample;
    }
    return result;
  }

  // Without a remainder for any batch.
  static std::optional<Extent> quotient(const std::vector<Extent>& arguments) {
    if (arguments.size() != 2 || arguments[1].value <= 0 || arguments[0].value < 0) return std::nullopt;
    const Extent &top = arguments[0], &bottom = arguments[1];
    if (top.value % bottom.value != 0 || (bottom.per_sample && !top.per_sample)) return std::nullopt;
    return Extent{top.value / bottom.value, top.per_sample && !bottom.per_sample};
  }

  std::string_view rest_;
  const BatchSymbols& batch_;
};

}  // namespace

std::optional<Extent> extent_of(std::string_view expression, const BatchSymbols& batch) {
  return expression.size() > kMostExpression ? std::nullopt : Expression(expression, batch).value();
}

std::string symbol_of(std::string_view expression) {
  constexpr std::string_view kBegin = "Symbol('";
  if (!expression.starts_with(kBegin)) return {};
  expression.remove_prefix(kBegin.size());
  const std::string name(expression.substr(0, expression.find('\'')));
  return extent_of("Symbol('" + std::string(expression), {name}) == Extent{1, true} ? name : std::string();
}

}  // namespace trifold::graph
