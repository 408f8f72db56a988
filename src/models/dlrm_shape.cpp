#include "models/dlrm_shape.h"

#include <algorithm>
#include <iterator>

#include "nn/bag_attention.h"

namespace trifold {

namespace {

// Multiplications of a chain of products for one sample.
double products_of(const std::vector<int64_t>& widths) {
  double products = 0;
  for (size_t i = 1; i < widths.size(); ++i)
    products += static_cast<double>(widths[i - 1]) * static_cast<double>(widths[i]);
  return products;
}

}  // namespace

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

// The gradient of the dense numbers is not needed.
BlockFlops bottom_flops(const DlrmShape& shape) {
  const double mlp = products_of(mlp_widths(shape.dense, shape.bottom));
  const double linear = shape.wide ? static_cast<double>(shape.dense * shape.logits()) : 0;
  return {2 * (mlp + linear), 2 * (mlp - static_cast<double>(shape.dense * shape.bottom[0])),
          2 * (mlp + linear)};
}

// Both operands of a dot interaction have gradients, and a cross network has weights.
BlockFlops top_flops(const DlrmShape& shape) {
  double weights = shape.labels.empty() ? products_of(mlp_widths(shape.interaction_width(), shape.top))
                                        : towers_of(shape).products();
  double pairs = 0;
  for (const AttendedBag& bag : shape.attended)
    weights += BagAttention::products(shape.width, shape.places[static_cast<size_t>(bag.column)].bags,
                                      shape.attention);
  if (shape.interaction == InteractionKind::Cross)
    weights += 2.0 * shape.cross_layers * static_cast<double>(shape.side_by_side()) *
               static_cast<double>(shape.cross_rank);
  if (shape.interaction == InteractionKind::Dot || shape.interaction == InteractionKind::Fm)
    pairs = static_cast<double>(shape.vectors() * shape.side_by_side());
  return {2 * (weights + pairs), 2 * (weights + 2 * pairs), 2 * weights};
}

double train_flops(const Model& dlrm) {
  double flops = 0;
  for (const Block& block : dlrm.blocks)
    flops += block.parts.forward + block.parts.input + block.parts.weight;
  return flops;
}

}  // namespace trifold
