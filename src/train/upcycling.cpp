#include "train/upcycling.h"

#include <algorithm>
#include <string_view>

namespace trifold {

namespace {

constexpr std::string_view kExperts = ".mlp.experts.", kRouter = ".mlp.router.", kNetwork = ".mlp.";

// Experts' weights are [E, A, B]. Those of a network are [A, B], or [groups, A / groups, B]: gates, then what they gate.
int64_t groups_of(const std::string& name, const ModelConfig& mixture) {
  return mixture.swiglu && name.ends_with(".up.weight") ? 2 : 1;
}

// The boxes of one expert, whose rows of A are those of `box` and in `data`.
void add_expert(std::vector<NamedTensor>& boxes, const ShardSpec& box, Tensor data, int64_t groups) {
  const int64_t rows = box.global[1] / groups, columns = box.global[2];
  const int64_t first = box.local.offset[1], end = first + box.local.extent[1];
  const int64_t column = box.local.offset[2], width = box.local.extent[2];
  const Tensor by_row = data.reshape({end - first, width});
  ShardSpec part = box;
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t from = std::max(first, group * rows), to = std::min(end, (group + 1) * rows);
    if (from >= to) continue;
    if (groups == 1) {
      part.global = {rows, columns};
      part.local = {{from, column}, {to - from, width}};
    } else {
      part.global = {groups, rows, columns};
      part.local = {{group, from - group * rows, column}, {1, to - from, width}};
    }
    boxes.push_back({part, by_row.rows(from - first, to - first).reshape(part.local.extent)});
  }
}

}  // namespace

std::vector<NamedTensor> wanted_of_dense(std::span<const NamedTensor> wanted, const ModelConfig& mixture) {
  std::vector<NamedTensor> boxes;
  for (const NamedTensor& tensor : wanted) {
    const std::string& name = tensor.spec.name;
    if (name.find(kRouter) != std::string::npos) continue;
    const size_t experts = name.find(kExperts);
    if (experts == std::string::npos) {
      boxes.push_back(tensor);
      continue;
    }
    ShardSpec copied = tensor.spec;
    copied.name.replace(experts, kExperts.size(), kNetwork);
    for (int64_t expert = 0; expert < copied.local.extent[0]; ++expert)
      add_expert(boxes, copied, tensor.data.rows(expert, expert + 1), groups_of(name, mixture));
  }
  return boxes;
}

}  // namespace trifold
