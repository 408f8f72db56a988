#include "graph/id_check.h"

#include <array>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "core/error.h"
#include "core/printable.h"

namespace trifold::graph {

namespace {

// Calls body(place) for the place of each element of a view in its memory, in order, until it returns false.
template <class Body>
void each_place(const View& view, int64_t batch, Body&& body) {
  const Box box = view.box(batch);
  const StridedView strides = view.strided(batch);
  const int64_t count = view.elements(batch);
  std::array<int64_t, kMostAxes> index{};
  int64_t place = strides.begin;
  for (int64_t i = 0; i < count; ++i) {
    if (!body(place)) return;
    for (auto axis = static_cast<size_t>(box.rank); axis-- > 0;) {
      place += strides.strides[axis];
      if (++index[axis] < box.extents[axis]) break;
      place -= strides.strides[axis] * box.extents[axis];
      index[axis] = 0;
    }
  }
}

// Whether each element of `part` is 0.
std::vector<bool> zeros(const IdCheck::Part& part, const Array& array, int64_t batch) {
  const Array numbers = converted(array, ElementType::F64);
  std::vector<bool> all;
  each_place(part.view, batch, [&](int64_t place) {
    all.push_back(numbers.as<double>()[place] == 0);
    return true;
  });
  return all;
}

struct Missing {
  int64_t id = 0, place = 0;
};

// The first id that does not exist.
std::optional<Missing> find_missing(const IdCheck& check, std::span<const Array* const> arrays,
                                    int64_t batch) {
  const Array& ids = *arrays[check.ids.value];
  const int64_t count = check.count.at(batch);
  std::vector<bool> unused;  // by element; computed when it is first needed, as most batches need none
  std::optional<Missing> missing;
  dispatch_stored(ids.type, [&]<class T>(T) {
    if constexpr (std::is_integral_v<T>) {
      size_t element = 0;
      each_place(check.ids.view, batch, [&](int64_t place) {
        const auto id = static_cast<int64_t>(ids.as<T>()[place]);
        const size_t at = element++;
        if (0 <= id && id < count) return true;
        if (check.weights && unused.empty())
          unused = zeros(*check.weights, *arrays[check.weights->value], batch);
        if (at < unused.size() && unused[at]) return true;
        missing = Missing{id, place};
        return false;
      });
    }
  });
  return missing;
}

}  // namespace

void check_ids(const IdCheck& check, std::span<const Array* const> arrays, int64_t batch,
               std::span<const int64_t> samples) {
  const std::optional<Missing> missing = find_missing(check, arrays, batch);
  if (!missing) return;
  const Array& ids = *arrays[check.ids.value];
  // Axes of the batch come first in a value that depends on it.
  std::string where;
  if (check.is_per_sample && batch > 0) {
    const auto sample = static_cast<size_t>(missing->place / (ids.elements() / batch));
    where = sample < samples.size() ? fmt::format(" of sample {}", samples[sample])
                                    : fmt::format(" of sample {} of the micro-batch", sample);
  }
  const int64_t count = check.count.at(batch);
  bad_input("the value {}{} in '{}' is out of range: {}{}", missing->id, where, printable(check.name),
            check.what, count > 0 ? fmt::format(", which has 0 to {}", count - 1) : ", which is empty");
}

}  // namespace trifold::graph
