#include "files/yaml.h"

#include <fmt/format.h>
#include <yaml.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.h"

namespace trifold {

namespace {

using nlohmann::json;

constexpr size_t kMostLevels = 100;
constexpr int64_t kMostValues = 1'000'000;

int64_t values_in(const json& value) {
  int64_t count = 1;
  if (value.is_structured())
    for (const json& part : value) count += values_in(part);
  return count;
}

size_t levels_in(const json& value) {
  if (!value.is_structured()) return 0;
  size_t deepest = 0;
  for (const json& part : value) deepest = std::max(deepest, levels_in(part));
  return deepest + 1;
}

std::string text_of(const yaml_char_t* text) {
  return text == nullptr ? "" : reinterpret_cast<const char*>(text);
}

// An event of libyaml, which owns memory.
class Event {
 public:
  explicit Event(yaml_event_t event) : event_(event) {}
  ~Event() { yaml_event_delete(&event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  yaml_event_type_t type() const { return event_.type; }
  size_t line() const { return event_.start_mark.line + 1; }
  const decltype(yaml_event_t::data)& data() const { return event_.data; }

 private:
  yaml_event_t event_;
};

// Turns the parser's events into JSON: nothing else is kept of a large file.
class YamlReader {
 public:
  YamlReader(std::string_view text, const std::string& name) : name_(name) {
    if (yaml_parser_initialize(&parser_) == 0) throw std::bad_alloc();
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  }
  ~YamlReader() { yaml_parser_delete(&parser_); }
  YamlReader(const YamlReader&) = delete;
  YamlReader& operator=(const YamlReader&) = delete;

  json read() {
    int documents = 0;
    for (;;) {
      const Event event(next());
      line_ = event.line();
      if (event.type() == YAML_STREAM_END_EVENT) return std::move(document_);
      if (event.type() == YAML_DOCUMENT_START_EVENT && ++documents > 1)
        problem("it has a second document; only one is read");
      take(event);
    }
  }

 private:
  // A list or map whose end has not been read yet.
  struct Open {
    json value;
    std::string anchor;
    std::optional<std::string> key = std::nullopt;  // the key of a map whose value has not been read yet
  };

  template <class... Args>
  [[noreturn]] void problem(fmt::format_string<Args...> format, Args&&... args) const {
    bad_input("{}:{}: {}", name_, line_, fmt::format(format, std::forward<Args>(args)...));
  }

  yaml_event_t next() {
    yaml_event_t event{};
    if (yaml_parser_parse(&parser_, &event) != 0) return event;
    if (parser_.error == YAML_MEMORY_ERROR) throw std::bad_alloc();
    line_ = parser_.problem_mark.line + 1;
    problem("{}", parser_.problem);
  }

  void take(const Event& event) {
    const auto& data = event.data();
    switch (event.type()) {
      case YAML_SCALAR_EVENT: {
        refuse_tag(data.scalar.tag);
        count(1);
        const auto* text = reinterpret_cast<const char*>(data.scalar.value);
        add(std::string(text, data.scalar.length), text_of(data.scalar.anchor));
        break;
      }
      case YAML_ALIAS_EVENT:
        add(meant_by(text_of(data.alias.anchor)), "");
        break;
      case YAML_SEQUENCE_START_EVENT:
        refuse_tag(data.sequence_start.tag);
        open(json::array(), text_of(data.sequence_start.anchor));
        break;
      case YAML_MAPPING_START_EVENT:
        refuse_tag(data.mapping_start.tag);
        open(json::object(), text_of(data.mapping_start.anchor));
        break;
      case YAML_SEQUENCE_END_EVENT:
      case YAML_MAPPING_END_EVENT:
        close();
        break;
      default:  // begin and end of the stream and of its document
        break;
    }
  }

  void count(int64_t values) {
    values_ += values;
    if (values_ > kMostValues) problem("more than {} values", kMostValues);
  }

  // Limits the nesting, since code that walks a value is recursive.
  void nest(size_t levels) const {
    if (open_.size() + levels > kMostLevels) problem("nested more than {} levels deep", kMostLevels);
  }

  void refuse_tag(const yaml_char_t* tag) const {
    if (tag != nullptr) problem("the tag {}: tags are not supported", text_of(tag));
  }

  json meant_by(const std::string& anchor) {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) problem("the alias *{} has no anchor before it", anchor);
    nest(levels_in(found->second));
    count(values_in(found->second));
    return found->second;
  }

  void open(json empty, std::string anchor) {
    nest(1);
    count(1);
    open_.push_back({std::move(empty), std::move(anchor)});
  }

  void close() {
    Open done = std::move(open_.back());
    open_.pop_back();
    add(std::move(done.value), done.anchor);
  }

  // The next value of the innermost list or map, or the key before it, or the document.
  void add(json value, const std::string& anchor) {
    if (!anchor.empty()) {
      count(values_in(value));  // the copy
      anchors_[anchor] = value;
    }
    if (open_.empty()) {
      document_ = std::move(value);
      return;
    }
    Open& parent = open_.back();
    if (parent.value.is_array()) {
      parent.value.push_back(std::move(value));
    } else if (parent.key) {
      parent.value[*std::exchange(parent.key, std::nullopt)] = std::move(value);
    } else {
      parent.key = checked_key(value, parent.value);
    }
  }

  std::string checked_key(const json& key, const json& map) const {
    if (!key.is_string()) problem("a list or a map as a key is not supported");
    const auto& text = key.get_ref<const std::string&>();
    if (text == "<<") problem("merge keys (<<) are not supported");
    if (map.contains(text)) problem("the key '{}' appears twice", text);
    return text;
  }

  const std::string& name_;
  yaml_parser_t parser_{};
  size_t line_ = 1;
  std::vector<Open> open_;
  std::map<std::string, json> anchors_;
  int64_t values_ = 0;
  json document_ = json::object();
};

}  // namespace

json parse_yaml(std::string_view text, const std::string& name) { return YamlReader(text, name).read(); }

}  // namespace trifold
