#include "run/checks/overlap_check.h"

#include <bit>
#include <cstdint>
#include <cstring>

#include "ops/host_copy.h"

namespace trifold {

namespace {

bool same_bits(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

}  // namespace

void OneByOne::after(const Action& action) {
  StepWatch::after(action);
  for (Stream* stream : streams_) stream->synchronize();
}

OverlapCheck::OverlapCheck(const OpTable& ops, Stream& stream, const FlatLayout& layout,
                           const GradientBuffer& grads, const LossSums& loss)
    : ops_(ops), stream_(stream), layout_(layout), grads_(grads), loss_(loss) {
  for (const FlatLayout::Unit& unit : layout_.units())
    for (const FlatLayout::Segment& segment : grads.segments(unit)) {
      const HostCopy sums(ops, stream, grads.summed(segment));
      const auto* bytes = static_cast<const std::byte*>(sums.tensor().data);
      sums_.insert(sums_.end(), bytes, bytes + sums.tensor().bytes());
    }
}

void OverlapCheck::compare(const LossSums& loss, const std::string& step) const {
  const std::byte* before = sums_.data();
  for (size_t unit = 0; unit < layout_.units().size(); ++unit)
    for (const FlatLayout::Segment& segment : grads_.segments(layout_.units()[unit])) {
      const HostCopy copy(ops_, stream_, grads_.summed(segment));
      const Tensor& sums = copy.tensor();
      const auto* now = static_cast<const std::byte*>(sums.data);
      const size_t size = size_of(sums.dtype);
      for (int64_t i = 0; i < segment.count; ++i, before += size, now += size) {
        if (std::memcmp(before, now, size) == 0) continue;
        dispatch_float(sums.dtype, [&](auto value) {
          auto other = value;
          std::memcpy(&value, before, size);
          std::memcpy(&other, now, size);
          fail(
              "{}, computed once with overlap and once without: element {} of the gradient of {}, in unit {} "
              "of this rank's, is {} and {}: ranks or streams raced",
              step, segment.first + i, layout_.params()[segment.id].shard.name, unit,
              static_cast<double>(value), static_cast<double>(other));
        });
      }
    }
  check(same_bits(loss.loss, loss_.loss) && same_bits(loss.weight, loss_.weight),
        "{}, computed once with overlap and once without: the loss is {} and {}: ranks or streams raced",
        step, loss_.loss / loss_.weight, loss.loss / loss.weight);
}

}  // namespace trifold
