// Rect: an axis-aligned box of a global tensor, and operations on boxes for sharding: intersection, the check of an
// exact cover, and the boxes that make up a flat range of a local block.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace trifold {

struct Rect {
  Shape offset;
  Shape extent;

  static Rect whole(const Shape& shape);
  int64_t elements() const { return extent.elements(); }
  bool operator==(const Rect&) const = default;
};

// "[0:4, 128:256]"
std::string to_string(const Rect& rect);

// The common part of two boxes of one tensor, if it is not empty.
std::optional<Rect> intersect(const Rect& a, const Rect& b);

// The boxes, in global coordinates and in memory order, of elements [begin, end) of the row-major block
// `local`; at most 2 * dims - 1 of them. A checkpoint stores a flat slice of a parameter as these boxes.
std::vector<Rect> rects_of_range(const Rect& local, int64_t begin, int64_t end);

// Throws an Error naming `name` and the offending boxes unless the boxes are inside `global` and contain every element
// exactly once.
void check_exact_cover(const std::string& name, const Shape& global, std::span<const Rect> rects);

// Copies the elements of `part` from the row-major block `from_rect` to the row-major block `to_rect`; both
// must contain `part`. The element size is in bytes.
void copy_rect(void* to, const Rect& to_rect, const void* from, const Rect& from_rect, const Rect& part,
               size_t element_size);

}  // namespace trifold
