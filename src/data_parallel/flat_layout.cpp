#include "data_parallel/flat_layout.h"

#include <algorithm>

namespace trifold {

namespace {

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

int64_t grains(const ParamList& params, ParamId id) {
  return round_up(params[id].shard.local.elements(), kGrain);
}

// Parameters of a block that own their values.
std::vector<ParamId> owned_by(const ParamList& params, int block) {
  std::vector<ParamId> ids;
  for (int i = 0; i < params.size(); ++i)
    if (params[{i}].block == block && !params[{i}].tied_to) ids.push_back({i});
  return ids;
}

}  // namespace

std::vector<int> unit_ends(const ParamList& params, const std::vector<int>& blocks, int64_t unit_elements) {
  std::vector<int> ends;
  int64_t elements = 0;
  for (size_t at = blocks.size(); at-- > 0;) {
    for (ParamId id : owned_by(params, blocks[at])) elements += grains(params, id);
    if (elements < unit_elements && at != 0) continue;
    ends.push_back(static_cast<int>(at));
    elements = 0;
  }
  return ends;
}

FlatLayout::FlatLayout(const ParamList& params, const std::vector<std::vector<int>>& stages,
                       int64_t unit_elements, int slices)
    : params_(params),
      slices_(slices),
      offsets_(static_cast<size_t>(params.size()), 0),
      unit_of_(static_cast<size_t>(params.size()), -1) {
  // Blocks are visited in the order of backward: later stages first.
  for (size_t stage = stages.size(); stage-- > 0;) {
    const std::vector<int>& blocks = stages[stage];
    const std::vector<int> ends = unit_ends(params, blocks, unit_elements);
    std::vector<ParamId> open;
    for (size_t at = blocks.size(); at-- > 0;) {
      for (ParamId id : owned_by(params, blocks[at])) open.push_back(id);
      if (std::find(ends.begin(), ends.end(), static_cast<int>(at)) == ends.end()) continue;
      add_unit(blocks[at], std::move(open));
      open.clear();
    }
  }
  for (int i = 0; i < params.size(); ++i) {
    if (!params[{i}].tied_to || !params.held({i})) continue;
    if (params.stored({i}))
      add_unit(kCopyOfTied, {{i}});
    else
      unit_of_[static_cast<size_t>(i)] = unit_of(*params[{i}].tied_to);
  }
  find_units_of_blocks();
}

int tensor_copies(const ParamList& params) {
  int copies = 1;
  for (const ParamSpec& spec : params.specs()) {
    const int own = std::max(1, spec.shard.tensor_copies);
    check(own == 1 || copies == 1 || own == copies, "{} ranks hold copies of {}, {} of another tensor", own,
          spec.shard.name, copies);
    copies = std::max(copies, own);
  }
  return copies;
}

// Gradients that are partial over the tensor axis lie together at the front, so that they are one collective;
// those that are partial over a part of it come next. Within each of the three, parameters that weights decay
// for stand before the others, so that an update goes over few runs of them.
void FlatLayout::add_unit(int lowest_block, std::vector<ParamId> ids) {
  const auto over_tensor = [&](ParamId id) { return params_[id].shard.partial.has(Axis::Tp); };
  const auto over_copies = [&](ParamId id) { return params_[id].shard.tensor_copies > 1; };
  const auto decays = [&](ParamId id) { return params_[id].decay; };
  const auto after_tensor = std::stable_partition(ids.begin(), ids.end(), over_tensor);
  const auto after_copies = std::stable_partition(after_tensor, ids.end(), over_copies);
  std::stable_partition(ids.begin(), after_tensor, decays);
  std::stable_partition(after_tensor, after_copies, decays);
  std::stable_partition(after_copies, ids.end(), decays);
  Unit unit;
  unit.lowest_block = lowest_block;
  unit.begin = unit.tensor_begin = unit.tensor_end = unit.copies_end = elements_;
  unit.shard_begin = elements_ / slices_;
  for (ParamId id : ids) {
    offsets_[static_cast<size_t>(id.index)] = elements_;
    unit_of_[static_cast<size_t>(id.index)] = static_cast<int>(units_.size());
    elements_ += grains(params_, id);
    if (over_tensor(id)) unit.tensor_end = elements_;
    if (over_tensor(id) || over_copies(id)) unit.copies_end = elements_;
  }
  elements_ = unit.begin + round_up(elements_ - unit.begin, kGrain * slices_);
  unit.end = elements_;
  unit.params = std::move(ids);
  units_.push_back(std::move(unit));
}

int FlatLayout::unit_ending_at(int block) const {
  for (size_t i = 0; i < units_.size(); ++i)
    if (units_[i].lowest_block == block) return static_cast<int>(i);
  fail("block {} does not complete a unit of parameters", block);
}

void FlatLayout::find_units_of_blocks() {
  for (int i = 0; i < params_.size(); ++i) {
    const auto block = static_cast<size_t>(params_[{i}].block);
    if (block >= units_of_block_.size()) units_of_block_.resize(block + 1);
    std::vector<int>& units = units_of_block_[block];
    const int unit = unit_of({i});
    if (unit >= 0 && std::find(units.begin(), units.end(), unit) == units.end()) units.push_back(unit);
  }
}

bool FlatLayout::tied_elsewhere(const Unit& unit) const {
  if (unit.lowest_block == kCopyOfTied) return true;
  for (int i = 0; i < params_.size(); ++i) {
    const std::optional<ParamId>& first = params_[{i}].tied_to;
    if (!first || params_.held({i})) continue;
    if (std::find(unit.params.begin(), unit.params.end(), *first) != unit.params.end()) return true;
  }
  return false;
}

std::vector<FlatLayout::Segment> FlatLayout::segments(const Unit& unit, std::optional<int> slice) const {
  const int64_t begin = slice ? slice_begin(unit, *slice) : unit.begin;
  const int64_t end = slice ? slice_begin(unit, *slice + 1) : unit.end;
  std::vector<Segment> segments;
  for (ParamId id : unit.params) {
    const int64_t from = std::max(begin, offset(id));
    const int64_t to = std::min(end, offset(id) + params_[id].shard.local.elements());
    if (from < to)
      segments.push_back({id, from - offset(id), to - from, from, unit.shard_begin + from - begin});
  }
  return segments;
}

std::vector<FlatLayout::Segment> FlatLayout::joined(std::span<const Segment> segments,
                                                    FunctionRef<bool(ParamId, ParamId)> alike) {
  std::vector<Segment> runs;
  for (const Segment& segment : segments) {
    if (!runs.empty()) {
      Segment& last = runs.back();
      if (round_up(last.flat + last.count, kGrain) == segment.flat && alike(last.id, segment.id)) {
        last.count = segment.flat + segment.count - last.flat;
        continue;
      }
    }
    runs.push_back(segment);
  }
  return runs;
}

std::vector<Tensor> FlatLayout::views(Tensor flat) const {
  std::vector<Tensor> views;
  for (int i = 0; i < params_.size(); ++i) {
    const ParamId id{i};
    if (!params_.held(id)) {
      views.emplace_back();
      continue;
    }
    const Shape& shape = params_[id].shard.local.extent;
    const int64_t begin = offset(params_.stored(id) ? id : *params_[id].tied_to);
    views.push_back(flat.rows(begin, begin + shape.elements()).reshape(shape));
  }
  return views;
}

}  // namespace trifold
