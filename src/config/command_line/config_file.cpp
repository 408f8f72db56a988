#include "config/command_line/config_file.h"

#include <algorithm>
#include <boost/program_options/parsers.hpp>
#include <boost/token_functions.hpp>
#include <filesystem>

#include "config/options/option.h"
#include "core/error.h"
#include "core/input_file.h"
#include "core/printable.h"
#include "core/program_folder.h"
#include "core/trimmed.h"

namespace trifold {
namespace {

constexpr std::string_view kBlank = " \t\r\v\f";
constexpr int64_t kMaxFileBytes = 1 << 20;

// Cuts a comment off: a '#' at the beginning or after a blank, outside double quotes. A quote opens only at
// the beginning of a word, so that a value like 6" is left alone.
std::string_view without_comment(std::string_view text) {
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool word_begins = i == 0 || kBlank.find(text[i - 1]) != std::string_view::npos;
    if (quoted && text[i] == '\\')
      ++i;
    else if (quoted && text[i] == '"')
      quoted = false;
    else if (!quoted && word_begins && text[i] == '"')
      quoted = true;
    else if (!quoted && word_begins && text[i] == '#')
      return trimmed(text.substr(0, i), kBlank);
  }
  return trimmed(text, kBlank);
}

// True when every double quote of `text` is closed, as split_unix counts them.
bool quotes_closed(const std::string& text) {
  bool open = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\')
      ++i;
    else if (text[i] == '"')
      open = !open;
  }
  return !open;
}

std::vector<std::string> split_words(const std::string& value) {
  if (!quotes_closed(value)) bad_input("a double quote is not closed in: {}", printable(value));
  try {
    return boost::program_options::split_unix(value, " \t", "\"", "\\");
  } catch (const boost::escaped_list_error&) {
    bad_input("a '\\' must be followed by '\\', '\"', 'n' or a blank in: {}", printable(value));
  }
}

std::string quoted(const std::string& word) {
  std::string text = "\"";
  for (const char c : word) {
    if (c == '"' || c == '\\') text += '\\';
    if (c == '\n')
      text += "\\n";
    else
      text += c;
  }
  return text + '"';
}

bool needs_quotes(const std::string& word, bool list) {
  if (word.empty() || trimmed(word, kBlank).size() != word.size()) return true;
  return word.find_first_of(list ? "\"\\#\n \t" : "\"#\n") != std::string::npos;
}

// The path of an installed configuration, for a plain name that is not a file here.
std::string installed_path(const std::string& file) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (file.empty() || fs::path(file).has_parent_path() || fs::exists(file, error)) return file;
  const fs::path home = program_folder();
  const fs::path installed = home.parent_path() / "share" / "trifold" / "configs" / file;
  return !home.empty() && fs::is_regular_file(installed, error) ? installed.string() : file;
}

}  // namespace

std::vector<FileEntry> parse_config_text(std::string_view text, const std::string& file) {
  std::vector<FileEntry> entries;
  for (int line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view content = trimmed(text.substr(0, end), kBlank);
    text.remove_prefix(std::min(end + 1, text.size()));
    const bool heading = !content.empty() && content.front() == '[' && without_comment(content).back() == ']';
    if (content.empty() || content.front() == '#' || heading) continue;
    const size_t equals = content.find('=');
    const std::string_view name = trimmed(content.substr(0, equals), kBlank);
    if (equals == std::string_view::npos || name.empty())
      bad_input("{}:{}: '{}' is not of the form 'name = value'", file, line, printable(content, 60));
    entries.push_back({hyphenated(name), std::string(without_comment(content.substr(equals + 1))), line});
  }
  return entries;
}

std::vector<FileEntry> read_config_file(const std::string& file) {
  std::string text;
  try {
    text = read_input_file(installed_path(file), kMaxFileBytes);
  } catch (const Error& error) {
    bad_input("--config {}", error.what());
  }
  return parse_config_text(text, file);
}

std::vector<std::string> split_value(const std::string& value, bool list) {
  if (list) return split_words(value);
  if (value.empty() || value.front() != '"') return {value};
  std::vector<std::string> words = split_words(value);
  if (words.empty()) words.emplace_back();  // "" is an empty text
  if (words.size() > 1) bad_input("text follows the closing quote in: {}", value);
  return words;
}

std::string join_value(std::span<const std::string> words, bool list) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += ' ';
    text += needs_quotes(word, list) ? quoted(word) : word;
  }
  return text;
}

}  // namespace trifold
