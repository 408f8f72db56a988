// Layers that follow from the shape of a DLRM; internal to models/dlrm.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "models/dlrm.h"
#include "nn/clicks/label_towers.h"

namespace trifold {

// Widths of an MLP: its input's, then each layer's output's.
std::vector<int64_t> mlp_widths(int64_t in, const std::vector<int64_t>& rest);

// The first column of an MLP in the statistics of all layers; none without batch normalisation or hidden layers.
std::optional<int64_t> first_norm(const DlrmShape& shape, std::string_view mlp);

LabelTowersShape towers_of(const DlrmShape& shape);

}  // namespace trifold
