#include "graph/lower/view.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "core/error.h"
#include "graph/operations.h"

namespace trifold::graph {

namespace {

// A view for one number of samples.
struct Numbers {
  int64_t begin = 0;
  std::vector<int64_t> dims, strides;
};

Numbers at(const View& view, int64_t batch) {
  Numbers numbers{view.begin.at(batch), {}, {}};
  for (const Size& dim : view.dims) numbers.dims.push_back(dim.at(batch));
  for (const Size& stride : view.strides) numbers.strides.push_back(stride.at(batch));
  return numbers;
}

int64_t at(const Extent& extent, int64_t batch) {
  return extent.per_sample ? extent.value * batch : extent.value;
}

std::vector<int64_t> at(const std::vector<Extent>& extents, int64_t batch) {
  std::vector<int64_t> numbers;
  for (const Extent& extent : extents) numbers.push_back(at(extent, batch));
  return numbers;
}

std::vector<int64_t> row_major(const std::vector<int64_t>& dims) {
  std::vector<int64_t> strides(dims.size());
  int64_t stride = 1;
  for (size_t axis = dims.size(); axis-- > 0;) {
    strides[axis] = stride;
    stride *= std::max<int64_t>(dims[axis], 1);
  }
  return strides;
}

// Views are computed for three numbers of samples, larger than usual extents and without common factors. Two determine
// the linear functions, the third tests that they are linear.
constexpr std::array<int64_t, 3> kSamples{1009, 2003, 3001};

std::optional<Size> linear(const std::array<int64_t, 3>& values) {
  const int64_t slope = (values[1] - values[0]) / (kSamples[1] - kSamples[0]);
  const Size size{values[0] - slope * kSamples[0], slope};
  for (size_t i = 0; i < kSamples.size(); ++i)
    if (size.at(kSamples[i]) != values[i]) return std::nullopt;
  return size;
}

std::optional<View> linear(const std::array<Numbers, 3>& values) {
  View view;
  const auto begin = linear({values[0].begin, values[1].begin, values[2].begin});
  if (!begin) return std::nullopt;
  view.begin = *begin;
  for (size_t axis = 0; axis < values[0].dims.size(); ++axis) {
    const auto dim = linear({values[0].dims[axis], values[1].dims[axis], values[2].dims[axis]});
    const auto stride = linear({values[0].strides[axis], values[1].strides[axis], values[2].strides[axis]});
    if (!dim || !stride) return std::nullopt;
    view.dims.push_back(*dim);
    view.strides.push_back(*stride);
  }
  return view;
}

// Strides of another shape with the same elements in the same order, if it needs no copy: axes are split freely, and
// merged where they are adjacent in memory.
std::optional<Numbers> reshaped(const Numbers& in, const std::vector<int64_t>& dims) {
  Numbers out{in.begin, dims, std::vector<int64_t>(dims.size(), 0)};
  if (std::find(dims.begin(), dims.end(), 0) != dims.end()) return out;
  // Axes of the input with more than one element, merged from the right.
  std::vector<std::pair<int64_t, int64_t>> merged;  // extent, stride; last first
  for (size_t axis = in.dims.size(); axis-- > 0;) {
    if (in.dims[axis] == 1) continue;
    if (!merged.empty() && in.strides[axis] == merged.back().first * merged.back().second)
      merged.back().first *= in.dims[axis];
    else
      merged.emplace_back(in.dims[axis], in.strides[axis]);
  }
  size_t next = 0;
  int64_t left = next < merged.size() ? merged[next].first : 1;  // elements of the merged axis to distribute
  int64_t stride = next < merged.size() ? merged[next].second : 1;
  for (size_t axis = dims.size(); axis-- > 0;) {
    if (dims[axis] == 1) {
      out.strides[axis] = stride;
      continue;
    }
    if (left == 1) {
      if (++next >= merged.size()) return std::nullopt;
      left = merged[next].first;
      stride = merged[next].second;
    }
    if (left % dims[axis] != 0) return std::nullopt;
    out.strides[axis] = stride;
    stride *= dims[axis];
    left /= dims[axis];
  }
  return out;
}

int64_t whole_number(const Node& node, size_t argument, int64_t batch) {
  return at(std::get<Extent>(node.arguments.at(argument)), batch);
}

size_t axis_of(const Node& node, size_t argument, size_t rank) {
  const int64_t axis = whole_number(node, argument, 1);
  return static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(rank) : axis);
}

// Broadcasts to `dims`.
Numbers expanded(const Numbers& in, const std::vector<int64_t>& dims) {
  Numbers out{in.begin, dims, std::vector<int64_t>(dims.size(), 0)};
  const size_t added = dims.size() - in.dims.size();
  for (size_t axis = 0; axis < in.dims.size(); ++axis)
    if (in.dims[axis] == dims[added + axis]) out.strides[added + axis] = in.strides[axis];
  return out;
}

Numbers permuted(const Numbers& in, const std::vector<size_t>& order) {
  Numbers out{in.begin, {}, {}};
  for (const size_t axis : order) {
    out.dims.push_back(in.dims.at(axis));
    out.strides.push_back(in.strides.at(axis));
  }
  return out;
}

Numbers transposed(Numbers in, size_t one, size_t other) {
  std::swap(in.dims.at(one), in.dims.at(other));
  std::swap(in.strides.at(one), in.strides.at(other));
  return in;
}

// The part of `in` along `axis` from `start` on, every `step`-th element, as many as the result has.
Numbers sliced(Numbers in, size_t axis, int64_t start, int64_t step, int64_t count) {
  in.begin += start * in.strides.at(axis);
  in.strides[axis] *= step;
  in.dims[axis] = count;
  return in;
}

Numbers without_axis(Numbers in, size_t axis) {
  in.dims.erase(in.dims.begin() + static_cast<std::ptrdiff_t>(axis));
  in.strides.erase(in.strides.begin() + static_cast<std::ptrdiff_t>(axis));
  return in;
}

// Start of a slice: an absent one is 0, a negative one counts from the end.
int64_t slice_start(const Node& node, const Numbers& in, size_t axis, int64_t batch) {
  if (!std::holds_alternative<Extent>(node.arguments.at(2))) return 0;
  int64_t start = whole_number(node, 2, batch);
  if (start < 0) start += in.dims.at(axis);
  return std::clamp<int64_t>(start, 0, in.dims.at(axis));
}

std::optional<Numbers> part(const Graph& graph, const Node& node, size_t output, const Numbers& in,
                            int64_t batch) {
  const std::string_view name = node.name;
  const std::vector<int64_t> dims = at(graph.at(node.outputs[output]).dims, batch);
  const size_t rank = in.dims.size();
  if (name == "view" || name == "reshape" || name == "flatten.using_ints" || name == "squeeze.dim" ||
      name == "unsqueeze")
    return reshaped(in, dims);
  if (name == "transpose.int") return transposed(in, axis_of(node, 1, rank), axis_of(node, 2, rank));
  if (name == "t") return rank < 2 ? in : transposed(in, 0, 1);
  if (name == "permute") {
    std::vector<size_t> order;
    for (const Extent& axis : std::get<std::vector<Extent>>(node.arguments.at(1)))
      order.push_back(
          static_cast<size_t>(axis.value < 0 ? axis.value + static_cast<int64_t>(rank) : axis.value));
    return permuted(in, order);
  }
  if (name == "expand" || name == "expand_as") return expanded(in, dims);
  if (name == "slice.Tensor") {
    const size_t axis = axis_of(node, 1, rank);
    return sliced(in, axis, slice_start(node, in, axis, batch), whole_number(node, 4, batch), dims.at(axis));
  }
  if (name == "select.int") {
    const size_t axis = axis_of(node, 1, rank);
    int64_t index = whole_number(node, 2, batch);
    if (index < 0) index += in.dims.at(axis);
    return without_axis(sliced(in, axis, index, 1, 1), axis);
  }
  if (name == "unbind.int") {
    const size_t axis = axis_of(node, 1, rank);
    return without_axis(sliced(in, axis, static_cast<int64_t>(output), 1, 1), axis);
  }
  if (name == "split.Tensor" || name == "split_with_sizes" || name == "chunk") {
    const size_t axis = axis_of(node, 2, rank);
    int64_t start = 0;
    for (size_t before = 0; before < output; ++before)
      start += at(graph.at(node.outputs[before]).dims.at(axis), batch);
    return sliced(in, axis, start, 1, dims.at(axis));
  }
  return std::nullopt;
}

}  // namespace

int64_t View::elements(int64_t batch) const {
  int64_t count = 1;
  for (const Size& dim : dims) count *= dim.at(batch);
  return count;
}

Box View::box(int64_t batch) const {
  check(dims.size() <= kMostAxes, "a value has {} axes, more than {}", dims.size(), kMostAxes);
  Box box;
  box.rank = static_cast<int>(dims.size());
  for (size_t axis = 0; axis < dims.size(); ++axis) box.extents[axis] = dims[axis].at(batch);
  return box;
}

StridedView View::strided(int64_t batch) const {
  check(strides.size() <= kMostAxes, "a value has {} axes, more than {}", strides.size(), kMostAxes);
  StridedView view;
  view.begin = begin.at(batch);
  for (size_t axis = 0; axis < strides.size(); ++axis) view.strides[axis] = strides[axis].at(batch);
  return view;
}

bool View::is_dense() const {
  for (const int64_t samples : kSamples) {
    int64_t stride = 1;
    for (size_t axis = dims.size(); axis-- > 0;) {
      const int64_t extent = dims[axis].at(samples);
      if (extent != 1 && strides[axis].at(samples) != stride) return false;
      stride *= std::max<int64_t>(extent, 1);
    }
  }
  return true;
}

// Axes sorted by stride must each step over all elements of the smaller ones.
bool View::is_injective() const {
  const Numbers numbers = at(*this, kSamples[0]);
  std::vector<std::pair<int64_t, int64_t>> axes;  // stride, extent
  for (size_t axis = 0; axis < numbers.dims.size(); ++axis)
    if (numbers.dims[axis] != 1 && numbers.strides[axis] != 0)
      axes.emplace_back(std::abs(numbers.strides[axis]), numbers.dims[axis]);
  std::sort(axes.begin(), axes.end());
  int64_t reach = 0;
  for (const auto& [stride, extent] : axes) {
    if (stride <= reach) return false;
    reach += stride * (extent - 1);
  }
  return true;
}

bool View::covers(const Size& count) const {
  int64_t distinct = 1;
  for (size_t axis = 0; axis < dims.size(); ++axis)
    if (strides[axis] != Size{}) distinct *= dims[axis].at(kSamples[0]);
  return is_injective() && distinct == count.at(kSamples[0]);
}

View dense_view(const std::vector<Extent>& dims) {
  std::array<Numbers, 3> numbers;
  for (size_t i = 0; i < kSamples.size(); ++i) {
    numbers[i].dims = at(dims, kSamples[i]);
    numbers[i].strides = row_major(numbers[i].dims);
  }
  const std::optional<View> view = linear(numbers);
  if (!view) bad_input("a value of shape {} depends on the square of the batch", to_text(dims));
  return *view;
}

std::optional<View> view_of(const Graph& graph, const Node& node, size_t output, const View& input) {
  std::array<Numbers, 3> numbers;
  for (size_t i = 0; i < kSamples.size(); ++i) {
    const std::optional<Numbers> of_samples = part(graph, node, output, at(input, kSamples[i]), kSamples[i]);
    if (!of_samples) return std::nullopt;
    numbers[i] = *of_samples;
  }
  return linear(numbers);
}

View broadcast(const View& view, const std::vector<Size>& to) {
  check(view.dims.size() <= to.size(), "a value of {} axes cannot have the shape of one of {}",
        view.dims.size(), to.size());
  View wide{view.begin, to, std::vector<Size>(to.size())};
  const size_t added = to.size() - view.dims.size();
  for (size_t axis = 0; axis < view.dims.size(); ++axis) {
    check(view.dims[axis] == to[added + axis] || view.dims[axis] == Size{1, 0},
          "axis {} has another extent than the shape that it is repeated to", axis);
    if (view.dims[axis] == to[added + axis]) wide.strides[added + axis] = view.strides[axis];
  }
  return wide;
}

}  // namespace trifold::graph
