#include "mesh/rect.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace trifold {

namespace {

int64_t begin_of(const Rect& rect, int dim) { return rect.offset[dim]; }
int64_t end_of(const Rect& rect, int dim) { return rect.offset[dim] + rect.extent[dim]; }

// Avoids sums of begin and extent, so that offsets read from a damaged file cannot overflow.
bool is_inside(const Rect& part, const Shape& global) {
  if (part.offset.rank() != global.rank() || part.extent.rank() != global.rank()) return false;
  for (int dim = 0; dim < global.rank(); ++dim) {
    if (part.offset[dim] < 0 || part.extent[dim] < 0 || part.extent[dim] > global[dim]) return false;
    if (part.offset[dim] > global[dim] - part.extent[dim]) return false;
  }
  return true;
}

bool contains(const Rect& outer, const Rect& part) {
  if (part.offset.rank() != outer.offset.rank()) return false;
  for (int dim = 0; dim < part.offset.rank(); ++dim)
    if (begin_of(part, dim) < begin_of(outer, dim) || end_of(part, dim) > end_of(outer, dim)) return false;
  return true;
}

// Finds two overlapping boxes, if there are any, without comparing all pairs: a plane divides the boxes
// (boxes that straddle it go to both sides), recursively until few are left. If boxes are disjoint, some dim
// has few straddlers, so the work is about n log n; if no plane helps, the boxes are swept along one dim.
class OverlapSearch {
 public:
  using Pair = std::pair<size_t, size_t>;

  OverlapSearch(std::span<const Rect> rects, int dims) : rects_(rects), dims_(dims) {}

  std::optional<Pair> find(std::vector<size_t> members) const {
    if (members.size() <= kFew) return sweep(members);
    const std::optional<Plane> plane = best_plane(members);
    if (!plane) return sweep(members);
    std::vector<size_t> low;
    std::vector<size_t> high;
    for (size_t i : members) {
      if (begin_of(rects_[i], plane->dim) < plane->position) low.push_back(i);
      if (end_of(rects_[i], plane->dim) > plane->position) high.push_back(i);
    }
    members = {};  // freed before the recursion
    if (const auto pair = find(std::move(low))) return pair;
    return find(std::move(high));
  }

 private:
  static constexpr size_t kFew = 24;

  struct Plane {
    int dim;
    int64_t position;
  };

  // For each dim, the plane through the median begin; of these, the one whose larger side is smallest,
  // provided that side has at most three quarters of the boxes.
  std::optional<Plane> best_plane(const std::vector<size_t>& members) const {
    std::optional<Plane> best;
    size_t best_size = members.size() * 3 / 4;
    std::vector<int64_t> begins(members.size());
    for (int dim = 0; dim < dims_; ++dim) {
      std::transform(members.begin(), members.end(), begins.begin(),
                     [&](size_t i) { return begin_of(rects_[i], dim); });
      const auto middle = begins.begin() + static_cast<std::ptrdiff_t>(begins.size() / 2);
      std::nth_element(begins.begin(), middle, begins.end());
      const int64_t position = *middle;
      const auto low = std::count_if(members.begin(), members.end(),
                                     [&](size_t i) { return begin_of(rects_[i], dim) < position; });
      const auto high = std::count_if(members.begin(), members.end(),
                                      [&](size_t i) { return end_of(rects_[i], dim) > position; });
      const auto size = static_cast<size_t>(std::max(low, high));
      if (size > best_size) continue;
      best_size = size;
      best = Plane{dim, position};
    }
    return best;
  }

  // Sorted by their begins along the first dim, each box can only overlap boxes that begin before it ends.
  std::optional<Pair> sweep(std::vector<size_t>& members) const {
    if (dims_ == 0) return members.size() < 2 ? std::nullopt : std::optional<Pair>({members[0], members[1]});
    std::sort(members.begin(), members.end(),
              [&](size_t a, size_t b) { return begin_of(rects_[a], 0) < begin_of(rects_[b], 0); });
    for (size_t a = 0; a < members.size(); ++a)
      for (size_t b = a + 1; b < members.size(); ++b) {
        if (begin_of(rects_[members[b]], 0) >= end_of(rects_[members[a]], 0)) break;
        if (intersect(rects_[members[a]], rects_[members[b]])) return Pair{members[a], members[b]};
      }
    return std::nullopt;
  }

  std::span<const Rect> rects_;
  int dims_;
};

// Grows an empty box along every dim until it touches a box or the end of the tensor.
Rect grow_hole(Rect hole, const Shape& global, std::span<const Rect> rects) {
  for (int dim = 0; dim < global.rank(); ++dim) {
    Rect beam = hole;
    beam.offset[dim] = 0;
    beam.extent[dim] = global[dim];
    int64_t low = 0;
    int64_t high = global[dim];
    for (const Rect& rect : rects) {
      if (!intersect(rect, beam)) continue;
      if (end_of(rect, dim) <= hole.offset[dim]) low = std::max(low, end_of(rect, dim));
      if (begin_of(rect, dim) >= end_of(hole, dim)) high = std::min(high, begin_of(rect, dim));
    }
    hole.offset[dim] = low;
    hole.extent[dim] = high - low;
  }
  return hole;
}

// A box that no member of `rects` touches; they are disjoint and known to leave a hole. The box is halved
// along its longest dim; a half that is not full contains a hole, so about log2(elements) halvings find one.
Rect find_hole(const Shape& global, std::span<const Rect> rects) {
  const auto covered = [&](const Rect& box) {
    int64_t sum = 0;
    for (const Rect& rect : rects)
      if (const auto part = intersect(rect, box)) sum += part->elements();
    return sum;
  };
  Rect box = Rect::whole(global);
  while (covered(box) > 0) {
    int longest = 0;
    for (int dim = 1; dim < global.rank(); ++dim)
      if (box.extent[dim] > box.extent[longest]) longest = dim;
    Rect low = box;
    low.extent[longest] /= 2;
    Rect high = box;
    high.offset[longest] += low.extent[longest];
    high.extent[longest] -= low.extent[longest];
    box = covered(low) < low.elements() ? low : high;
  }
  return grow_hole(box, global, rects);
}

// Appends the boxes of the range [begin, end) of the sub-block whose dims before `dim` are fixed in `at`.
void append_range(std::vector<Rect>& out, const Rect& local, int dim, Rect at, int64_t begin, int64_t end) {
  if (begin == end) return;
  if (dim == local.extent.rank()) return out.push_back(at);
  int64_t stride = 1;  // elements per index of this dim
  for (int d = dim + 1; d < local.extent.rank(); ++d) stride *= local.extent[d];

  const auto index_only = [&](int64_t index, int64_t from, int64_t to) {
    at.offset[dim] = local.offset[dim] + index;
    at.extent[dim] = 1;
    append_range(out, local, dim + 1, at, from - index * stride, to - index * stride);
  };
  const int64_t first_full = (begin + stride - 1) / stride;
  const int64_t last_full = end / stride;
  if (last_full < first_full) return index_only(last_full, begin, end);  // both ends within one index
  if (begin < first_full * stride) index_only(first_full - 1, begin, first_full * stride);
  if (first_full < last_full) {
    Rect full = at;
    for (int d = dim; d < local.extent.rank(); ++d) {
      full.offset[d] = local.offset[d];
      full.extent[d] = local.extent[d];
    }
    full.offset[dim] += first_full;
    full.extent[dim] = last_full - first_full;
    out.push_back(full);
  }
  if (last_full * stride < end) index_only(last_full, last_full * stride, end);
}

}  // namespace

Rect Rect::whole(const Shape& shape) {
  Rect rect{shape, shape};
  for (int dim = 0; dim < shape.rank(); ++dim) rect.offset[dim] = 0;
  return rect;
}

std::string to_string(const Rect& rect) {
  std::string text = "[";
  for (int dim = 0; dim < rect.offset.rank(); ++dim) {
    int64_t end = 0;  // a box from a damaged file may end beyond INT64_MAX
    if (__builtin_add_overflow(rect.offset[dim], rect.extent[dim], &end)) end = INT64_MAX;
    text += fmt::format("{}{}:{}", dim == 0 ? "" : ", ", rect.offset[dim], end);
  }
  return text + "]";
}

std::optional<Rect> intersect(const Rect& a, const Rect& b) {
  if (a.offset.rank() != b.offset.rank()) [[unlikely]]  // not `check`: no message to build each time
    fail("boxes {} and {} are not of one tensor", to_string(a), to_string(b));
  Rect part = a;
  for (int dim = 0; dim < a.offset.rank(); ++dim) {
    const int64_t begin = std::max(begin_of(a, dim), begin_of(b, dim));
    const int64_t end = std::min(end_of(a, dim), end_of(b, dim));
    if (begin >= end) return std::nullopt;
    part.offset[dim] = begin;
    part.extent[dim] = end - begin;
  }
  return part;
}

std::vector<Rect> rects_of_range(const Rect& local, int64_t begin, int64_t end) {
  check(0 <= begin && begin <= end && end <= local.elements(), "elements [{}, {}) are not in the block {}",
        begin, end, to_string(local));
  std::vector<Rect> out;
  append_range(out, local, 0, local, begin, end);
  return out;
}

void check_exact_cover(const std::string& name, const Shape& global, std::span<const Rect> rects) {
  std::vector<size_t> members;  // boxes that are not empty
  for (size_t i = 0; i < rects.size(); ++i) {
    if (!is_inside(rects[i], global))
      fail("tensor {}: box {} is outside its shape {}", name, to_string(rects[i]), to_string(global));
    if (rects[i].elements() > 0) members.push_back(i);
  }
  if (const auto pair = OverlapSearch(rects, global.rank()).find(members)) {
    const Rect& a = rects[pair->first];
    const Rect& b = rects[pair->second];
    fail("tensor {}: boxes {} and {} overlap in {}; every element must be held exactly once", name,
         to_string(a), to_string(b), to_string(*intersect(a, b)));
  }
  const int64_t held = std::accumulate(members.begin(), members.end(), int64_t{0},
                                       [&](int64_t sum, size_t i) { return sum + rects[i].elements(); });
  if (held == global.elements()) return;
  fail("tensor {}: no box holds {}; the {} boxes given hold {} of {} elements of {}", name,
       to_string(find_hole(global, rects)), rects.size(), held, global.elements(), to_string(global));
}

void copy_rect(void* to, const Rect& to_rect, const void* from, const Rect& from_rect, const Rect& part,
               size_t element_size) {
  if (!contains(to_rect, part) || !contains(from_rect, part))
    fail("box {} is not in both {} and {}", to_string(part), to_string(to_rect), to_string(from_rect));
  if (part.elements() == 0) return;
  // Adjacent rows form one run if all three boxes have the same extent in every dim from `outer` on.
  int outer = part.extent.rank();
  auto run = static_cast<int64_t>(element_size);
  while (outer > 0) {
    --outer;
    run *= part.extent[outer];
    if (part.extent[outer] != to_rect.extent[outer] || part.extent[outer] != from_rect.extent[outer]) break;
  }
  const auto flat = [&](const Rect& block, const Shape& at) {
    int64_t index = 0;
    for (int dim = 0; dim < at.rank(); ++dim) index = index * block.extent[dim] + at[dim] - block.offset[dim];
    return static_cast<size_t>(index) * element_size;
  };
  Shape at = part.offset;  // first element of the current run, in global coordinates
  while (true) {
    std::memcpy(static_cast<std::byte*>(to) + flat(to_rect, at),
                static_cast<const std::byte*>(from) + flat(from_rect, at), static_cast<size_t>(run));
    int dim = outer - 1;  // counts through the dims before `outer`, fastest last
    while (dim >= 0 && ++at[dim] == end_of(part, dim)) {
      at[dim] = part.offset[dim];
      --dim;
    }
    if (dim < 0) return;
  }
}

}  // namespace trifold
