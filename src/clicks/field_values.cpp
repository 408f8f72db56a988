#include "clicks/field_values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>

#include "core/random.h"

namespace trifold {

namespace {

// The finite number that the whole text is.
std::optional<double> number_of(std::string_view text) {
  double number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || stop != text.data() + text.size() || !std::isfinite(number))
    return std::nullopt;
  return number;
}

bool is_true(std::string_view text) { return text == "True" || text == "true" || text == "TRUE"; }
bool is_false(std::string_view text) { return text == "False" || text == "false" || text == "FALSE"; }

}  // namespace

std::string_view without_blanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

bool parse_number_or_flag(std::string_view text, float& value) {
  if (const std::optional<double> number = number_of(text)) {
    value = static_cast<float>(*number);
    return std::isfinite(value);
  }
  value = is_true(text) ? 1 : 0;
  return is_true(text) || is_false(text);
}

std::optional<bool> label_of(const LabelRule& rule, double number) {
  using enum LabelRule::Is;
  if (std::isnan(number) || (rule.is == True && number != 0 && number != 1)) return std::nullopt;
  const double limit = rule.number.value_or(1);  // which all but True have
  switch (rule.is) {
    case True:
    case Equal:
      return number == limit;
    case Unequal:
      return number != limit;
    case Less:
      return number < limit;
    case LessEqual:
      return number <= limit;
    case Greater:
      return number > limit;
    default:
      return number >= limit;
  }
}

std::optional<bool> label_of(const LabelRule& rule, std::string_view text) {
  if (rule.is == LabelRule::Is::True) {
    float value = 0;
    return parse_number_or_flag(text, value) ? label_of(rule, value) : std::nullopt;
  }
  if (rule.is == LabelRule::Is::Begins) return text.starts_with(rule.value);
  if (!rule.number) return (text == rule.value) == (rule.is == LabelRule::Is::Equal);
  const std::optional<double> number = number_of(text);
  return number ? label_of(rule, *number) : std::nullopt;
}

uint64_t hash_of_text(std::string_view text, uint64_t seed) {
  const PhiloxKey key = philox_key(seed, text);
  return std::max<uint64_t>(1, uint64_t{key.hi} << 32 | key.lo);
}

uint64_t hash_of_field(std::string_view text, bool quoted, uint64_t seed) {
  if (!quoted || text.find("\"\"") == std::string_view::npos) return hash_of_text(text, seed);
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    plain.push_back(text[i]);
    if (text[i] == '"') ++i;  // its double
  }
  return hash_of_text(plain, seed);
}

uint64_t id_of_whole(int64_t number) {
  const bool narrow = number < 0 && number >= std::numeric_limits<int32_t>::min();
  return narrow ? static_cast<uint32_t>(number) : static_cast<uint64_t>(number);
}

bool is_missing(const FieldRules& rules, std::string_view text) {
  return text.empty() || std::find(rules.missing.begin(), rules.missing.end(), text) != rules.missing.end();
}

std::optional<float> take_weight(std::string_view& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const std::optional<double> number = number_of(without_blanks(text.substr(colon + 1)));
  const auto weight = static_cast<float>(number.value_or(0));
  if (!number || !std::isfinite(weight)) return std::nullopt;
  text = without_blanks(text.substr(0, colon));
  return weight;
}

bool parse_bag(const FieldRules& rules, const TextColumn& column, std::string_view texts, bool quoted,
               ClickBag& bag) {
  while (true) {
    const size_t end = std::min(texts.find(column.bag), texts.size());
    std::string_view text = without_blanks(texts.substr(0, end));
    if (!is_missing(rules, text)) {
      const std::optional<float> weight = column.weighted ? take_weight(text) : 1.0F;
      if (!weight) return false;
      if (!is_missing(rules, text)) {
        bag.ids.push_back(hash_of_field(text, quoted, rules.hash_seed));
        if (column.weighted) bag.weights.push_back(*weight);
      }
    }
    if (end == texts.size()) return true;
    texts.remove_prefix(end + 1);
  }
}

}  // namespace trifold
