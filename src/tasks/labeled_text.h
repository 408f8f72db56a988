// Texts labeled with a class:
//   name.tsv    columns separated by tabs, named in the first line: text, optionally text_b, and label
//   otherwise   one JSON object per line with these fields; a label may be a number
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace trifold {

struct LabeledText {
  std::string text;
  std::optional<std::string> other;  // the second text of a pair
  std::string label;
};

// BadInput, naming file and line, for lines that cannot be read, and for a file without texts.
std::vector<LabeledText> read_labeled_texts(const std::string& path);

// The distinct labels in ascending order: by value if all are numbers, otherwise by bytes.
std::vector<std::string> classes_of(const std::vector<LabeledText>& texts);

}  // namespace trifold
