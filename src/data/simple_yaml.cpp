#include "data/simple_yaml.h"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "core/error.h"

namespace trifold {

namespace {

using nlohmann::json;

struct Line {
  int number;
  size_t indent;
  std::string_view text;  // without indentation, comment and trailing spaces; never empty
};

std::string_view stripped(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// A comment starts with # at the start or after a space, outside quotes.
std::string_view without_comment(std::string_view text) {
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if ((c == '"' || c == '\'') && (i == 0 || text[i - 1] == ' ' || text[i - 1] == '[')) {
      quote = c;
    } else if (c == '#' && (i == 0 || text[i - 1] == ' ')) {
      return text.substr(0, i);
    }
  }
  return text;
}

class Parser {
 public:
  Parser(std::string_view text, const std::string& name) : name_(name) {
    for (int number = 1; !text.empty(); ++number) {
      const std::string_view raw = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(raw.size() + 1, text.size()));
      const size_t indent = std::min(raw.find_first_not_of(' '), raw.size());
      const std::string_view content = stripped(without_comment(raw));
      if (content.empty() || content == "---") continue;
      if (raw[indent] == '\t') bad_input("{}:{}: indentation is made of spaces, not tabs", name_, number);
      lines_.push_back({number, indent, content});
    }
  }

  json parse() {
    if (lines_.empty()) return json::object();
    json value = block(lines_[0].indent, 0);
    if (at_ < lines_.size()) problem("is indented less than what it belongs to");
    return value;
  }

 private:
  template <class... Args>
  [[noreturn]] void problem(fmt::format_string<Args...> format, Args&&... args) {
    const int line = at_ < lines_.size() ? lines_[at_].number : lines_.back().number;
    bad_input("{}:{}: {}", name_, line, fmt::format(format, std::forward<Args>(args)...));
  }

  static bool is_item(std::string_view text) { return text == "-" || text.starts_with("- "); }

  // Where the colon after a key is; npos when the line is no "key: value".
  static size_t key_end(std::string_view text) {
    if (text.empty()) return std::string_view::npos;
    if (text[0] == '"' || text[0] == '\'') {
      const size_t close = text.find(text[0], 1);
      const bool key = close != std::string_view::npos && close + 1 < text.size() && text[close + 1] == ':';
      return key ? close + 1 : std::string_view::npos;
    }
    if (text[0] == '[' || text[0] == '{') return std::string_view::npos;
    for (size_t i = text.find(':'); i != std::string_view::npos; i = text.find(':', i + 1))
      if (i + 1 == text.size() || text[i + 1] == ' ') return i;
    return std::string_view::npos;
  }

  void count(const json& value) {
    constexpr int64_t kMost = 1'000'000;
    ++values_;
    if (value.is_structured())
      for (const json& part : value) count(part);
    if (values_ > kMost) problem("the file has more than {} values", kMost);
  }

  // The lines from here on that are indented by `indent`, and what is below them.
  json block(size_t indent, int depth) {
    if (depth > 100) problem("is nested more than 100 levels deep");
    return is_item(lines_[at_].text) ? list(indent, depth) : map(indent, depth);
  }

  bool here(size_t indent) {
    if (at_ >= lines_.size() || lines_[at_].indent < indent) return false;
    if (lines_[at_].indent > indent) problem("is indented more than the lines before it");
    return true;
  }

  json list(size_t indent, int depth) {
    json items = json::array();
    while (here(indent) && is_item(lines_[at_].text)) {
      Line& line = lines_[at_];
      const size_t skip = std::min(line.text.find_first_not_of(' ', 1), line.text.size());
      line.text.remove_prefix(skip);
      if (line.text.empty()) {
        ++at_;
        items.push_back(at_ < lines_.size() && lines_[at_].indent > indent
                            ? block(lines_[at_].indent, depth + 1)
                            : json(""));
      } else if (key_end(line.text) != std::string_view::npos || is_item(line.text)) {
        line.indent += skip;  // "- key: value": a block that starts behind the dash
        items.push_back(block(line.indent, depth + 1));
      } else {
        items.push_back(value_of(line.text));
        ++at_;
      }
      count(items.back());
    }
    return items;
  }

  json map(size_t indent, int depth) {
    json entries = json::object();
    while (here(indent) && !is_item(lines_[at_].text)) {
      const std::string_view text = lines_[at_].text;
      const size_t end = key_end(text);
      if (end == std::string_view::npos) problem("'{}' is no 'key: value'", text);
      const std::string key = scalar(stripped(text.substr(0, end)));
      if (entries.contains(key)) problem("the key '{}' appears twice", key);
      std::string_view rest = stripped(text.substr(end + 1));
      std::optional<std::string> anchor;
      if (rest.starts_with('&')) {
        const size_t stop = std::min(rest.find(' '), rest.size());
        anchor = std::string(rest.substr(1, stop - 1));
        rest = stripped(rest.substr(stop));
      }
      json value;
      if (!rest.empty()) {
        value = value_of(rest);
        ++at_;
      } else {
        ++at_;
        value = below(indent, depth);
      }
      count(value);
      if (anchor) anchors_[*anchor] = value;
      entries[key] = std::move(value);
    }
    return entries;
  }

  // The block that belongs to a key: deeper lines, or list items at the same depth.
  json below(size_t indent, int depth) {
    if (at_ >= lines_.size()) return "";
    const Line& next = lines_[at_];
    if (next.indent > indent || (next.indent == indent && is_item(next.text)))
      return block(next.indent, depth + 1);
    return "";
  }

  json value_of(std::string_view text) {
    if (text[0] == '*') {
      const auto found = anchors_.find(std::string(text.substr(1)));
      if (found == anchors_.end()) problem("the alias '{}' has no anchor before it", text);
      return found->second;
    }
    if (text[0] == '[' || text[0] == '{') return flow(text);
    if (text[0] == '&' || text[0] == '!' || text[0] == '|' || text[0] == '>')
      problem("'{}' is YAML that is not understood here", text);
    return scalar(text);
  }

  json flow(std::string_view text) {
    const bool is_list = text[0] == '[';
    if (text.back() != (is_list ? ']' : '}')) problem("'{}' does not end on its line", text);
    json values = is_list ? json::array() : json::object();
    std::string_view rest = stripped(text.substr(1, text.size() - 2));
    while (!rest.empty()) {
      const std::string_view item = stripped(rest.substr(0, rest.find(',')));
      rest.remove_prefix(std::min(rest.find(','), rest.size() - 1) + 1);
      if (item.empty() || item.find_first_of("[]{}") != std::string_view::npos)
        problem("'{}' is YAML that is not understood here", text);
      if (is_list) {
        values.push_back(scalar(item));
        continue;
      }
      const size_t end = key_end(item);
      if (end == std::string_view::npos) problem("'{}' is no 'key: value'", item);
      values[scalar(stripped(item.substr(0, end)))] = scalar(stripped(item.substr(end + 1)));
    }
    return values;
  }

  std::string scalar(std::string_view text) {
    if (text.empty() || (text[0] != '"' && text[0] != '\'')) return std::string(text);
    if (text.size() < 2 || text.back() != text[0]) problem("a quote is not closed");
    const std::string_view inner = text.substr(1, text.size() - 2);
    if (inner.find(text[0]) != std::string_view::npos || inner.find('\\') != std::string_view::npos)
      problem("escapes inside quotes are not understood here");
    return std::string(inner);
  }

  const std::string& name_;
  std::vector<Line> lines_;
  size_t at_ = 0;
  int64_t values_ = 0;
  std::map<std::string, json> anchors_;
};

}  // namespace

json parse_simple_yaml(std::string_view text, const std::string& name) { return Parser(text, name).parse(); }

}  // namespace trifold
