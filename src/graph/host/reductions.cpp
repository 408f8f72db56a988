// Operations along dims. The dims that are reduced are moved to the end, so that each result is computed from one
// contiguous row. Sums of floats are in f64.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "graph/host/map.h"
#include "graph/host/rows.h"

namespace trifold::graph {

namespace {

// The dims that argument i lists; all if it is None or an empty list.
std::vector<bool> reduced_dims(const Call& call, size_t i, size_t rank) {
  std::vector<bool> reduced(rank);
  Dims given;
  if (call.has(i)) given = call.integers(i);
  for (const int64_t dim : given) {
    const size_t wrapped = wrapped_dim(dim, rank);
    if (wrapped < rank) reduced[wrapped] = true;
  }
  if (given.empty()) reduced.assign(rank, true);
  return reduced;
}

std::vector<bool> one_dim(int64_t dim, size_t rank) {
  std::vector<bool> reduced(rank);
  const size_t wrapped = wrapped_dim(dim, rank);
  if (wrapped < rank) reduced[wrapped] = true;
  return reduced;
}

// An array [rows, count] of the elements that make one result each, and the shape of the results.
struct RowsToReduce {
  Array array;
  int64_t rows = 1, count = 1;
  Dims dims;
};

RowsToReduce rows_to_reduce(const Array& from, const std::vector<bool>& reduced, bool keep) {
  RowsToReduce result;
  std::vector<size_t> order, last;
  for (size_t d = 0; d < reduced.size(); ++d) {
    (reduced[d] ? last : order).push_back(d);
    (reduced[d] ? result.count : result.rows) *= from.dims[d];
    if (!reduced[d] || keep) result.dims.push_back(reduced[d] ? 1 : from.dims[d]);
  }
  order.insert(order.end(), last.begin(), last.end());
  result.array = std::is_sorted(order.begin(), order.end()) ? from : permuted(from, order);
  return result;
}

// f(first, count) of each row.
template <class To, class From, class F>
Array reduced_rows(const RowsToReduce& rows, ElementType type, F f) {
  Array to = make_array(type, rows.dims);
  const From* in = rows.array.as<From>();
  To* out = to.as<To>();
  for (int64_t r = 0; r < rows.rows; ++r) out[r] = f(in + r * rows.count, rows.count);
  return to;
}

// Sums in f64 or i64, in the type of the output; divided by the count for a mean.
Array sums(const Call& call, const std::vector<bool>& reduced, bool keep, bool mean) {
  const Array from =
      converted(call.tensor(0), is_float(call.type()) ? computed_type(call.type()) : ElementType::I64);
  const RowsToReduce rows = rows_to_reduce(from, reduced, keep);
  if (mean && !is_float(call.type())) bad_input("a mean of type {} is not supported", name_of(call.type()));
  const auto add = [mean]<class T>(const T* row, int64_t count) {
    std::conditional_t<std::is_floating_point_v<T>, double, uint64_t> sum{};
    for (int64_t i = 0; i < count; ++i) sum += static_cast<decltype(sum)>(row[i]);
    if (mean) sum /= static_cast<decltype(sum)>(count);
    return sum;
  };
  if (!is_float(call.type()))
    return converted(reduced_rows<uint64_t, int64_t>(rows, ElementType::I64, add), call.type());
  if (from.type == ElementType::F64)
    return converted(reduced_rows<double, double>(rows, ElementType::F64, add), call.type());
  return converted(reduced_rows<double, float>(rows, ElementType::F64, add), call.type());
}

std::vector<bool> all_dims(const Call& call) { return std::vector<bool>(call.tensor(0).dims.size(), true); }
std::vector<bool> listed_dims(const Call& call) { return reduced_dims(call, 1, call.tensor(0).dims.size()); }
std::vector<bool> given_dim(const Call& call) { return one_dim(call.integer(1), call.tensor(0).dims.size()); }

Array sum(const Call& call) { return sums(call, all_dims(call), false, false); }
Array sum_along(const Call& call) { return sums(call, listed_dims(call), call.flag(2), false); }
Array mean(const Call& call) { return sums(call, all_dims(call), false, true); }
Array mean_along(const Call& call) { return sums(call, listed_dims(call), call.flag(2), true); }

// Whether some element is true, or (`wanted` false) whether some is false.
Array finds(const Call& call, const std::vector<bool>& reduced, bool keep, bool wanted) {
  const RowsToReduce rows = rows_to_reduce(converted(call.tensor(0), ElementType::Bool), reduced, keep);
  const auto find = [wanted](const bool* row, int64_t count) {
    return (std::find(row, row + count, wanted) != row + count) == wanted;
  };
  return converted(reduced_rows<bool, bool>(rows, ElementType::Bool, find), call.type());
}

Array any(const Call& call) { return finds(call, all_dims(call), false, true); }
Array any_along(const Call& call) { return finds(call, given_dim(call), call.flag(2), true); }
Array all(const Call& call) { return finds(call, all_dims(call), false, false); }
Array all_along(const Call& call) { return finds(call, given_dim(call), call.flag(2), false); }

// The first index of the largest element; a NaN counts as the largest.
Array argmax(const Call& call) {
  const std::vector<bool> reduced = call.has(1) ? given_dim(call) : all_dims(call);
  const Array from = converted(call.tensor(0), computed_type(call.tensor(0).type));
  const RowsToReduce rows = rows_to_reduce(from, reduced, call.flag(2));
  if (rows.count == 0) bad_input("no element of an array of shape {} is the largest", dims_text(from.dims));
  return dispatch_computed(from.type, [&]<class T>(T) {
    return reduced_rows<int64_t, T>(rows, ElementType::I64, [](const T* row, int64_t count) {
      int64_t best = 0;
      for (int64_t i = 1; i < count; ++i) {
        const bool nan = row[best] != row[best];
        if (!nan && (row[i] > row[best] || row[i] != row[i])) best = i;
      }
      return best;
    });
  });
}

// Replaces each row along a dim by one of the same length: body(row, count).
template <class T, class F>
Array replaced_rows(Array from, int64_t dim, F body) {
  const size_t rank = from.dims.size();
  const size_t wrapped = wrapped_dim(dim, rank);
  std::vector<size_t> order(rank), back(rank);
  std::iota(order.begin(), order.end(), size_t{0});
  const bool moves = rank > 0 && wrapped + 1 != rank;
  if (moves) {
    order.erase(order.begin() + static_cast<std::ptrdiff_t>(wrapped));
    order.push_back(wrapped);
    for (size_t d = 0; d < rank; ++d) back[order[d]] = d;
    from = permuted(from, order);
  }
  const int64_t count = rank == 0 ? 1 : from.dims.back();
  T* row = from.as<T>();
  for (T* const end = row + from.elements(); row != end; row += count) body(row, count);
  return moves ? permuted(from, back) : from;
}

template <class T>
void add_up(T* row, int64_t count) {
  T total{};
  for (int64_t i = 0; i < count; ++i) row[i] = total += row[i];
}

Array cumsum(const Call& call) {
  const Array& from = call.tensor(0);
  const int64_t dim = call.integer(1);
  if (!is_float(call.type()))
    return converted(replaced_rows<uint64_t>(converted(from, ElementType::I64), dim, add_up<uint64_t>),
                     call.type());
  const Array typed = converted(from, call.type());
  return converted(replaced_rows<double>(converted(typed, ElementType::F64), dim, add_up<double>),
                   call.type());
}

// exp(x - largest) / sum, or its logarithm.
Array softmaxes(const Call& call, bool logarithm) {
  if (!is_float(call.type())) bad_input("a softmax of type {} is not supported", name_of(call.type()));
  return converted(replaced_rows<double>(
                       converted(converted(call.tensor(0), call.type()), ElementType::F64), call.integer(1),
                       [logarithm](double* row, int64_t count) {
                         double largest = -std::numeric_limits<double>::infinity(), total = 0;
                         for (int64_t i = 0; i < count; ++i) largest = std::max(largest, row[i]);
                         for (int64_t i = 0; i < count; ++i) total += std::exp(row[i] - largest);
                         for (int64_t i = 0; i < count; ++i)
                           row[i] = logarithm ? row[i] - largest - std::log(total)
                                              : std::exp(row[i] - largest) / total;
                       }),
                   call.type());
}

Array softmax(const Call& call) { return softmaxes(call, false); }
Array log_softmax(const Call& call) { return softmaxes(call, true); }

// Differences of neighbours, `n` times, after joining `prepend` and `append`. Bools differ by 1 or 0, whether they are unequal.
Array diff(const Call& call) {
  const int64_t times = call.integer(1);
  const ElementType type = call.type(), computed = computed_type(type);
  std::vector<Array> parts;
  for (const size_t i : {size_t{3}, size_t{0}, size_t{4}})
    if (i == 0 || call.has(i)) parts.push_back(converted(converted(call.tensor(i), type), computed));
  std::vector<const Array*> given;
  for (const Array& part : parts) given.push_back(&part);
  const size_t dim = wrapped_dim(call.integer(2), call.tensor(0).dims.size());
  Array array = concatenated(given, dim);
  for (int64_t n = 0; n < times && array.dims[dim] > 0; ++n) {
    const int64_t count = array.dims[dim] - 1;
    const Array later = sliced(array, dim, std::min<int64_t>(1, count), count);
    const Array earlier = sliced(array, dim, 0, count);
    array = make_array(computed, later.dims);
    dispatch_computed(computed, [&]<class T>(T) {
      map_pairs<T, T>(later, earlier, array, [](T a, T b) {
        if constexpr (std::is_same_v<T, bool>)
          return a != b;
        else if constexpr (std::is_same_v<T, int64_t>)
          return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
        else
          return a - b;
      });
    });
  }
  return converted(std::move(array), type);
}

}  // namespace

void add_reduction_rows(std::vector<HostRow>& rows) {
  const std::vector<HostRow> own{
      {"sum", sum},
      {"sum.dim_IntList", sum_along},
      {"mean", mean},
      {"mean.dim", mean_along},
      {"any", any},
      {"any.dim", any_along},
      {"all", all},
      {"all.dim", all_along},
      {"argmax", argmax},
      {"cumsum", cumsum},
      {"softmax.int", softmax},
      {"log_softmax.int", log_softmax},
      {"diff", diff},
  };
  rows.insert(rows.end(), own.begin(), own.end());
}

}  // namespace trifold::graph
