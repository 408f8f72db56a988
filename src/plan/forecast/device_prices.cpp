#include "plan/forecast/device_prices.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "mesh/mesh_sizes.h"
#include "plan/forecast/kernels.h"
#include "plan/forecast/network.h"

namespace trifold {

namespace {

constexpr double kSeparateKernels = 1.825;  // bytes of elementwise operations in separate kernels
constexpr double kBatchedRate = 0.55;       // rate of batched products of heads, relative to linear layers
constexpr double kBackwardWork = 2.5;  // fused attention's backward computes five products, its forward two

class DevicePrices final : public WorkPrices {
 public:
  DevicePrices(const Hardware& hardware, const Software& software, const RunSpec& run)
      : hardware_(hardware),
        software_(software),
        sizes_(mesh_sizes(run.mesh)),
        in_8bit_(run.products_in_8bit),
        in_blocks_(run.narrow_factors),
        drops_scores_(run.model.attention_dropout > 0),
        sequence_(static_cast<double>(run.model.seq_length)) {}

  double seconds(const Work& work) const override {
    switch (work.kind) {
      case Work::Kind::Movement:
        return movement(work);
      case Work::Kind::Product:
        return product(work);
      case Work::Kind::Attention:
        return attention(work);
      case Work::Kind::Collective:
        return collective(work);
      case Work::Kind::Wait:
        return 0;
    }
    return 0;
  }

  double exposed(const Work& work) const override {
    if (work.group != AxisSet{Axis::Tp}.bits()) return 1;
    if (work.stream != 0 && is_named(work, "all_gather")) return 0;  // inputs for weight gradients
    return 1 - software_.tensor_overlap;
  }
  double contention() const override { return hardware_.contention; }

 private:
  double pass(double bytes) const {
    return pass_seconds(hardware_, bytes * (software_.fused_elementwise ? 1 : kSeparateKernels));
  }

  double movement(const Work& work) const { return pass(work.bytes); }

  // In 8 bits only the products of linear layers are computed. Rows of experts are padded to tiles.
  double product(const Work& work) const {
    constexpr double kTileRows = 64;
    const auto padded = [&](double rows) { return std::ceil(rows / kTileRows) * kTileRows; };
    ProductShape shape{work.rows, work.columns, work.inner, work.batch};
    const bool weights = is_named(work, "expert_product_weight"), experts = is_named(work, "expert_product");
    if (weights)
      shape.inner = padded(shape.inner);
    else if (experts)
      shape.rows = padded(shape.rows);
    const auto element = static_cast<double>(size_of(work.dtype));
    const bool narrow = in_8bit_ && is_named(work, "affine");
    double seconds = !narrow      ? product_seconds(hardware_, shape, element)
                     : in_blocks_ ? product_in_blocks_seconds(hardware_, shape, work.rounded)
                                  : product_8bit_seconds(hardware_, shape);
    if (experts) seconds /= weights ? hardware_.expert_weights_share : hardware_.expert_share;
    // With scales of blocks the pass that turns a factor takes its sums.
    if (work.sums_rows && hardware_.bias_passes > 0 && !(narrow && in_blocks_))
      seconds +=
          pass_seconds(hardware_, hardware_.bias_passes * element * work.batch * work.rows * work.inner);
    if (!software_.accumulate_in_product &&
        (is_named(work, "affine_backward_weight") || is_named(work, "expert_product_weight")))
      seconds += pass_seconds(hardware_, 10 * work.batch * work.rows * work.columns);
    return seconds;
  }

  double attention(const Work& work) const {
    if (software_.attention == AttentionKernel::Unfused) return unfused(work);
    const double share =
        software_.attention == AttentionKernel::Flash ? hardware_.flash_share : hardware_.attention_share;
    // The rate of attention over the whole sample applies even if its keys arrive in steps.
    const double steps = sequence_ / work.columns;
    const double forward =
        imbalance(work) *
        fused_attention_seconds(hardware_,
                                {work.batch, work.rows / steps, sequence_, work.inner, work.visible}, share);
    return work.gradient ? kBackwardWork * forward / hardware_.attention_backward : forward;
  }

  // Under a causal mask the last of n contiguous slices of a sample has 2 - 1/n times the average scores.
  double imbalance(const Work& work) const {
    const bool uneven = work.causal && work.visible >= 0.5;  // windows are even
    return uneven && !software_.balanced_context ? 2 - 1.0 / sizes_[Axis::Cp] : 1;
  }

  double unfused(const Work& work) const {
    const auto element = static_cast<double>(size_of(work.dtype));
    const auto batched = [&](double m, double n, double k) {
      return product_seconds(hardware_, {m, n, k, work.batch}, element) / kBatchedRate;
    };
    const double rows = work.rows, columns = work.columns, width = work.inner;
    const double bytes_of_scores = work.batch * rows * columns * element / 2;
    const double dropout = drops_scores_ ? 5 : 0;
    if (!work.gradient)
      return batched(rows, columns, width) + batched(rows, width, columns) +
             pass((4 + dropout) * bytes_of_scores);
    return batched(rows, columns, width) + batched(columns, width, rows) + batched(rows, width, columns) +
           batched(columns, width, rows) + pass((6 + dropout) * bytes_of_scores);
  }

  double collective(const Work& work) const {
    const Ring ring = ring_over(hardware_, sizes_, AxisSet::of_bits(work.group));
    const double others = (ring.ranks - 1) / ring.ranks;
    // One step of a ring is the same share of a gather.
    if (work.hops == 1)
      return gather_seconds(hardware_, software_, ring, work.sent * ring.ranks) / (ring.ranks - 1);
    const double passes = std::max(1.0, std::round(work.hops / (ring.ranks - 1)));
    return passes * gather_seconds(hardware_, software_, ring, work.sent / passes / others);
  }

  const Hardware& hardware_;
  const Software& software_;
  MeshSizes sizes_;
  bool in_8bit_, in_blocks_;
  bool drops_scores_;
  double sequence_;
};

}  // namespace

FusedOps fused_ops(const Hardware& hardware, const Software& software, const RunSpec& run) {
  if (!is_device(hardware)) return FusedOps::None;
  return run.products_in_8bit || software.describes_memory() ? FusedOps::Rows : FusedOps::All;
}

std::unique_ptr<WorkPrices> device_prices(const Hardware& hardware, const Software& software,
                                          const RunSpec& run) {
  return std::make_unique<DevicePrices>(hardware, software, run);
}

}  // namespace trifold
