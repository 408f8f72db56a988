#include "text/blend.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "core/error.h"

namespace trifold {

namespace {

std::optional<double> as_number(const std::string& word) {
  char* rest = nullptr;
  const double value = std::strtod(word.c_str(), &rest);
  if (word.empty() || *rest != '\0' || !std::isfinite(value)) return std::nullopt;
  return value;
}

DataPaths only_paths(std::span<const std::string> words) {
  return {{words.begin(), words.end()}, std::nullopt};
}

}  // namespace

DataPaths parse_data_paths(std::span<const std::string> words) {
  if (words.empty()) bad_input("--data-path is missing: give a text file or the prefix of a .bin/.idx pair");
  if (words.size() % 2 != 0) return only_paths(words);
  DataPaths result;
  std::vector<double> weights;
  const std::string* not_a_number = nullptr;
  for (size_t i = 0; i < words.size(); i += 2) {
    if (const auto weight = as_number(words[i])) {
      weights.push_back(*weight);
    } else if (not_a_number == nullptr) {
      not_a_number = &words[i];
    }
    result.paths.push_back(words[i + 1]);
  }
  if (weights.empty()) return only_paths(words);
  if (not_a_number != nullptr)
    bad_input(
        "--data-path mixes weights and bare paths: \"{}\" stands where a weight is expected; give a weight "
        "before every path, or before none",
        *not_a_number);
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] < 0)
      bad_input("--data-path: the weight of {} is negative: {}", result.paths[i], weights[i]);
    sum += weights[i];
  }
  if (!(sum > 0)) bad_input("--data-path: the weights are all 0");
  for (double& weight : weights) weight /= sum;
  result.weights = std::move(weights);
  return result;
}

BlendOrder blend_by_weight(std::span<const double> weights, int64_t samples) {
  return {BlendShares(weights), samples};
}

BlendOrder blend_exhaustive(std::span<const int64_t> sizes) {
  const auto total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  std::vector<double> weights;
  for (const int64_t size : sizes) weights.push_back(static_cast<double>(size) / static_cast<double>(total));
  return {BlendShares(weights), total, {sizes.begin(), sizes.end()}};
}

std::vector<std::string> text_paths(const DataConfig& config) {
  std::vector<std::string> paths;
  for (const auto* words : {&config.data_path, &config.train_data_path, &config.valid_data_path}) {
    if (words->empty()) continue;
    const DataPaths some = parse_data_paths(*words);
    paths.insert(paths.end(), some.paths.begin(), some.paths.end());
  }
  return paths;
}

}  // namespace trifold
