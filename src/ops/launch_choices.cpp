// Launchers that drop, sort and count the choices of a mixture of experts.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "ops/launch.h"
#include "ops/launch_support.h"

namespace trifold::cpu {

namespace {

// One sequence.
template <class T>
struct Limited {
  std::span<const int32_t> chosen;  // choices of all its tokens
  std::span<const T> gates;
  std::span<int32_t> taken, order, end;  // `end` has one for each expert, and one more

  // Sorts choices by expert and, within an expert, by token; the choices of expert e end at end[e].
  void sort_by_expert() const {
    std::fill(end.begin(), end.end(), 0);
    for (const int32_t expert : chosen) ++end[static_cast<size_t>(expert) + 1];
    for (size_t e = 1; e < end.size(); ++e) end[e] += end[e - 1];
    for (size_t c = 0; c < chosen.size(); ++c)
      order[static_cast<size_t>(end[static_cast<size_t>(chosen[c])]++)] = static_cast<int32_t>(c);
  }

  // The order of two choices of an expert. A NaN gate comes first, so that the order is total.
  bool before(int32_t left, int32_t right) const {
    const auto gate = [&](int32_t choice) {
      const T value = gates[static_cast<size_t>(choice)];
      return std::isnan(value) ? std::numeric_limits<T>::infinity() : value;
    };
    return gate(left) != gate(right) ? gate(left) > gate(right) : left < right;
  }

  void drop(int64_t capacity, KeptChoices kept) const {
    sort_by_expert();
    std::copy(chosen.begin(), chosen.end(), taken.begin());
    const auto experts = static_cast<int32_t>(end.size() - 1);
    int64_t begin = 0;
    for (int32_t e = 0; e < experts; ++e) {
      const int64_t until = end[static_cast<size_t>(e)];
      if (until - begin > capacity) {
        const auto first = order.begin() + begin, last = order.begin() + until;
        if (kept == KeptChoices::LargestGates)
          std::nth_element(first, first + capacity, last,
                           [this](int32_t a, int32_t b) { return before(a, b); });
        std::for_each(first + capacity, last,
                      [&](int32_t choice) { taken[static_cast<size_t>(choice)] = experts; });
      }
      begin = until;
    }
  }
};

}  // namespace

void drop_choices(const KernelTable&, Stream& stream, Tensor taken, Tensor chosen, Tensor gates,
                  const ExpertLimit& limit) {
  const int64_t count = limit.seq * chosen.last_dim();
  dispatch_wide_float(gates.dtype, [&](auto zero) {
    using T = decltype(zero);
    over_elements(stream, chosen.elements() / count, 1,
                  [=, to = taken.as<int32_t>(), expert = chosen.as<int32_t>(), gate = gates.as<T>()](
                      int64_t begin, int64_t end) {
                    const auto size = static_cast<size_t>(count);
                    for (int64_t s = begin; s < end; ++s) {
                      int32_t* order = scratch<int32_t>(count + limit.experts + 1);
                      Limited<T>{{expert + s * count, size},
                                 {gate + s * count, size},
                                 {to + s * count, size},
                                 {order, size},
                                 {order + count, static_cast<size_t>(limit.experts) + 1}}
                          .drop(limit.capacity, limit.kept);
                    }
                  });
  });
}

// A counting sort: there are few experts.
void sort_choices(const KernelTable&, Stream& stream, Tensor first, Tensor row, Tensor token, Tensor chosen) {
  stream.run([experts = first.elements() - 1, choices = chosen.last_dim(), count = chosen.elements(),
              begins = first.as<int32_t>(), place = row.as<int32_t>(), tokens = token.as<int32_t>(),
              expert = chosen.as<int32_t>()] {
    std::fill_n(begins, experts + 1, 0);
    for (int64_t c = 0; c < count; ++c) ++begins[expert[c] + 1];
    for (int64_t e = 0; e < experts; ++e) begins[e + 1] += begins[e];
    int32_t* next = scratch<int32_t>(experts);
    std::copy_n(begins, experts, next);
    for (int64_t c = 0; c < count; ++c) {
      place[c] = next[expert[c]]++;
      tokens[place[c]] = static_cast<int32_t>(c / choices);
    }
  });
}

void experts_of_ranks(const KernelTable&, Stream& stream, Tensor expert, Tensor first, int64_t begin,
                      int64_t local_experts, int64_t skip) {
  stream.run([=, to = expert.as<int32_t>(), rows = expert.elements(), ranks = first.dim(0),
              begins = first.as<int32_t>(), each = first.last_dim()] {
    int64_t place = -skip;  // index in `expert` of the next row
    for (int64_t rank = 0; rank < ranks; ++rank)
      for (int64_t e = 0; e < local_experts; ++e) {
        const int32_t* of_expert = begins + rank * each + begin + e;
        const int64_t end = place + of_expert[1] - of_expert[0];
        const int64_t from = std::clamp<int64_t>(place, 0, rows), until = std::clamp<int64_t>(end, 0, rows);
        std::fill(to + from, to + until, static_cast<int32_t>(e));
        place = end;
      }
  });
}

void add_choice_counts(const KernelTable&, Stream& stream, Tensor counts, Tensor chosen, Tensor padding,
                       int64_t begin) {
  stream.run([sums = counts.as<double>(), size = counts.elements(), expert = chosen.as<int32_t>(),
              padded = padding.data == nullptr ? nullptr : padding.as<int32_t>(), tokens = chosen.dim(0),
              choices = chosen.dim(1), begin] {
    for (int64_t t = 0; t < tokens; ++t) {
      if (padded != nullptr && padded[t] != 0) continue;
      for (int64_t c = t * choices; c < (t + 1) * choices; ++c)
        if (const int64_t at = expert[c] - begin; at >= 0 && at < size) ++sums[at];
    }
  });
}

void clear_rows(const KernelTable&, Stream& stream, Tensor y, Tensor begin) {
  stream.run([to = static_cast<std::byte*>(y.data), rows = y.row_count(), bytes = y.bytes(),
              first = begin.as<int32_t>()] {
    if (*first >= rows) return;
    const size_t kept = bytes / static_cast<size_t>(rows) * static_cast<size_t>(*first);
    std::memset(to + kept, 0, bytes - kept);
  });
}

void add_choices(OpTable& ops, const KernelTable& table) {
  bind<&OpTable::drop_choices, drop_choices>(ops, table);
  bind<&OpTable::sort_choices, sort_choices>(ops, table);
  bind<&OpTable::add_choice_counts, add_choice_counts>(ops, table);
  bind<&OpTable::clear_rows, clear_rows>(ops, table);
  bind<&OpTable::experts_of_ranks, experts_of_ranks>(ops, table);
}

}  // namespace trifold::cpu
