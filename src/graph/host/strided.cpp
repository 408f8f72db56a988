#include "graph/host/strided.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace trifold::graph {

Dims row_major_strides(std::span<const int64_t> dims) {
  Dims strides(dims.size());
  int64_t stride = 1;
  for (size_t d = dims.size(); d-- > 0; stride *= dims[d]) strides[d] = stride;
  return strides;
}

Dims broadcast_dims(std::span<const int64_t> a, std::span<const int64_t> b) {
  Dims dims(std::max(a.size(), b.size()));
  for (size_t i = 1; i <= dims.size(); ++i) {
    const int64_t x = i <= a.size() ? a[a.size() - i] : 1, y = i <= b.size() ? b[b.size() - i] : 1;
    if (x != y && x != 1 && y != 1)
      bad_input("arrays of shapes {} and {} do not fit together: {} differs from {}", dims_text(a),
                dims_text(b), x, y);
    dims[dims.size() - i] = x == 1 ? y : x;
  }
  return dims;
}

Dims broadcast_strides(std::span<const int64_t> from, std::span<const int64_t> to) {
  const Dims own = row_major_strides(from);
  Dims strides(to.size());
  bool fits = from.size() <= to.size();
  for (size_t i = 1; fits && i <= from.size(); ++i) {
    const int64_t extent = from[from.size() - i];
    fits = extent == 1 || extent == to[to.size() - i];
    strides[to.size() - i] = extent == 1 ? 0 : own[from.size() - i];
  }
  if (!fits) bad_input("an array of shape {} cannot be repeated to {}", dims_text(from), dims_text(to));
  return strides;
}

size_t wrapped_dim(int64_t dim, size_t rank) {
  const auto dims = static_cast<int64_t>(std::max<size_t>(rank, 1));
  if (dim < -dims || dim >= dims)
    bad_input("dim {} is needed of an array of {} dims, which has {} to {}", dim, rank, -dims, dims - 1);
  return static_cast<size_t>(dim < 0 ? dim + dims : dim);
}

namespace {

template <class T>
void copy_run(T* to, int64_t to_step, const T* from, int64_t from_step, int64_t count) {
  if (to_step == 1 && from_step == 1)
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
  else if (to_step == 1 && from_step == 0)
    std::fill(to, to + count, *from);
  else
    for (int64_t i = 0; i < count; ++i) to[i * to_step] = from[i * from_step];
}

}  // namespace

void copy_strided(const Dims& dims, Array& to, int64_t to_offset, const Dims& to_strides, const Array& from,
                  int64_t from_offset, const Dims& from_strides) {
  check(to.type == from.type, "elements of type {} cannot be copied to {}", name_of(from.type),
        name_of(to.type));
  if (std::find(dims.begin(), dims.end(), 0) != dims.end()) return;
  dispatch_size(to.type, [&]<class T>(T) {
    T* out = to.as<T>() + to_offset;
    const T* in = from.as<T>() + from_offset;
    each_run<2>(dims, {to_strides, from_strides}, [&](const auto& at, int64_t count, const auto& step) {
      copy_run(out + at[0], step[0], in + at[1], step[1], count);
    });
  });
}

Array gathered(const Array& from, const Dims& dims, int64_t offset, const Dims& strides) {
  Array to = make_array(from.type, dims);
  copy_strided(dims, to, 0, row_major_strides(dims), from, offset, strides);
  return to;
}

Array broadcast_to(const Array& from, const Dims& dims) {
  return gathered(from, dims, 0, broadcast_strides(from.dims, dims));
}

Array permuted(const Array& from, const std::vector<size_t>& order) {
  const Dims own = row_major_strides(from.dims);
  Dims dims, strides;
  std::vector<bool> seen(from.dims.size());
  for (const size_t dim : order) {
    if (dim >= seen.size() || seen[dim]) bad_input("the order of dims is not a permutation");
    seen[dim] = true;
    dims.push_back(from.dims[dim]);
    strides.push_back(own[dim]);
  }
  if (dims.size() != from.dims.size())
    bad_input("the order has {} dims, but the array {}", dims.size(), from.dims.size());
  return gathered(from, dims, 0, strides);
}

Array sliced(const Array& from, size_t dim, int64_t start, int64_t count, int64_t step) {
  if (dim >= from.dims.size() || start < 0 || count < 0 || step < 1 ||
      (count > 0 && (start >= from.dims[dim] || (count - 1) > (from.dims[dim] - 1 - start) / step)))
    bad_input("{} indices from {} on in steps of {} are not in dim {} of an array of shape {}", count, start,
              step, dim, dims_text(from.dims));
  Dims dims = from.dims, strides = row_major_strides(from.dims);
  const int64_t offset = count == 0 ? 0 : start * strides[dim];
  dims[dim] = count;
  if (count > 1) strides[dim] *= step;  // a step may be beyond every array otherwise
  return gathered(from, dims, offset, strides);
}

Array concatenated(std::vector<const Array*> parts, size_t dim) {
  if (parts.empty()) bad_input("no arrays are given to be joined");
  const Array* const first = parts.front();
  std::erase_if(parts, [](const Array* part) { return part->dims == Dims{0}; });
  if (parts.empty()) return *first;
  Dims dims = parts.front()->dims;
  if (dim >= dims.size()) bad_input("arrays of {} dims cannot be joined along dim {}", dims.size(), dim);
  dims[dim] = 0;
  for (const Array* part : parts) {
    Dims rest = part->dims;
    if (rest.size() == dims.size()) rest[dim] = dims[dim];
    if (rest != dims)
      bad_input("arrays of shapes {} and {} cannot be joined along dim {}", dims_text(parts.front()->dims),
                dims_text(part->dims), dim);
    dims[dim] += part->dims[dim];
  }
  Array whole = make_array(parts.front()->type, dims);
  const Dims strides = row_major_strides(dims);
  int64_t begin = 0;
  for (const Array* part : parts) {
    copy_strided(part->dims, whole, begin * strides[dim], strides, *part, 0, row_major_strides(part->dims));
    begin += part->dims[dim];
  }
  return whole;
}

}  // namespace trifold::graph
