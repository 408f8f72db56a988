#include "core/read_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <unordered_set>

#include "core/error.h"
#include "core/input_file.h"
#include "core/printable.h"

namespace trifold {

namespace {

using nlohmann::json;

constexpr size_t kMostShownOfValue = 80;

std::string prefix_of(std::string_view where) { return where.empty() ? "" : std::string(where) + ": "; }

// Checks the limits in one pass over the text, without parsing it, by counting brackets and separators
// outside strings. Each value but the first of a list or object follows a comma, and each name precedes a
// colon.
void check_limits(std::string_view text, std::string_view where, const JsonLimits& limits) {
  if (std::ssize(text) > limits.bytes)
    bad_input("{}the JSON text has {} bytes; at most {} are allowed", prefix_of(where), text.size(),
              limits.bytes);
  int64_t values = 1;
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else
        in_string = c != '"';
      continue;
    }
    in_string = c == '"';
    values += c == ',' || c == ':' || c == '[' || c == '{' ? 1 : 0;
    depth += c == '[' || c == '{' ? 1 : c == ']' || c == '}' ? -1 : 0;
    if (depth > limits.depth)
      bad_input("{}the JSON is nested more than {} levels deep at byte {}", prefix_of(where), limits.depth,
                i);
    if (values > limits.values)
      bad_input("{}the JSON has more than {} values", prefix_of(where), limits.values);
  }
}

// The message without the library's prefix "[json.exception.parse_error.101] ".
std::string_view reason_of(const json::exception& error) {
  const std::string_view text = error.what();
  const size_t mark = text.find("] ");
  return text.starts_with('[') && mark != std::string_view::npos ? text.substr(mark + 2) : text;
}

std::string joined(const std::string& path, const std::string& key) {
  return path.empty() ? printable(key) : path + "." + printable(key);
}

// Finds `wanted` by its address and builds its path.
bool find_path(const json& from, const json* wanted, std::string& path) {
  if (&from == wanted) return true;
  const std::string here = path;
  if (from.is_object())
    for (const auto& member : from.items()) {
      path = joined(here, member.key());
      if (find_path(member.value(), wanted, path)) return true;
    }
  if (from.is_array())
    for (size_t i = 0; i < from.size(); ++i) {
      path = fmt::format("{}[{}]", here, i);
      if (find_path(from[i], wanted, path)) return true;
    }
  path = here;
  return false;
}

bool fits_int64(const json& value) {
  return value.is_number_integer() &&
         (!value.is_number_unsigned() ||
          value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
}

std::string range_text(int64_t least, int64_t most) {
  const bool low = least != std::numeric_limits<int64_t>::min();
  const bool high = most != std::numeric_limits<int64_t>::max();
  if (low && high) return fmt::format("a whole number from {} to {}", least, most);
  if (low) return fmt::format("a whole number of at least {}", least);
  return high ? fmt::format("a whole number of at most {}", most) : "a whole number of 64 bits";
}

// Finds equal keys of an object, of which the library keeps the last without a word, so that half of what a user wrote
// would be ignored. It gets the events of a pass of its own: with a callback, json::parse takes time quadratic in the
// members of an object.
class KeyCheck final : public json::json_sax_t {
 public:
  explicit KeyCheck(std::string_view where) : where_(where) {}

  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }
  bool string(string_t& /*value*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool start_array(size_t /*elements*/) override { return true; }
  bool end_array() override { return true; }
  bool start_object(size_t /*members*/) override {
    open_.emplace_back();
    return true;
  }
  bool key(string_t& name) override {
    if (!open_.back().insert(name).second)
      bad_input("{}an object has the key \"{}\" twice: give it once", prefix_of(where_), printable(name));
    return true;
  }
  bool end_object() override {
    open_.pop_back();
    return true;
  }
  // json::parse reports it.
  bool parse_error(size_t /*at*/, const std::string& /*token*/, const json::exception& /*error*/) override {
    return false;
  }

 private:
  std::string_view where_;
  std::vector<std::unordered_set<std::string>> open_;  // the keys of the objects that the parser is in
};

}  // namespace

json parse_json(std::string_view text, std::string_view where, const JsonLimits& limits) {
  check_limits(text, where, limits);
  KeyCheck keys(where);
  json::sax_parse(text, &keys);
  try {
    return json::parse(text);
  } catch (const json::exception& error) {
    bad_input("{}not JSON: {}", prefix_of(where), printable(reason_of(error)));
  }
}

namespace {

// The length of a number that begins at `at`, outside of strings, and is valid in Python's json module but not in JSON;
// 0 if there is none.
size_t not_finite_at(std::string_view text, size_t at) {
  const auto is_part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (const std::string_view word : {"NaN", "Infinity", "-Infinity"})
    if (text.substr(at).starts_with(word) &&
        (at + word.size() == text.size() || !is_part(text[at + word.size()])))
      return word.size();
  const size_t size = std::min(text.find_first_not_of("0123456789+-.eE", at), text.size()) - at;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data() + at, text.data() + at + size, value);
  const bool whole = size > 0 && end == text.data() + at + size;
  return whole && error == std::errc::result_out_of_range ? size : 0;
}

// `text` with numbers that only Python accepts replaced by null.
std::string with_nulls(std::string_view text) {
  std::string result;
  bool in_string = false, in_word = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (!in_string && !in_word)
      if (const size_t size = not_finite_at(text, i); size > 0) {
        result += "null";
        i += size - 1;
        continue;
      }
    result += c;
    if (c == '"')
      in_string = !in_string;
    else if (in_string && c == '\\' && i + 1 < text.size())
      result += text[++i];
    in_word = !in_string && (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '.');
  }
  return result;
}

}  // namespace

json parse_json_record(std::string_view line, std::string_view where) {
  check_limits(line, where, kJsonLineLimits);
  try {
    return json::parse(line);
  } catch (const json::exception&) {
  }
  try {
    return json::parse(with_nulls(line));
  } catch (const json::exception& error) {
    bad_input("{}not JSON: {}", prefix_of(where), printable(reason_of(error)));
  }
}

json read_json_file(const std::string& path, const JsonLimits& limits) {
  return parse_json(read_input_file(path, limits.bytes), path, limits);
}

std::string json_text(const json& value, int indent) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace);
}

std::string json_text(const nlohmann::ordered_json& value, int indent) {
  return value.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string printable_json(const json& value) {
  if (value.is_array()) return value.empty() ? "an empty list" : "a list";
  if (value.is_object()) return value.empty() ? "an empty object" : "an object";
  return printable(json_text(value), kMostShownOfValue);
}

bool JsonView::has(const char* key) const {
  const auto found = object().find(key);
  return found != value_->end() && !found->is_null();
}

JsonView JsonView::at(const char* key) const {
  const auto found = object().find(key);
  if (found == value_->end()) {
    const std::string own = value_ == root_ ? "" : path();
    bad_input("{}{} is missing", prefix_of(where_), joined(own, key));
  }
  return {*root_, *found, where_};
}

size_t JsonView::size() const { return list().size(); }

JsonView JsonView::item(size_t index) const {
  if (index >= size()) refuse(fmt::format("a list of at least {} values", index + 1));
  return {*root_, (*value_)[index], where_};
}

std::string JsonView::text() const {
  if (!value_->is_string()) refuse("a string");
  return value_->get<std::string>();
}

bool JsonView::flag() const {
  if (!value_->is_boolean()) refuse("true or false");
  return value_->get<bool>();
}

double JsonView::number() const {
  if (!value_->is_number() || !std::isfinite(value_->get<double>())) refuse("a number");
  return value_->get<double>();
}

int64_t JsonView::integer(int64_t least, int64_t most) const {
  if (!fits_int64(*value_)) refuse(range_text(least, most));
  const auto number = value_->get<int64_t>();
  if (number < least || number > most) refuse(range_text(least, most));
  return number;
}

uint64_t JsonView::whole_number() const {
  if (!value_->is_number_unsigned()) refuse("a whole number of at least 0");
  return value_->get<uint64_t>();
}

std::vector<int64_t> JsonView::integers(int64_t least, int64_t most) const {
  std::vector<int64_t> numbers;
  numbers.reserve(size());
  each([&](const JsonView& value) { numbers.push_back(value.integer(least, most)); });
  return numbers;
}

std::string JsonView::text(const char* key, std::string_view absent) const {
  return has(key) ? at(key).text() : std::string(absent);
}

bool JsonView::flag(const char* key, bool absent) const { return has(key) ? at(key).flag() : absent; }

const json& JsonView::list() const {
  if (!value_->is_array()) refuse("a list");
  return *value_;
}

const json& JsonView::object() const {
  if (!value_->is_object()) refuse("an object");
  return *value_;
}

void JsonView::refuse(std::string_view needed) const {
  bad_input("{}{} is {}; {} is needed", prefix_of(where_), path(), printable_json(*value_), needed);
}

std::string JsonView::path() const {
  std::string path;
  find_path(*root_, value_, path);
  return path.empty() ? "the document" : path;
}

}  // namespace trifold
