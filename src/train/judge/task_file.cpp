#include "train/judge/task_file.h"

#include <algorithm>
#include <optional>

#include "core/error.h"
#include "core/plain_text.h"
#include "core/read_json.h"
#include "files/mapped_file.h"
#include "files/mapped_lines.h"
#include "tokenize/unicode/unicode.h"

namespace trifold {

namespace {

constexpr const char* kNeeded =
    R"({"context": "...", "choices": ["...", "..."], "answer": 0} or {"text": "..."})";

// Errors that this throws get the place of the line from read_task.
TaskItem item_of(std::string_view line) {
  const nlohmann::json whole = parse_json_record(line, {});
  check(whole.is_object(), "the line is not a JSON object such as {}", kNeeded);
  const JsonView view(whole);
  TaskItem item;
  if (view.has("text")) {
    check(!view.has("choices") && !view.has("context"),
          "the line has both a text and a question: give each its own line, in two files");
    item.text = view.at("text").text();
    check(!item.text.empty(), "the text is empty: leave the line out");
    return item;
  }
  check(view.has("choices"), "the line has neither \"choices\" nor \"text\"; it should be {}", kNeeded);
  item.context = view.at("context").text();
  item.delimiter = view.text("delimiter", item.delimiter);
  const JsonView choices = view.at("choices");
  check(choices.size() >= 2, "a question has at least two choices, not {}", choices.size());
  choices.each([&](const JsonView& choice) {
    item.choices.push_back(choice.text());
    check(!item.choices.back().empty(), "{} is empty", choice.path());
  });
  item.answer = view.at("answer").integer(0, std::ssize(item.choices) - 1);
  return item;
}

}  // namespace

std::vector<TaskItem> read_task(const std::string& path) {
  const MappedFile file(path);
  expect_plain_text(file.text(), path);
  MappedLines lines(file, "one question or text per line is expected");
  std::vector<TaskItem> items;
  while (const std::optional<std::string_view> content = lines.next()) {
    std::string_view line = *content;
    if (lines.number() == 1 && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);  // a byte-order mark
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    try {
      TaskItem item = item_of(line);
      item.line = lines.number();
      check(items.empty() || items.back().is_question() == item.is_question(),
            "the line has a {}, but the lines before have {}: put them in two files",
            item.is_question() ? "question" : "text", item.is_question() ? "texts" : "questions");
      items.push_back(std::move(item));
    } catch (const std::exception& error) {
      bad_input("{}, line {}: {}", path, lines.number(), error.what());
    }
  }
  if (items.empty()) bad_input("{} has no lines: give lines such as {}", path, kNeeded);
  return items;
}

bool is_python_space(char32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

int64_t count_words(std::string_view text) {
  int64_t parts = 1;
  bool in_space = false;
  for (size_t at = 0; at < text.size();) {
    const bool space = is_python_space(next_character(text, at));
    if (space && !in_space) ++parts;
    in_space = space;
  }
  return parts;
}

int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

}  // namespace trifold
