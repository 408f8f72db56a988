#include "text/split.h"

#include <cmath>
#include <cstdlib>
#include <vector>

#include "core/error.h"

namespace trifold {

namespace {

// Megatron-LM takes every run of digits and dots as a number and skips the rest; anything but separators
// between them is a typing error here.
std::vector<double> parse_numbers(const std::string& text) {
  constexpr std::string_view kNumber = "0123456789.";
  constexpr std::string_view kSeparators = ", \t/:";
  std::vector<double> numbers;
  for (size_t i = 0; i < text.size();) {
    if (kSeparators.find(text[i]) != std::string_view::npos) {
      ++i;
      continue;
    }
    const size_t end = std::min(text.find_first_not_of(kNumber, i), text.size());
    const std::string number = text.substr(i, end - i);
    char* rest = nullptr;
    const double value = std::strtod(number.c_str(), &rest);
    if (number.empty() || *rest != '\0')
      bad_input("--split \"{}\": \"{}\" is not a number; give up to three, such as 969,30,1", text,
                text.substr(i));
    numbers.push_back(value);
    i = end;
  }
  return numbers;
}

}  // namespace

std::string_view part_name(Split split) {
  switch (split) {
    case Split::Train:
      return "training";
    case Split::Valid:
      return "validation";
    case Split::Test:
      return "test";
  }
  return "?";
}

SplitFractions::SplitFractions(const std::string& text) {
  std::vector<double> parts = parse_numbers(text);
  if (parts.size() > 3) bad_input("--split \"{}\": has {} numbers, at most 3 are used", text, parts.size());
  parts.resize(3, 0.0);
  const double sum = parts[0] + parts[1] + parts[2];
  if (!(sum > 0)) bad_input("--split \"{}\": every part is empty; give numbers such as 969,30,1", text);
  for (size_t i = 0; i < 3; ++i) bounds_[i + 1] = bounds_[i] + parts[i] / sum;
}

std::string SplitFractions::text() const {
  std::string text;
  for (size_t i = 0; i < 3; ++i)
    text += fmt::format("{}{:.9g}", i == 0 ? "" : ",", 100 * (bounds_.at(i + 1) - bounds_.at(i)));
  return text;
}

bool SplitFractions::takes(Split split, double draw) const {
  const auto k = static_cast<size_t>(split);
  return bounds_.at(k) <= draw && draw < bounds_.at(k + 1);
}

bool SplitFractions::empty(Split split) const {
  const auto i = static_cast<size_t>(split);
  return bounds_[i] == bounds_[i + 1];
}

Interval SplitFractions::of(Split split, int64_t count) const {
  const auto i = static_cast<size_t>(split);
  const auto scale = static_cast<double>(count);
  return {std::llrint(bounds_[i] * scale), std::llrint(bounds_[i + 1] * scale)};
}

int64_t samples_needed(Split split, int64_t train_iters, int64_t eval_interval, int64_t eval_iters,
                       int64_t global_batch_size) {
  switch (split) {
    case Split::Train:
      return train_iters * global_batch_size;
    case Split::Valid:
      return (eval_interval > 0 ? train_iters / eval_interval + 1 : 1) * eval_iters * global_batch_size;
    case Split::Test:
      return eval_iters * global_batch_size;
  }
  return 0;
}

}  // namespace trifold
