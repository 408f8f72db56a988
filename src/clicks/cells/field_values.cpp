#include "clicks/cells/field_values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>

#include "clicks/cells/moment.h"
#include "core/random.h"

namespace trifold {

namespace {

constexpr float kMissingNumber = std::numeric_limits<float>::quiet_NaN();

bool contains(const std::vector<std::string>& texts, std::string_view text) {
  return std::find(texts.begin(), texts.end(), text) != texts.end();
}

// Whether a label or a dense number, `number` if it is one, is missing.
bool is_missing(const FieldRules& rules, const Cell& cell, std::optional<double> number) {
  if (number && (std::isnan(*number) || rules.missing.has_number(*number))) return true;
  if (const auto* text = std::get_if<std::string_view>(&cell)) {
    const std::string_view plain = without_blanks(*text);
    return plain.empty() || rules.missing.has_text(plain);
  }
  return std::holds_alternative<std::monostate>(cell);
}

// The whole number in the spelling of an id.
std::optional<uint64_t> whole_id(std::string_view text) {
  uint64_t id = 0;
  int64_t negative = 0;
  const char* const end = text.data() + text.size();
  const bool has_sign = text.starts_with('-');
  const auto [stop, error] =
      has_sign ? std::from_chars(text.data(), end, negative) : std::from_chars(text.data(), end, id);
  if (error != std::errc() || stop != end) return std::nullopt;
  return has_sign ? id_of_whole(negative) : id;
}

// The date or time that a cell is; nothing for a number.
std::optional<Moment> moment_in(const Cell& cell) {
  if (const auto* moment = std::get_if<Moment>(&cell)) return *moment;
  const auto* text = std::get_if<std::string_view>(&cell);
  return text != nullptr ? moment_of_text(*text) : std::nullopt;
}

std::optional<uint64_t> hexadecimal_id(std::string_view text) {
  constexpr size_t kMostDigits = 8;
  uint64_t id = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, id, static_cast<int>(IdBase::Hexadecimal));
  if (text.size() > kMostDigits || error != std::errc() || stop != end) return std::nullopt;
  return id;
}

bool is_nan(const Cell& cell) {
  return std::visit(
      []<class T>(const T& x) {
        if constexpr (std::is_floating_point_v<T>)
          return std::isnan(x);
        else if constexpr (std::is_same_v<T, Float16>)
          return std::isnan(static_cast<float>(x));
        else
          return false;
      },
      cell);
}

}  // namespace

MissingValues::MissingValues(const std::vector<std::string>& texts) {
  std::string room;
  for (const std::string& text : texts) {
    texts_.emplace_back(without_blanks(text));
    spellings_.emplace_back(spelling_of(std::string_view(text), room));
    const std::optional<double> number = number_of(Cell(std::string_view(text)));
    const bool is_flag = spellings_.back() == "True" || spellings_.back() == "False";
    if (number && !std::isnan(*number) && !is_flag) numbers_.push_back(*number);
  }
}

bool MissingValues::has_text(std::string_view text) const { return contains(texts_, text); }
bool MissingValues::has_spelling(std::string_view text) const { return contains(spellings_, text); }
bool MissingValues::has_number(double number) const {
  return std::find(numbers_.begin(), numbers_.end(), number) != numbers_.end();
}

std::string_view name_of(IdBase base) {
  return base == IdBase::Text ? "text" : base == IdBase::Decimal ? "decimal" : "hexadecimal";
}

std::optional<bool> label_of(const LabelRule& rule, const Cell& cell) {
  using enum LabelRule::Is;
  if (rule.is != True && !rule.number) {
    std::string room, other_room;
    const std::string_view text = spelling_of(cell, room);
    if (rule.is == Begins) return text.starts_with(rule.value);
    return (text == spelling_of(std::string_view(rule.value), other_room)) == (rule.is == Equal);
  }
  const std::optional<double> found = number_of(cell);
  if (!found || !std::isfinite(*found) || (rule.is == True && *found != 0 && *found != 1))
    return std::nullopt;
  const double number = *found, limit = rule.number.value_or(1);
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

std::optional<uint8_t> label_in(const FieldRules& rules, int label, const Cell& cell) {
  const auto none_if = [](bool allowed) { return allowed ? std::optional<uint8_t>(kNoLabel) : std::nullopt; };
  if (is_missing(rules, cell, number_of(cell)))
    return none_if(rules.labels.size() > 1 || rules.need != LabelNeed::Required);
  const std::optional<bool> clicked = label_of(rules.labels[static_cast<size_t>(label)], cell);
  return clicked ? std::optional<uint8_t>(*clicked ? 1 : 0) : none_if(rules.need == LabelNeed::Irrelevant);
}

LabelNeed label_need(bool needs_labels, Unlabelled unlabelled) {
  if (unlabelled == Unlabelled::Malformed) return LabelNeed::Required;
  return unlabelled == Unlabelled::Keep && !needs_labels ? LabelNeed::Irrelevant : LabelNeed::Optional;
}

std::optional<float> weight_in(const Cell& cell) {
  const std::optional<double> number = number_of(cell);
  const auto weight = static_cast<float>(number.value_or(-1));
  return weight >= 0 && std::isfinite(weight) ? std::optional(weight) : std::nullopt;
}

std::optional<double> time_in(const Cell& cell) {
  if (const std::optional<Moment> moment = moment_in(cell)) return part_of(*moment, TimePart::Seconds);
  const std::optional<double> number = number_of(cell);
  return number && std::isfinite(*number) ? number : std::nullopt;
}

std::optional<Cell> part_in(const FieldRules& rules, const Cell& cell, TimePart part) {
  const std::optional<double> number = number_of(cell);
  if (is_missing(rules, cell, number)) return Cell();
  std::optional<Moment> moment = moment_in(cell);
  if (!moment && number) moment = moment_of_number(*number);
  if (!moment) return std::nullopt;
  return Cell(part_of(*moment, part));
}

// A Float16 is compared by its shortest digits, and is itself in the data set.
std::optional<float> dense_in(const FieldRules& rules, const Cell& cell) {
  const std::optional<double> number = number_of(cell);
  if (is_missing(rules, cell, number)) return kMissingNumber;
  if (!number) return std::nullopt;
  const auto* half = std::get_if<Float16>(&cell);
  const float value = half != nullptr ? static_cast<float>(*half) : static_cast<float>(*number);
  return std::isfinite(value) ? std::optional<float>(value) : std::nullopt;
}

std::optional<uint64_t> id_in(const FieldRules& rules, IdBase base, const Cell& cell) {
  if (is_nan(cell)) return 0;
  const auto* text = std::get_if<std::string_view>(&cell);
  std::string room;
  const bool as_written = text != nullptr && (rules.as_written || base == IdBase::Hexadecimal);
  const std::string_view spelling = as_written ? *text : spelling_of(cell, room);
  if (spelling.empty() ||
      (as_written ? rules.missing.has_text(spelling) : rules.missing.has_spelling(spelling)))
    return 0;
  if (base == IdBase::Text) return hash_of_text(spelling, rules.hash_seed);
  return base == IdBase::Decimal ? whole_id(spelling) : hexadecimal_id(without_blanks(spelling));
}

bool add_to_bag(const FieldRules& rules, IdBase base, bool weighted, const Cell& element, ClickBag& bag) {
  Cell value = element;
  float weight = 1;
  if (auto* text = std::get_if<std::string_view>(&value); weighted && text != nullptr) {
    if (id_in(rules, base, element) == 0) return true;
    const std::optional<float> found = take_weight(*text);
    if (!found) return false;
    weight = *found;
  }
  const std::optional<uint64_t> id = id_in(rules, base, value);
  if (!id) return false;
  if (*id == 0) return true;
  bag.ids.push_back(*id);
  if (weighted) bag.weights.push_back(weight);
  return true;
}

namespace {

// Calls body(element) for all elements of a text while it returns true; whether all did.
template <class Body>
bool for_each_text(std::string_view texts, char separator, Body body) {
  if (without_blanks(texts).empty()) return true;
  while (true) {
    const size_t end = std::min(texts.find(separator), texts.size());
    if (!body(Cell(without_blanks(texts.substr(0, end))))) return false;
    if (end == texts.size()) return true;
    texts.remove_prefix(end + 1);
  }
}

}  // namespace

bool add_texts_to_bag(const FieldRules& rules, char separator, bool weighted, std::string_view texts,
                      ClickBag& bag) {
  return for_each_text(texts, separator, [&](const Cell& element) {
    return add_to_bag(rules, IdBase::Text, weighted, element, bag);
  });
}

bool add_paired_to_bag(const FieldRules& rules, IdBase base, const Cell& element, ClickBag& bag) {
  const std::optional<uint64_t> id = id_in(rules, base, element);
  if (id) bag.ids.push_back(*id);
  return id.has_value();
}

bool add_weight_to_bag(const Cell& cell, ClickBag& bag) {
  const std::optional<double> number = number_of(cell);
  const auto weight = static_cast<float>(number.value_or(0));
  if (!number || !std::isfinite(weight)) return false;
  bag.weights.push_back(weight);
  return true;
}

bool add_paired_texts_to_bag(const FieldRules& rules, char separator, std::string_view texts, ClickBag& bag) {
  return for_each_text(texts, separator, [&](const Cell& element) {
    return add_paired_to_bag(rules, IdBase::Text, element, bag);
  });
}

bool add_weights_to_bag(char separator, std::string_view texts, ClickBag& bag) {
  return for_each_text(texts, separator, [&](const Cell& weight) { return add_weight_to_bag(weight, bag); });
}

bool finish_paired_bag(ClickBag& bag) {
  if (bag.ids.size() != bag.weights.size()) return false;
  size_t kept = 0;
  for (size_t i = 0; i < bag.ids.size(); ++i) {
    if (bag.ids[i] == 0) continue;
    bag.ids[kept] = bag.ids[i];
    bag.weights[kept++] = bag.weights[i];
  }
  bag.ids.resize(kept);
  bag.weights.resize(kept);
  return true;
}

uint64_t hash_of_text(std::string_view text, uint64_t seed) {
  const PhiloxKey key = philox_key(seed, text);
  return std::max<uint64_t>(1, uint64_t{key.hi} << 32 | key.lo);
}

uint64_t id_of_whole(int64_t number) {
  const bool narrow = number < 0 && number >= std::numeric_limits<int32_t>::min();
  return narrow ? static_cast<uint32_t>(number) : static_cast<uint64_t>(number);
}

std::optional<float> take_weight(std::string_view& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const std::optional<double> number = number_of(Cell(text.substr(colon + 1)));
  const auto weight = static_cast<float>(number.value_or(0));
  if (!number || !std::isfinite(weight)) return std::nullopt;
  text = without_blanks(text.substr(0, colon));
  return weight;
}

}  // namespace trifold
