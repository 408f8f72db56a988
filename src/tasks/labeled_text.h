// Texts with a class each:
//   name.tsv    columns separated by tabs, named in the first line: text, optionally text_b, and label
//   otherwise   a JSON object a line with these fields; a label may be a number
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace trifold {

struct LabeledText {
  std::string text;
  std::optional<std::string> other;  // the second of a pair
  std::string label;
};

// BadInput, naming file and line, for what cannot be read, and for a file without a text.
std::vector<LabeledText> read_labeled_texts(const std::string& path);

// The labels that occur, each once, in ascending order: of numbers by value, otherwise of bytes.
std::vector<std::string> classes_of(const std::vector<LabeledText>& texts);

}  // namespace trifold
