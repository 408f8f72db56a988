#include "train/start/upcycling.h"

#include <string_view>

namespace trifold {

namespace {

constexpr std::string_view kExperts = ".mlp.experts.", kRouter = ".mlp.router.", kNetwork = ".mlp.";

Shape without_first_dim(const Shape& shape) { return Shape(shape.extents().subspan(1)); }

}  // namespace

std::vector<NamedTensor> wanted_of_dense(std::span<const NamedTensor> wanted) {
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
    copied.global = without_first_dim(copied.global);
    copied.local = {without_first_dim(copied.local.offset), without_first_dim(copied.local.extent)};
    for (int64_t expert = 0; expert < tensor.data.dim(0); ++expert)
      boxes.push_back({copied, tensor.data.rows(expert, expert + 1).reshape(copied.local.extent)});
  }
  return boxes;
}

}  // namespace trifold
