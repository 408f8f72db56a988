// Reads the file of `trifold evaluate --task`: JSON lines of questions with a choice of answers, or of texts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trifold {

// A line of the file: a question or a text.
struct TaskItem {
  int64_t line = 0;  // from 1
  // A question: the model is asked how likely each choice is after the context and the delimiter.
  std::string context;
  std::vector<std::string> choices;  // none: the item is a text
  std::string delimiter = " ";
  int64_t answer = 0;  // index of the right choice
  // A text, whose perplexity is measured.
  std::string text;

  bool is_question() const { return !choices.empty(); }
};

// The items of a file, which are all questions or all texts. Other fields of a line are left unread. BadInput, naming
// file and line, for a line that is neither.
std::vector<TaskItem> read_task(const std::string& path);

// White space as Python's text functions have it, by which word counts and trailing spaces are defined here: the
// property White_Space, and the four separators from U+001C on.
bool is_python_space(char32_t c);
// The number of parts into which runs of white space divide `text`, as in re.split: an empty part before leading and
// after trailing space counts.
int64_t count_words(std::string_view text);
// The number of code points of valid UTF-8.
int64_t count_characters(std::string_view text);

}  // namespace trifold
