#include "nn/param.h"

#include <algorithm>

#include "core/random.h"
#include "core/thread_pool.h"

namespace trifold {

ParamId ParamList::add(ParamSpec spec) {
  check(spec.shard.partial.without(spec.shard.replicated).empty(),
        "the gradient of {} would be summed over ranks that hold other values", spec.shard.name);
  const auto [first, is_new] = first_of_name_.try_emplace(spec.shard.name, size());
  for (int i = is_new ? size() : first->second; i < size(); ++i) {
    const ParamSpec& other = specs_[static_cast<size_t>(i)];
    if (other.shard.name != spec.shard.name) continue;
    check(spec.shard.parts > 1 && other.shard.parts == spec.shard.parts &&
              other.shard.global == spec.shard.global && !intersect(other.shard.local, spec.shard.local),
          "two parameters are named '{}'", spec.shard.name);
  }
  specs_.push_back(std::move(spec));
  return {size() - 1};
}

ParamId ParamList::find(const std::string& name) const {
  const auto first = first_of_name_.find(name);
  if (first == first_of_name_.end()) fail("there is no parameter named '{}'", name);
  return {first->second};
}

void ParamList::pad_after(const std::string& name, int64_t rows) {
  find(name);
  for (ParamSpec& spec : specs_)
    if (spec.shard.name == name) spec.rows = rows;
}

std::vector<ParamId> ParamList::by_name() const {
  std::vector<ParamId> ids;
  for (int i = 0; i < size(); ++i)
    if (!specs_[static_cast<size_t>(i)].tied_to) ids.push_back({i});
  std::stable_sort(ids.begin(), ids.end(),
                   [this](ParamId a, ParamId b) { return (*this)[a].shard.name < (*this)[b].shard.name; });
  return ids;
}

void ParamList::hold_blocks(std::span<const int> blocks) {
  held_blocks_.clear();
  for (int block : blocks) {
    const auto index = static_cast<size_t>(block);
    if (index >= held_blocks_.size()) held_blocks_.resize(index + 1, false);
    held_blocks_[index] = true;
  }
}

bool ParamList::held(ParamId id) const {
  const auto block = static_cast<size_t>((*this)[id].block);
  return held_blocks_.empty() || (block < held_blocks_.size() && held_blocks_[block]);
}

bool ParamList::stored(ParamId id) const {
  const std::optional<ParamId>& first = (*this)[id].tied_to;
  return held(id) && !(first && held(*first));
}

int64_t ParamList::stored_elements() const {
  int64_t count = 0;
  for (int i = 0; i < size(); ++i)
    if (stored({i})) count += specs_[static_cast<size_t>(i)].shard.local.elements();
  return count;
}

int64_t ParamList::global_elements() const {
  int64_t count = 0;
  for (const ParamSpec& spec : specs_)
    if (!spec.tied_to) count += spec.shard.elements_of_part();
  return count;
}

namespace {

// Calls visit(global element index) for every element of the box, in the box's memory order.
template <class Visit>
void for_each_global_element(const Shape& global, const Rect& box, Visit&& visit) {
  const int rank = global.rank();
  Shape at = box.offset;
  const int64_t row = rank == 0 ? 1 : box.extent[rank - 1];
  for (int64_t done = 0; done < box.elements(); done += row) {
    int64_t first = 0;
    for (int dim = 0; dim < rank; ++dim) first = first * global[dim] + at[dim];
    for (int64_t i = 0; i < row; ++i) visit(first + i);
    for (int dim = rank - 2; dim >= 0; --dim) {
      if (++at[dim] < box.offset[dim] + box.extent[dim]) break;
      at[dim] = box.offset[dim];
    }
  }
}

// Calls draw(part, index of its first element) for parts of whole rows (first dim) that cover `box`.
void draw_in_parts(const Rect& box, ThreadPool& pool,
                   FunctionRef<void(const Rect& part, int64_t first)> draw) {
  constexpr int64_t kElements = 4096;  // per thread, at least
  if (box.extent.rank() == 0 || box.elements() == 0) return draw(box, 0);
  const int64_t row = box.elements() / box.extent[0];
  pool.parallel_for(box.extent[0], (kElements + row - 1) / row, [&](int64_t begin, int64_t end) {
    Rect part = box;
    part.offset[0] += begin;
    part.extent[0] = end - begin;
    draw(part, begin * row);
  });
}

double random_value(const Init& init, PhiloxKey key, int64_t element) {
  const auto index = static_cast<uint64_t>(element);
  if (init.kind == Init::Kind::Normal) return init.std * philox_normal(key, index);
  return init.std * ((philox_word(key, index) + 0.5) / 2147483648.0 - 1);  // 2^31
}

}  // namespace

void initialise(const ParamSpec& spec, Tensor weight, uint64_t seed, ThreadPool& pool) {
  check(weight.shape == spec.shard.local.extent, "{} is {}, its box is {}", spec.shard.name,
        to_string(weight.shape), to_string(spec.shard.local.extent));
  const PhiloxKey key = philox_key(seed, spec.shard.name);
  const int64_t elements = spec.shard.global.elements();
  // The first element of padding.
  const int64_t padding = spec.rows ? elements / spec.shard.global[0] * *spec.rows : elements;
  if (spec.init.kind == Init::Kind::Given)
    return spec.init.given->read(spec.shard.name, spec.shard.local, weight);
  const bool all_equal = spec.init.kind == Init::Kind::Normal && spec.init.std == 0;
  dispatch_float(weight.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = weight.as<T>();
    switch (all_equal ? Init::Kind::Zeros : spec.init.kind) {
      case Init::Kind::Given:
      case Init::Kind::Zeros:
        std::fill_n(out, weight.elements(), T(0));
        break;
      case Init::Kind::Ones:
        std::fill_n(out, weight.elements(), T(1));
        break;
      case Init::Kind::Normal:
      case Init::Kind::Uniform:
        draw_in_parts(spec.shard.local, pool, [&](const Rect& part, int64_t first) {
          T* next = out + first;
          for_each_global_element(spec.shard.global, part, [&](int64_t element) {
            *next++ = element < padding ? static_cast<T>(random_value(spec.init, key, element)) : T(0);
          });
        });
        break;
    }
  });
}

}  // namespace trifold
