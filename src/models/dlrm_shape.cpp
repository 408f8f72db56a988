#include "models/dlrm_shape.h"

#include <algorithm>
#include <iterator>

namespace trifold {

int64_t DlrmShape::pairs() const {
  const int64_t n = vectors();
  return self ? n * (n + 1) / 2 : n * (n - 1) / 2;
}

int64_t DlrmShape::interaction_width() const {
  if (interaction != InteractionKind::Dot) return side_by_side();
  return (has_bottom() ? width : 0) + pairs();
}

int64_t DlrmShape::layers() const {
  const auto count = [](const std::vector<int64_t>& mlp) { return static_cast<int64_t>(mlp.size()); };
  const int64_t below = (has_bottom() ? count(bottom) : 0) +
                        (interaction == InteractionKind::Cross ? cross_layers : 0) +
                        std::ssize(attended) * count(attention);
  if (labels.empty()) return below + count(top);
  return below + std::max(1, experts) * (count(top) - 1) + logits() * count(tower);
}

std::vector<NormedLayer> DlrmShape::normed() const {
  std::vector<NormedLayer> layers;
  int64_t first = 0;
  const auto add = [&](const char* mlp, const std::vector<int64_t>& outputs) {
    for (size_t i = 0; i + 1 < outputs.size(); ++i) {
      layers.push_back({fmt::format("{}.{}.norm", mlp, i), first, outputs[i]});
      first += outputs[i];
    }
  };
  if (!batch_norm) return layers;
  if (has_bottom()) add("bottom", bottom);
  add("top", top);
  return layers;
}

std::optional<int64_t> first_norm(const DlrmShape& shape, std::string_view mlp) {
  for (const NormedLayer& layer : shape.normed())
    if (layer.name.starts_with(mlp)) return layer.first;
  return std::nullopt;
}

std::vector<int64_t> mlp_widths(int64_t in, const std::vector<int64_t>& rest) {
  std::vector<int64_t> all{in};
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

LabelTowersShape towers_of(const DlrmShape& shape) {
  LabelTowersShape towers;
  towers.in = shape.interaction_width();
  towers.labels = shape.labels;
  towers.shared.assign(shape.top.begin(), shape.top.end() - 1);
  towers.tower = shape.tower;
  towers.experts = shape.experts;
  towers.dropout = shape.dropout;
  return towers;
}

}  // namespace trifold
