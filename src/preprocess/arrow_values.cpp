#include "preprocess/arrow_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/float16.h"
#include "core/printable.h"

namespace trifold {

namespace {

struct PlainType {
  char letter;
  ArrowKind kind;
  std::string_view name;
};
constexpr PlainType kPlainTypes[] = {
    {'n', ArrowKind::Nothing, "null"},      {'b', ArrowKind::Flag, "bool"},
    {'c', ArrowKind::Whole, "int8"},        {'C', ArrowKind::Whole, "uint8"},
    {'s', ArrowKind::Whole, "int16"},       {'S', ArrowKind::Whole, "uint16"},
    {'i', ArrowKind::Whole, "int32"},       {'I', ArrowKind::Whole, "uint32"},
    {'l', ArrowKind::Whole, "int64"},       {'L', ArrowKind::Whole, "uint64"},
    {'e', ArrowKind::Real, "float16"},      {'f', ArrowKind::Real, "float32"},
    {'g', ArrowKind::Real, "float64"},      {'u', ArrowKind::Text, "string"},
    {'U', ArrowKind::Text, "large string"}, {'z', ArrowKind::Text, "binary"},
    {'Z', ArrowKind::Text, "large binary"}};

const PlainType* plain_type(std::string_view format) {
  if (format.size() != 1) return nullptr;
  const auto* found = std::find_if(std::begin(kPlainTypes), std::end(kPlainTypes),
                                   [&](const PlainType& type) { return type.letter == format[0]; });
  return found == std::end(kPlainTypes) ? nullptr : found;
}

bool is_list(std::string_view format) {
  return format == "+l" || format == "+L" || format.starts_with("+w:");
}

bool is_view(std::string_view format) { return format == "vu" || format == "vz"; }

// "d:10,2" or, with other than 128 bits, "d:9,2,32".
struct DecimalType {
  int scale = 0;
  int64_t bytes = 16;
};

// Empty for other types, and for decimals with more bits or no digits before the scale.
std::optional<DecimalType> decimal_type(std::string_view format) {
  constexpr int kMostDigits = 38;  // digits of a decimal of 128 bits
  if (!format.starts_with("d:")) return std::nullopt;
  std::array<int, 3> numbers{0, 0, 128};
  const char* at = format.data() + 2;
  const char* const end = format.data() + format.size();
  for (int& number : numbers) {
    const auto [stop, error] = std::from_chars(at, end, number);
    if (error != std::errc()) return std::nullopt;
    at = stop + 1;
    if (stop == end) break;
  }
  const auto [digits, scale, bits] = numbers;
  if (digits > kMostDigits || scale < 0 || scale > digits || (bits != 32 && bits != 64 && bits != 128))
    return std::nullopt;
  return DecimalType{scale, bits / 8};
}

// Units of dates and timestamps in a second, or days for 0: "tdD", "tsu:UTC".
std::optional<int64_t> units_of_moment(std::string_view format) {
  if (format == "tdD") return 0;
  if (format == "tdm") return 1000;
  constexpr std::pair<std::string_view, int64_t> kStamps[] = {
      {"tss:", 1}, {"tsm:", 1000}, {"tsu:", 1'000'000}, {"tsn:", 1'000'000'000}};
  for (const auto& [beginning, units] : kStamps)
    if (format.starts_with(beginning)) return units;
  return std::nullopt;
}

// The first letters of types that are no plain ones, for messages.
constexpr std::pair<std::string_view, std::string_view> kOtherTypes[] = {
    {"d:", "decimal"},   {"tdD", "date"},       {"tdm", "date"},       {"tt", "time"},
    {"ts", "timestamp"}, {"tD", "duration"},    {"+s", "struct"},      {"+m", "map"},
    {"+u", "union"},     {"vu", "string view"}, {"vz", "binary view"}, {"w:", "binary of fixed size"},
    {"ti", "interval"}};

}  // namespace

ArrowKind kind_of(const ArrowSchema& type) {
  if (type.dictionary != nullptr) return kind_of(*type.dictionary);
  if (const PlainType* plain = plain_type(type.format)) return plain->kind;
  const std::string_view format = type.format;
  if (is_view(format) || format.starts_with("w:")) return ArrowKind::Text;
  if (const auto decimal = decimal_type(format))
    return decimal->scale == 0 ? ArrowKind::Whole : ArrowKind::Real;
  if (units_of_moment(format)) return ArrowKind::Moment;
  if (format == "+m" && type.n_children == 1 && type.children[0]->n_children == 2) return ArrowKind::Map;
  return is_list(type.format) && type.n_children == 1 ? ArrowKind::List : ArrowKind::Other;
}

std::string type_text(const ArrowSchema& type) {
  if (type.dictionary != nullptr) return "dictionary of " + type_text(*type.dictionary);
  if (const PlainType* plain = plain_type(type.format)) return std::string(plain->name);
  if (is_list(type.format) && type.n_children == 1) return "list of " + type_text(*type.children[0]);
  const std::string_view format = type.format;
  for (const auto& [beginning, name] : kOtherTypes)
    if (format.starts_with(beginning)) return std::string(name);
  return fmt::format("of Arrow's type '{}'", printable(format));
}

ArrowColumn::ArrowColumn(const ArrowSchema& type, const ArrowArray& values)
    : type_(&type), values_(&values), kind_(kind_of(type)), letter_(type.format[0]) {
  const std::string_view format = type.format;
  if (letter_ == 'w') std::from_chars(format.data() + 2, format.data() + format.size(), width_);
  if (const auto decimal = decimal_type(format)) {
    width_ = decimal->bytes;
    scale_ = decimal->scale;
  }
  if (type.dictionary != nullptr) return;
  if (kind_ == ArrowKind::Map) letter_ = 'l';  // places as of a list
  if (kind_ != ArrowKind::List) return;
  letter_ = format[1];
  if (letter_ == 'w') std::from_chars(format.data() + 3, format.data() + format.size(), width_);
}

bool ArrowColumn::is_there(int64_t place) const {
  if (values_->n_buffers == 0 || values_->buffers[0] == nullptr) return true;
  return (load<uint8_t>(0, place / 8) >> (place % 8) & 1) != 0;
}

template <class Offset>
std::string_view ArrowColumn::text(int64_t place) const {
  const auto begin = load<Offset>(1, place), end = load<Offset>(1, place + 1);
  if (begin == end) return {};
  return {static_cast<const char*>(values_->buffers[2]) + begin, static_cast<size_t>(end - begin)};
}

std::string_view ArrowColumn::view(int64_t place) const {
  constexpr int32_t kInside = 12;  // bytes of a text that the view itself holds
  const char* const view = static_cast<const char*>(values_->buffers[1]) + place * 16;
  std::array<int32_t, 4> words;  // length, beginning, buffer, offset
  std::memcpy(words.data(), view, sizeof words);
  const auto bytes = static_cast<size_t>(words[0]);
  if (words[0] <= kInside) return {view + sizeof(int32_t), bytes};
  return {static_cast<const char*>(values_->buffers[2 + words[2]]) + words[3], bytes};
}

DecimalNumber ArrowColumn::decimal(int64_t place) const {
  return {width_ == 4   ? load<int32_t>(1, place)
          : width_ == 8 ? load<int64_t>(1, place)
                        : load<__int128>(1, place),
          scale_};
}

int64_t ArrowColumn::whole(int64_t place) const {
  switch (letter_) {
    case 'c':
      return load<int8_t>(1, place);
    case 'C':
      return load<uint8_t>(1, place);
    case 's':
      return load<int16_t>(1, place);
    case 'S':
      return load<uint16_t>(1, place);
    case 'i':
      return load<int32_t>(1, place);
    case 'I':
      return load<uint32_t>(1, place);
    default:
      return load<int64_t>(1, place);
  }
}

Moment ArrowColumn::moment(int64_t place) const {
  constexpr int64_t kDay = 86400, kSecond = 1'000'000'000;
  const std::string_view format = type_->format;
  const int64_t units = *units_of_moment(format);
  if (units == 0) return {load<int32_t>(1, place) * kDay, 0, Moment::Form::Date};
  const auto count = load<int64_t>(1, place);
  const int64_t seconds = count / units - (count % units < 0 ? 1 : 0);
  const auto form = format.starts_with("td") ? Moment::Form::Date
                    : format.ends_with(':')  ? Moment::Form::DateTime
                                             : Moment::Form::WithZone;
  return {seconds, static_cast<int32_t>((count - seconds * units) * (kSecond / units)), form};
}

Cell ArrowColumn::value(int64_t i) const {
  const int64_t place = i + values_->offset;
  if (letter_ == 'n' || !is_there(place)) return {};
  if (type_->dictionary != nullptr) {
    const int64_t entry = whole(place);
    const ArrowColumn entries(*type_->dictionary, *values_->dictionary);
    check(entry >= 0 && entry < entries.size(), "entry {} of a dictionary with {} entries does not exist",
          entry, entries.size());
    return entries.value(entry);
  }
  switch (letter_) {
    case 'b':
      return (load<uint8_t>(1, place / 8) >> (place % 8) & 1) != 0;
    case 'e':
      return load<Float16>(1, place);
    case 'f':
      return load<float>(1, place);
    case 'g':
      return load<double>(1, place);
    case 'L':
      return load<uint64_t>(1, place);
    case 'u':
    case 'z':
      return text<int32_t>(place);
    case 'U':
    case 'Z':
      return text<int64_t>(place);
    case 'v':
      return view(place);
    case 'w':
      return std::string_view(static_cast<const char*>(values_->buffers[1]) + place * width_,
                              static_cast<size_t>(width_));
    case 'd':
      return decimal(place);
    case 't':
      return moment(place);
    default:
      return whole(place);
  }
}

std::pair<int64_t, int64_t> ArrowColumn::list(int64_t i) const {
  const int64_t place = i + values_->offset;
  if (!is_there(place)) return {0, 0};
  if (letter_ == 'w') return {place * width_, (place + 1) * width_};
  if (letter_ == 'l') return {load<int32_t>(1, place), load<int32_t>(1, place + 1)};
  return {load<int64_t>(1, place), load<int64_t>(1, place + 1)};
}

std::pair<Cell, Cell> ArrowColumn::entry(int64_t e) const {
  const ArrowSchema& type = *type_->children[0];
  const ArrowArray& entries = *values_->children[0];
  const int64_t place = e + entries.offset;
  return {ArrowColumn(*type.children[0], *entries.children[0]).value(place),
          ArrowColumn(*type.children[1], *entries.children[1]).value(place)};
}

}  // namespace trifold
