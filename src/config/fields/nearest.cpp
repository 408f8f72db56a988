#include "config/fields/nearest.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace trifold {

// Row i of the classic table holds the distances of the first i letters of `a` to every beginning of `b`; a
// swap looks two rows back, so three rows are kept.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replace, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

namespace {

constexpr size_t kMostNames = 3;

std::vector<std::string_view> parts_of(std::string_view name) {
  std::vector<std::string_view> parts;
  while (!name.empty()) {
    const size_t end = std::min(name.find('-'), name.size());
    if (end > 0) parts.push_back(name.substr(0, end));
    name.remove_prefix(std::min(end + 1, name.size()));
  }
  return parts;
}

// Parts of names that many options share.
bool is_common(std::string_view part) {
  constexpr std::string_view kCommon[] = {"num", "size", "use", "no", "per", "of",    "max",
                                          "min", "in",   "by",  "is", "the", "value", "file"};
  return std::find(std::begin(kCommon), std::end(kCommon), part) != std::end(kCommon);
}

// "layer" and "layers" are one part.
bool same_part(std::string_view a, std::string_view b) {
  return a == b || (std::min(a.size(), b.size()) >= 4 && edit_distance(a, b) <= 1);
}

// The fraction of parts that two names share; 0 if they share only common ones.
double shared_parts(std::string_view word, std::string_view name) {
  const std::vector<std::string_view> left = parts_of(word), right = parts_of(name);
  size_t shared = 0;
  bool telling = false;
  for (const std::string_view part : left)
    if (std::any_of(right.begin(), right.end(),
                    [&](std::string_view candidate) { return same_part(part, candidate); })) {
      ++shared;
      telling = telling || !is_common(part);
    }
  const size_t all = left.size() + right.size() - std::min(shared, right.size());
  return telling ? static_cast<double>(shared) / static_cast<double>(all) : 0;
}

// From 0, different, to 1, equal.
double likeness_by_letters(std::string_view word, std::string_view name) {
  // Names are often abbreviated; the shortest match was probably meant.
  if (word.size() >= 2 && name.starts_with(word))
    return 0.9 - 0.001 * static_cast<double>(name.size() - word.size());
  if (word.size() >= 4 && name.ends_with(word)) return 0.8;
  const size_t most = std::clamp<size_t>((word.size() + 1) / 4, 1, 3);
  const size_t distance = edit_distance(word, name);
  if (distance > most || distance >= word.size()) return 0;
  return 1 - 0.1 * static_cast<double>(distance);
}

template <class Likeness>
std::vector<std::string> most_alike(std::span<const std::string> names, double least, Likeness&& likeness) {
  std::vector<std::pair<double, std::string>> found;
  for (const std::string& name : names)
    if (const double value = likeness(name); value >= least) found.emplace_back(value, name);
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> best;
  for (const auto& [value, name] : found)
    if (value == found.front().first && best.size() < kMostNames) best.push_back(name);
  return best;
}

}  // namespace

std::vector<std::string> similar(std::string_view word, std::span<const std::string> names) {
  // A very long word cannot be a typing error, and the table is quadratic.
  constexpr size_t kLongest = 100;
  if (word.empty() || word.size() > kLongest) return {};
  auto found =
      most_alike(names, 0.1, [&](const std::string& name) { return likeness_by_letters(word, name); });
  if (!found.empty()) return found;
  return most_alike(names, 0.5, [&](const std::string& name) { return shared_parts(word, name); });
}

std::string alternatives(std::span<const std::string> names, std::string_view dashes) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " or " : ", ";
    text += std::string(dashes) + names[i];
  }
  return text;
}

}  // namespace trifold
