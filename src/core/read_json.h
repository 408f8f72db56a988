// Reads JSON from outside: limits before parsing, and checked access to values. Writes JSON: json_text.
//
//   const nlohmann::json whole = parse_json(text, path);
//   const JsonView view(whole, path);
//   const int64_t bytes = view.at("files").item(3).at("bytes").integer(0, most);
//
// Every mistake is a BadInput that names the file, the path within it ("files[3].bytes"), the value found and
// the value needed. The JSON library itself does not limit the depth, although some of its functions recurse
// once per level, and it silently truncates integers that do not fit the requested type.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trifold {

// A parsed value takes up to about 120 bytes of memory, in addition to its text.
struct JsonLimits {
  int64_t bytes = int64_t{64} << 20;
  int depth = 64;              // nested lists and objects
  int64_t values = 1'000'000;  // numbers, texts, names, lists, objects
};

// Limits for one line of a file of JSON lines, whose reader limits the length of a line.
inline constexpr JsonLimits kJsonLineLimits{int64_t{1} << 30, 64, 1'000'000};

// Parses the JSON text of `where`. BadInput, beginning with `where` unless that is empty, with line and column, if a
// limit is exceeded, the text is not JSON, or an object has a key twice.
nlohmann::json parse_json(std::string_view text, std::string_view where, const JsonLimits& limits = {});

// parse_json for one line of a file of JSON lines. Also accepts what Python's json module reads and writes beyond JSON:
// NaN, Infinity, -Infinity, and numbers beyond the range of f64, which become null; of equal keys the last counts.
nlohmann::json parse_json_record(std::string_view line, std::string_view where);

// parse_json for a file, whose kind and size are checked before it is read.
nlohmann::json read_json_file(const std::string& path, const JsonLimits& limits = {});

// JSON as text, on one line or with `indent` spaces per level. Bytes that are not UTF-8, which names of files and
// options may contain, become U+FFFD; the library's own function would throw.
std::string json_text(const nlohmann::json& value, int indent = -1);
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);

// A value for a message: escaped, short, on one line.
std::string printable_json(const nlohmann::json& value);

// A value in a JSON tree, for reading with checks. Holds pointers into the tree, which must outlive it.
class JsonView {
 public:
  explicit JsonView(const nlohmann::json& root, std::string where = {})
      : root_(&root), value_(&root), where_(std::move(where)) {}
  // Deleted: a temporary would be destroyed at the end of the statement.
  explicit JsonView(nlohmann::json&& root, std::string where = {}) = delete;

  // For an object: whether it has a member `key` other than null, and that member.
  bool has(const char* key) const;
  JsonView at(const char* key) const;
  // For a list.
  size_t size() const;
  JsonView item(size_t index) const;

  // Calls body(JsonView) for each value of a list.
  template <class Body>
  void each(Body&& body) const {
    for (const nlohmann::json& value : list()) body(JsonView(*root_, value, where_));
  }
  // Calls body(const std::string& name, JsonView) for each member of an object, in the order of their names.
  template <class Body>
  void members(Body&& body) const {
    for (const auto& member : object().items()) body(member.key(), JsonView(*root_, member.value(), where_));
  }

  std::string text() const;
  bool flag() const;
  double number() const;  // finite
  int64_t integer(int64_t least = std::numeric_limits<int64_t>::min(),
                  int64_t most = std::numeric_limits<int64_t>::max()) const;
  uint64_t whole_number() const;  // an unsigned 64-bit integer
  std::vector<int64_t> integers(int64_t least = std::numeric_limits<int64_t>::min(),
                                int64_t most = std::numeric_limits<int64_t>::max()) const;
  // For an object: the member, or `absent` if it is missing or null.
  std::string text(const char* key, std::string_view absent) const;
  bool flag(const char* key, bool absent) const;
  // The value itself, after a check of its type.
  const nlohmann::json& list() const;
  const nlohmann::json& object() const;
  const nlohmann::json& value() const { return *value_; }

  // Throws the BadInput "<where>: <path> is <value>; <needed> is needed".
  [[noreturn]] void refuse(std::string_view needed) const;
  // "tensors[3].pieces[0].crc32"; for the root, "the document".
  std::string path() const;

 private:
  JsonView(const nlohmann::json& root, const nlohmann::json& value, std::string where)
      : root_(&root), value_(&value), where_(std::move(where)) {}

  const nlohmann::json* root_;
  const nlohmann::json* value_;
  std::string where_;
};

}  // namespace trifold
