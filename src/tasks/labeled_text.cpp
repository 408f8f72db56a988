#include "tasks/labeled_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "core/error.h"
#include "core/plain_text.h"
#include "core/printable.h"
#include "core/read_json.h"
#include "core/suffix.h"
#include "files/mapped_file.h"
#include "files/mapped_lines.h"
#include "tokenize/unicode/unicode.h"

namespace trifold {

namespace {

using nlohmann::json;

constexpr int64_t kMostLineBytes = int64_t{16} << 20;

std::vector<std::string> columns_of(const std::string& line) {
  std::vector<std::string> columns(1);
  for (const char c : line) {
    if (c == '\t')
      columns.emplace_back();
    else if (c != '\r')
      columns.back() += c;
  }
  return columns;
}

// Reads lines by the names of their columns.
class Table {
 public:
  explicit Table(const std::string& header) : names_(columns_of(header)) {
    for (const char* name : {"text", "label"})
      check(place(name).has_value(), "the first line must name the columns, among them '{}'; it names {}",
            name, printable(fmt::format("{}", fmt::join(names_, ", "))));
  }
  LabeledText read(const std::string& line) const {
    const std::vector<std::string> columns = columns_of(line);
    check(columns.size() == names_.size(), "the first line names {} columns, this one has {}", names_.size(),
          columns.size());
    LabeledText text{columns[*place("text")], {}, columns[*place("label")]};
    if (const auto other = place("text_b")) text.other = columns[*other];
    return text;
  }

 private:
  std::optional<size_t> place(const char* name) const {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) return std::nullopt;
    return static_cast<size_t>(found - names_.begin());
  }
  std::vector<std::string> names_;
};

json json_of(const std::string& line) {
  try {
    return parse_json_record(line, {});
  } catch (const Error& error) {
    fail("{}; a table's name ends in .tsv", error.what());
  }
}

LabeledText read_json(const std::string& line) {
  const json object = json_of(line);
  check(object.is_object(), "is not a JSON object such as {}; a table's name ends in .tsv",
        R"({"text": "...", "label": "..."})");
  const auto field = [&](const char* name) {
    check(object.contains(name), "the object has no field \"{}\"", name);
    check(object[name].is_string(), "the field \"{}\" is not a string", name);
    return object[name].get<std::string>();
  };
  LabeledText text{field("text"), {}, {}};
  if (object.contains("text_b")) text.other = field("text_b");
  check(object.contains("label"), "the object has no field \"label\"");
  const json& label = object["label"];
  check(label.is_string() || label.is_number(), "the label is neither a string nor a number");
  text.label = label.is_string() ? label.get<std::string>() : json_text(label);
  return text;
}

std::optional<double> number(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

}  // namespace

std::vector<LabeledText> read_labeled_texts(const std::string& path) {
  const MappedFile file(path);
  expect_plain_text(file.text(), path);
  MappedLines lines(file, "one text with its label per line is expected", kMostLineBytes);
  std::vector<LabeledText> texts;
  std::optional<Table> table;
  while (const std::optional<std::string_view> content = lines.next()) {
    std::string line(*content);
    if (lines.number() == 1 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);  // a byte-order mark
    if (line.empty() || line == "\r") continue;
    try {
      if (const auto at = invalid_utf8(line)) fail("byte {} is not UTF-8", *at);
      if (!has_suffix(path, ".tsv"))
        texts.push_back(read_json(line));
      else if (!table)
        table.emplace(line);
      else
        texts.push_back(table->read(line));
      check(texts.empty() || !texts.back().label.empty(), "the label is empty");
    } catch (const std::exception& error) {
      bad_input("{}, line {}: {}", path, lines.number(), error.what());
    }
  }
  if (texts.empty()) bad_input("{} holds no text with a label", path);
  return texts;
}

std::vector<std::string> classes_of(const std::vector<LabeledText>& texts) {
  std::vector<std::string> classes;
  for (const LabeledText& text : texts) classes.push_back(text.label);
  std::sort(classes.begin(), classes.end());
  classes.erase(std::unique(classes.begin(), classes.end()), classes.end());
  const auto is_number = [](const std::string& label) { return number(label).has_value(); };
  if (std::all_of(classes.begin(), classes.end(), is_number))
    std::stable_sort(classes.begin(), classes.end(),
                     [](const std::string& a, const std::string& b) { return *number(a) < *number(b); });
  return classes;
}

}  // namespace trifold
