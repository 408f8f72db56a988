#include "preprocess/text_inputs.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "clicks/click_input.h"
#include "clicks/click_layout.h"
#include "preprocess/click_reader.h"

namespace trifold {

namespace {

bool is_text_input(const std::string& path) {
  return !is_parquet_input(path) && !is_array_input(path) && !is_norm_file(path);
}

bool is_empty_text(const std::string& path) {
  std::error_code error;
  if (!is_text_input(path) || !std::filesystem::is_regular_file(path, error)) return false;
  if (std::filesystem::file_size(path, error) == 0 && !error) return true;
  const ClickInput input(path);
  return input.beginning().find_first_not_of(" \t\r\n") == std::string_view::npos;
}

}  // namespace

std::vector<std::string> without_empty_texts(const std::vector<std::string>& inputs) {
  std::vector<std::string> filled;
  std::remove_copy_if(inputs.begin(), inputs.end(), std::back_inserter(filled), is_empty_text);
  if (filled.empty() && !inputs.empty()) filled.push_back(inputs.front());
  return filled;
}

Quoting quoting_of_inputs(const std::vector<std::string>& inputs, char separator) {
  if (separator == ',') return Quoting::Quotes;
  Quoting found = Quoting::Auto;
  for (const std::string& path : inputs) {
    if (!is_text_input(path)) continue;
    const ClickInput input(path);
    const Quoting here = quoting_of(input.beginning(), separator);
    if (here == Quoting::Quotes) return here;
    if (here == Quoting::None) found = here;
  }
  return found;
}

}  // namespace trifold
