// Views, slices and joins. The graph gives the shapes of results; each is checked against the input, since a file may
// say anything.
#include <algorithm>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "graph/host/rows.h"

namespace trifold::graph {

namespace {

// The same elements in another shape: view, reshape, flatten, unsqueeze, squeeze.
Array reshaped(const Call& call) {
  const Array& from = call.tensor(0);
  const Dims dims = call.dims();
  const int64_t before = from.elements();
  Array to = make_array(from.type, dims);
  if (to.elements() != before)
    bad_input("an array of shape {} cannot become one of shape {}", dims_text(from.dims), dims_text(dims));
  to.bytes = from.bytes;
  return to;
}

Array transposed(const Array& from, int64_t first, int64_t second) {
  std::vector<size_t> order(from.dims.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (order.empty()) return from;
  std::swap(order[wrapped_dim(first, order.size())], order[wrapped_dim(second, order.size())]);
  return permuted(from, order);
}

Array transpose(const Call& call) { return transposed(call.tensor(0), call.integer(1), call.integer(2)); }

Array transpose_matrix(const Call& call) {
  const Array& from = call.tensor(0);
  if (from.dims.size() > 2) bad_input("t needs a matrix, not an array of shape {}", dims_text(from.dims));
  return from.dims.size() < 2 ? from : transposed(from, 0, 1);
}

Array permute(const Call& call) {
  const Array& from = call.tensor(0);
  std::vector<size_t> order;
  for (const int64_t dim : call.integers(1)) order.push_back(wrapped_dim(dim, from.dims.size()));
  return permuted(from, order);
}

Array expand(const Call& call) { return broadcast_to(call.tensor(0), call.dims()); }

Array repeat(const Call& call) {
  const Array& from = call.tensor(0);
  const Dims repeats = call.integers(1), own = row_major_strides(from.dims);
  if (repeats.size() < from.dims.size())
    bad_input("{} repeats are given for an array of {} dims", repeats.size(), from.dims.size());
  // Dim d of the result is a pair of dims: the repeats, and the extent.
  const size_t added = repeats.size() - from.dims.size();
  Dims dims, strides, whole;
  for (size_t d = 0; d < repeats.size(); ++d) {
    const int64_t extent = d < added ? 1 : from.dims[d - added];
    const int64_t stride = d < added ? 0 : own[d - added];
    dims.insert(dims.end(), {repeats[d], extent});
    strides.insert(strides.end(), {0, stride});
    whole.push_back(0);
    if (__builtin_mul_overflow(repeats[d], extent, &whole.back()))
      bad_input("{} repeats of {} are too many", repeats[d], extent);
  }
  Array to = gathered(from, dims, 0, strides);
  to.dims = whole;
  return to;
}

// The indices of a dim that slice.Tensor and slice_scatter mean, given from argument `first` on: dim, start, end, step.
struct Slice {
  size_t dim = 0;
  int64_t start = 0, count = 0, step = 1;
};

Slice slice_of(const Call& call, const Array& whole, size_t first) {
  if (whole.dims.empty()) bad_input("an array without dims cannot be sliced");
  Slice slice{wrapped_dim(call.integer(first), whole.dims.size()), 0, 0, call.integer(first + 3)};
  const int64_t extent = whole.dims[slice.dim];
  if (slice.step < 1) bad_input("the step of a slice is {}; it must be at least 1", slice.step);
  const auto bound = [&](size_t i, int64_t absent) {
    if (!call.has(i)) return absent;
    const int64_t given = call.integer(i);
    return std::clamp<int64_t>(given < 0 ? given + extent : given, 0, extent);
  };
  slice.start = bound(first + 1, 0);
  const int64_t length = bound(first + 2, extent) - slice.start;
  slice.count = length <= 0 ? 0 : (length - 1) / slice.step + 1;
  return slice;
}

Array slice(const Call& call) {
  const Array& from = call.tensor(0);
  const Slice part = slice_of(call, from, 1);
  return sliced(from, part.dim, part.start, part.count, part.step);
}

// The slice and the index of select, given from argument `first` on: dim, index.
Slice selection_of(const Call& call, const Array& whole, size_t first) {
  if (whole.dims.empty()) bad_input("an array without dims has nothing to select");
  const size_t dim = wrapped_dim(call.integer(first), whole.dims.size());
  const int64_t index = call.integer(first + 1), extent = whole.dims[dim];
  if (index < -extent || index >= extent)
    bad_input("index {} is not in dim {} of an array of shape {}", index, dim, dims_text(whole.dims));
  return {dim, index < 0 ? index + extent : index, 1, 1};
}

Array without_dim(Array array, size_t dim) {
  array.dims.erase(array.dims.begin() + static_cast<std::ptrdiff_t>(dim));
  return array;
}

Array select(const Call& call) {
  const Array& from = call.tensor(0);
  const Slice part = selection_of(call, from, 1);
  return without_dim(sliced(from, part.dim, part.start, 1), part.dim);
}

// A copy of `whole` with `part` in its slice.
Array scattered(const Array& whole, Array part, const Slice& slice) {
  Dims strides = row_major_strides(whole.dims), dims = whole.dims;
  dims[slice.dim] = slice.count;
  if (part.dims != dims)
    bad_input("an array of shape {} is put into a part of shape {}", dims_text(part.dims), dims_text(dims));
  Array to = whole;
  part = converted(std::move(part), whole.type);
  const int64_t offset = slice.count == 0 ? 0 : slice.start * strides[slice.dim];
  if (slice.count > 1) strides[slice.dim] *= slice.step;
  copy_strided(dims, to, offset, strides, part, 0, row_major_strides(dims));
  return to;
}

Array slice_scatter(const Call& call) {
  const Array& whole = call.tensor(0);
  return scattered(whole, call.tensor(1), slice_of(call, whole, 2));
}

Array select_scatter(const Call& call) {
  const Array& whole = call.tensor(0);
  const Slice slice = selection_of(call, whole, 2);
  Array part = call.tensor(1);
  if (part.dims.size() + 1 != whole.dims.size())
    bad_input("an array of shape {} is put into an array of shape {} at one index", dims_text(part.dims),
              dims_text(whole.dims));
  part.dims.insert(part.dims.begin() + static_cast<std::ptrdiff_t>(slice.dim), 1);
  return scattered(whole, std::move(part), slice);
}

// Consecutive parts of a dim, whose extents the graph gives: split, split_with_sizes, chunk.
std::vector<Array> parts_along(const Call& call, int64_t given_dim) {
  const Array& from = call.tensor(0);
  if (from.dims.empty()) bad_input("an array without dims cannot be split");
  const size_t dim = wrapped_dim(given_dim, from.dims.size());
  std::vector<Array> parts;
  int64_t begin = 0;
  for (size_t i = 0; i < call.outputs(); ++i) {
    const Dims dims = call.dims(i);
    if (dims.size() != from.dims.size())
      bad_input("a part has shape {}, the whole {}", dims_text(dims), dims_text(from.dims));
    parts.push_back(sliced(from, dim, begin, dims[dim]));
    begin += dims[dim];
  }
  return parts;
}

std::vector<Array> split(const Call& call) { return parts_along(call, call.integer(2)); }

std::vector<Array> unbind(const Call& call) {
  const Array& from = call.tensor(0);
  if (from.dims.empty()) bad_input("an array without dims cannot be split");
  const size_t dim = wrapped_dim(call.integer(1), from.dims.size());
  std::vector<Array> parts;
  for (size_t i = 0; i < call.outputs(); ++i)
    parts.push_back(without_dim(sliced(from, dim, static_cast<int64_t>(i), 1), dim));
  return parts;
}

// The arrays of argument 0 in the type of the output; absent ones are refused.
std::vector<Array> typed_parts(const Call& call) {
  std::vector<Array> parts;
  for (const Array* part : call.tensors(0)) {
    if (part == nullptr) bad_input("an array to be joined is None");
    parts.push_back(converted(*part, call.type()));
  }
  return parts;
}

std::vector<const Array*> pointers(const std::vector<Array>& arrays) {
  std::vector<const Array*> all;
  for (const Array& array : arrays) all.push_back(&array);
  return all;
}

Array cat(const Call& call) {
  const std::vector<Array> parts = typed_parts(call);
  const size_t rank = call.dims().size();
  return concatenated(pointers(parts), wrapped_dim(call.integer(1), rank));
}

Array stack(const Call& call) {
  std::vector<Array> parts = typed_parts(call);
  const size_t dim = wrapped_dim(call.integer(1), call.dims().size());
  for (Array& part : parts) {
    if (dim > part.dims.size())
      bad_input("arrays of {} dims cannot be stacked along dim {}", part.dims.size(), dim);
    part.dims.insert(part.dims.begin() + static_cast<std::ptrdiff_t>(dim), 1);
  }
  return concatenated(pointers(parts), dim);
}

// Adds elements before and after each dim, the last dim first, or removes some where a number is negative.
Array pad(const Call& call) {
  const Array& from = call.tensor(0);
  const Dims amounts = call.integers(1);
  if (call.text(2) != "constant")
    bad_input("padding of mode '{}' is not supported, only 'constant'", call.text(2));
  if (amounts.size() % 2 != 0 || amounts.size() / 2 > from.dims.size())
    bad_input("{} numbers are given to pad an array of {} dims", amounts.size(), from.dims.size());
  Array value = call.has(3) ? converted(call.number(3), from.type) : zero_array(from.type, {});
  Dims dims = from.dims, kept = from.dims;
  const Dims from_strides = row_major_strides(from.dims);
  int64_t from_offset = 0;
  Dims before(dims.size());
  for (size_t i = 0; i < amounts.size() / 2; ++i) {
    const size_t d = dims.size() - 1 - i;
    constexpr int64_t kMost = int64_t{1} << 40;
    const int64_t left = amounts[2 * i], right = amounts[2 * i + 1];
    if (std::min(left, right) < -kMost || std::max(left, right) > kMost)
      bad_input("padding of {} and {} elements is too large", left, right);
    dims[d] += left + right;
    before[d] = std::max<int64_t>(left, 0);
    const int64_t dropped = std::max<int64_t>(-left, 0);
    kept[d] = std::max<int64_t>(kept[d] - dropped - std::max<int64_t>(-right, 0), 0);
    if (kept[d] > 0) from_offset += dropped * from_strides[d];
  }
  Array to = broadcast_to(value, dims);
  const Dims strides = row_major_strides(dims);
  if (std::find(kept.begin(), kept.end(), 0) != kept.end()) return to;
  int64_t offset = 0;
  for (size_t d = 0; d < dims.size(); ++d) offset += before[d] * strides[d];
  copy_strided(kept, to, offset, strides, from, from_offset, from_strides);
  return to;
}

// Keeps the elements of each matrix on one side of a diagonal. In row r, columns from range(r, width).first up to
// range(r, width).second become zero.
template <class Range>
Array triangle(const Call& call, Range range) {
  Array array = call.tensor(0);
  const size_t rank = array.dims.size();
  if (rank < 2) bad_input("matrices are needed, not an array of shape {}", dims_text(array.dims));
  const int64_t height = array.dims[rank - 2], width = array.dims[rank - 1];
  const auto each = static_cast<size_t>(size_of(array.type));
  const int64_t rows = array.elements() == 0 ? 0 : array.elements() / width;
  for (int64_t r = 0; r < rows; ++r) {
    const auto [begin, end] = range(r % height, width);
    std::byte* row = array.bytes.data() + static_cast<size_t>(r * width) * each;
    std::fill(row + static_cast<size_t>(begin) * each, row + static_cast<size_t>(end) * each, std::byte{0});
  }
  return array;
}

// Extents are at most 2^36, so a diagonal beyond that is one at infinity.
int64_t diagonal(const Call& call) {
  constexpr int64_t kFar = int64_t{1} << 40;
  return std::clamp(call.integer(1), -kFar, kFar);
}

Array tril(const Call& call) {
  return triangle(call, [d = diagonal(call)](int64_t row, int64_t width) {
    return std::pair(std::clamp<int64_t>(row + d + 1, 0, width), width);
  });
}

Array triu(const Call& call) {
  return triangle(call, [d = diagonal(call)](int64_t row, int64_t width) {
    return std::pair(int64_t{0}, std::clamp<int64_t>(row + d, 0, width));
  });
}

}  // namespace

void add_shape_rows(std::vector<HostRow>& rows) {
  const std::vector<HostRow> own{
      {"view", reshaped},
      {"reshape", reshaped},
      {"flatten.using_ints", reshaped},
      {"unsqueeze", reshaped},
      {"squeeze.dim", reshaped},
      {"transpose.int", transpose},
      {"t", transpose_matrix},
      {"permute", permute},
      {"expand", expand},
      {"expand_as", expand},
      {"repeat", repeat},
      {"slice.Tensor", slice},
      {"select.int", select},
      {"slice_scatter", slice_scatter},
      {"select_scatter", select_scatter},
      {"split.Tensor", nullptr, split},
      {"split_with_sizes", nullptr, split},
      {"chunk", nullptr, split},
      {"unbind.int", nullptr, unbind},
      {"cat", cat},
      {"stack", stack},
      {"pad", pad},
      {"tril", tril},
      {"triu", triu},
  };
  rows.insert(rows.end(), own.begin(), own.end());
}

}  // namespace trifold::graph
