#include "data_parallel/flat_layout.h"

#include <algorithm>
#include <tuple>

namespace trifold {

namespace {

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

int64_t grains(const ParamList& params, ParamId id) { return round_up(params[id].stored_length(), kGrain); }

// The parameters of a block without tied uses.
std::vector<ParamId> owned_by(const ParamList& params, int block) {
  std::vector<ParamId> ids;
  for (int i = 0; i < params.size(); ++i)
    if (params[{i}].block == block && !params[{i}].tied_to) ids.push_back({i});
  return ids;
}

}  // namespace

int slices_of(AxisSet data, const MeshSizes& sizes, int group) {
  const int groups = sizes.ranks(kDataAxes) / group;
  const int ranks = sizes.ranks(data);
  return ranks % groups == 0 ? ranks / groups : 1;
}

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

FlatLayout::FlatLayout(ParamList list, const std::vector<std::vector<int>>& stages, int64_t unit_elements,
                       const MeshSizes& sizes, int group)
    : params_(std::move(list)),
      sizes_(sizes),
      group_(group),
      offsets_(static_cast<size_t>(params_.size()), 0),
      unit_of_(static_cast<size_t>(params_.size()), -1) {
  const ParamList& params = params_;
  // Blocks are visited in the order of backward: later stages first.
  for (size_t stage = stages.size(); stage-- > 0;) {
    const std::vector<int>& blocks = stages[stage];
    const std::vector<int> ends = unit_ends(params, blocks, unit_elements);
    std::vector<ParamId> open;
    for (size_t at = blocks.size(); at-- > 0;) {
      for (ParamId id : owned_by(params, blocks[at])) open.push_back(id);
      if (std::find(ends.begin(), ends.end(), static_cast<int>(at)) == ends.end()) continue;
      add_units(blocks[at], open);
      open.clear();
    }
  }
  for (int i = 0; i < params.size(); ++i) {
    if (!params[{i}].tied_to || !params.held({i})) continue;
    if (params.stored({i}))
      add_units(kCopyOfTied, {{i}});
    else
      unit_of_[static_cast<size_t>(i)] = unit_of(*params[{i}].tied_to);
  }
  place_units(false, false);
  trained_elements_ = elements_;
  trained_shard_elements_ = shard_elements_;
  place_units(true, false);
  plain_elements_ = elements_;
  plain_shard_elements_ = shard_elements_;
  place_units(true, true);
  find_units_of_blocks();
}

// Parameters summed over different data axes are sharded over different ranks, so they get separate units; so do frozen
// ones, and quantized ones.
void FlatLayout::add_units(int lowest_block, const std::vector<ParamId>& ids) {
  struct Members {
    Group group;
    std::vector<ParamId> ids;
  };
  std::vector<Members> all;
  for (ParamId id : ids) {
    const Group group{params_[id].shard.data_axes(), params_[id].frozen, params_[id].quantized.has_value()};
    auto found =
        std::find_if(all.begin(), all.end(), [&](const Members& each) { return each.group == group; });
    if (found == all.end()) found = all.insert(all.end(), Members{group, {}});
    found->ids.push_back(id);
  }
  if (all.empty()) all.push_back({{kDataAxes}, {}});
  for (Members& members : all) add_unit(lowest_block, members.group, std::move(members.ids));
}

// Gradients that are first summed over other axes are at the front. Gradients with the same set of ranks are one part,
// which needs one collective; larger sets come first. Within a part, parameters with weight decay precede the others,
// so that an update has few segments.
void FlatLayout::add_unit(int lowest_block, const Group& group, std::vector<ParamId> ids) {
  const auto order = [&](ParamId id) {
    const RankSet ranks = params_[id].shard.summed_first();
    return std::tuple(ranks.axes.empty(), ranks.tensor_copies != 0, ranks.axes, ranks.tensor_copies,
                      !params_[id].decay);
  };
  std::stable_sort(ids.begin(), ids.end(), [&](ParamId a, ParamId b) { return order(a) < order(b); });
  Unit unit;
  unit.lowest_block = lowest_block;
  unit.data = group.data;
  unit.slices = slices_of(group.data, sizes_, group_);
  unit.groups = sizes_.ranks(group.data) / unit.slices;
  unit.frozen = group.frozen;
  unit.quantized = group.quantized;
  for (ParamId id : ids) unit_of_[static_cast<size_t>(id.index)] = static_cast<int>(units_.size());
  unit.params = std::move(ids);
  units_.push_back(std::move(unit));
}

// Gives the trained units, the frozen ones, or the quantized ones among these, their places in the flat buffers.
void FlatLayout::place_units(bool frozen, bool quantized) {
  for (Unit& unit : units_) {
    if (unit.frozen != frozen || unit.quantized != quantized) continue;
    unit.begin = elements_;
    unit.shard_begin = shard_elements_;
    for (ParamId id : unit.params) {
      offsets_[static_cast<size_t>(id.index)] = elements_;
      const int64_t begin = elements_;
      elements_ += grains(params_, id);
      const RankSet ranks = params_[id].shard.summed_first();
      if (ranks.axes.empty() || frozen) continue;
      if (unit.first.empty() || unit.first.back().ranks != ranks) unit.first.push_back({ranks, begin, begin});
      unit.first.back().end = elements_;
    }
    elements_ = unit.begin + round_up(elements_ - unit.begin, kGrain * unit.slices);
    unit.end = elements_;
    shard_elements_ += unit.slice_elements();
  }
}

size_t FlatLayout::largest_slice_bytes(DType dtype) const {
  size_t most = 0;
  for (const Unit& unit : units_)
    most = std::max(most, unit_bytes(unit, dtype) / static_cast<size_t>(unit.slices));
  return most;
}

std::pair<int, int> FlatLayout::units_ending_at(int block) const {
  const auto ends = [&](const Unit& unit) { return unit.lowest_block == block; };
  const auto first = std::find_if(units_.begin(), units_.end(), ends);
  check(first != units_.end(), "block {} does not complete a unit of parameters", block);
  const auto end = std::find_if_not(first, units_.end(), ends);
  return {static_cast<int>(first - units_.begin()), static_cast<int>(end - units_.begin())};
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
    const int64_t to = std::min(end, offset(id) + params_[id].stored_length());
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

std::vector<Tensor> FlatLayout::views(Tensor trained, Tensor frozen, Tensor quantized) const {
  std::vector<Tensor> views;
  for (int i = 0; i < params_.size(); ++i) {
    const ParamId id{i};
    const ParamSpec& spec = params_[id];
    if (!params_.held(id)) {
      views.emplace_back();
      continue;
    }
    const Tensor& flat = spec.quantized ? quantized : spec.frozen ? frozen : trained;
    const int64_t before = spec.quantized ? plain_elements_ : spec.frozen ? trained_elements_ : 0;
    const int64_t begin = offset(params_.stored(id) ? id : *spec.tied_to) - before;
    const Tensor values = flat.rows(begin, begin + spec.stored_length());
    views.push_back(spec.quantized ? values : values.reshape(spec.shard.local.extent));
  }
  return views;
}

}  // namespace trifold
