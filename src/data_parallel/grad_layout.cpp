#include "data_parallel/grad_layout.h"

#include <algorithm>

#include "data_parallel/data_sums.h"
#include "data_parallel/unit_buffers.h"

namespace trifold {

int64_t GradLayout::take(int64_t elements) {
  elements_ += elements;
  return elements_ - elements;
}

GradLayout GradLayout::whole(const FlatLayout& layout, int micros) {
  GradLayout result(layout);
  for (size_t i = 0; i < result.units_.size(); ++i)
    if (!layout.units()[i].frozen) result.units_[i].begin = result.take(layout.units()[i].elements());
  const ParamList& params = layout.params();
  for (int i = 0; i < params.size(); ++i)
    if (params.local_tie({i}) && !params[{i}].frozen &&
        (micros > 1 || params[*params[{i}].tied_to].added_in_parts))
      result.apart_[static_cast<size_t>(i)] = result.take(params[{i}].shard.local.elements());
  return result;
}

GradLayout GradLayout::passing(const FlatLayout& layout, const std::vector<std::pair<int, int>>& together) {
  GradLayout result(layout);
  for (size_t i = 0; i < result.units_.size(); ++i) {
    const FlatLayout::Unit& unit = layout.units()[i];
    if (unit.frozen) continue;
    if (layout.tied_elsewhere(unit))
      result.units_[i].begin = result.take(unit.elements());
    else
      result.units_[i].slice_begin = result.take(unit.slice_elements());
  }
  result.add_buffers(layout, together);
  return result;
}

// For sums between groups, contributions are received in the slice's memory, whose parts may need padding.
void GradLayout::add_work(const FlatLayout& layout) {
  for (const FlatLayout::Unit& unit : layout.units()) {
    if (unit.frozen) continue;
    if (unit.groups > kGrain)
      bad_input(
          "gradients can be reduced in bf16 between at most {} groups of data-parallel ranks, but there are {}",
          kGrain, unit.groups);
    const int64_t in_group = DataSums::work_elements(unit.elements(), unit.slices);
    const int64_t of_groups = DataSums::work_elements(unit.slice_elements(), unit.groups);
    work_elements_ = std::max({work_elements_, in_group, of_groups});
  }
  work_begin_ = take((work_elements_ + 1) / 2);  // two elements fit into one of f32
}

void GradLayout::add_buffers(const FlatLayout& layout, const std::vector<std::pair<int, int>>& together) {
  std::vector<int64_t> sizes(units_.size(), 0);
  for (size_t i = 0; i < sizes.size(); ++i)
    if (units_[i].slice_begin >= 0) sizes[i] = layout.units()[i].elements();
  const UnitBuffers buffers = share_buffers(sizes, together);
  std::vector<int64_t> begins;
  for (const int64_t elements : buffers.elements) begins.push_back(take(elements));
  for (size_t i = 0; i < sizes.size(); ++i) {
    units_[i].buffer = buffers.of_unit[i];
    if (passes(static_cast<int>(i))) units_[i].begin = begins[static_cast<size_t>(units_[i].buffer)];
  }
  buffers_ = static_cast<int>(begins.size());
}

std::vector<Tensor> GradLayout::views(const FlatLayout& layout, Tensor flat) const {
  const ParamList& params = layout.params();
  std::vector<Tensor> views(static_cast<size_t>(params.size()));
  for (int i = 0; i < params.size(); ++i) {
    const ParamId id{i};
    if (!params.held(id) || params[id].frozen) continue;
    const Shape& shape = params[id].shard.local.extent;
    const int unit = layout.unit_of(id);
    const ParamId stored = params.stored(id) ? id : *params[id].tied_to;
    const int64_t at =
        apart(id) ? apart_[static_cast<size_t>(i)]
                  : begin(unit) + layout.offset(stored) - layout.units()[static_cast<size_t>(unit)].begin;
    views[static_cast<size_t>(i)] = flat.rows(at, at + shape.elements()).reshape(shape);
  }
  return views;
}

}  // namespace trifold
