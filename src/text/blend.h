// Blends several data sets into one order of samples.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/fields/config.h"
#include "text/blend/blend_order.h"

namespace trifold {

// The parsed --data-path: one or more paths, and the share of the samples of each (absent: all samples of each, once).
struct DataPaths {
  std::vector<std::string> paths;
  std::optional<std::vector<double>> weights;  // [path], sum 1
};

// Megatron-LM's rule: an odd number of words is paths only; an even number is weight, path, weight, path ... unless
// none of the supposed weights is a number; then all are paths. BadInput if only some are numbers, for a negative
// weight, for weights that are all 0, and for no path at all.
DataPaths parse_data_paths(std::span<const std::string> words);
// All paths of a configuration's text: of --data-path, or of --train-data-path and --valid-data-path; none for
// --mock-data.
std::vector<std::string> text_paths(const DataConfig& config);

// Blends with these weights, which sum to 1.
BlendOrder blend_by_weight(std::span<const double> weights, int64_t samples);

// Blends with each data set's size as its weight and skips exhausted data sets, so that every sample of every data set
// occurs once.
BlendOrder blend_exhaustive(std::span<const int64_t> sizes);

}  // namespace trifold
