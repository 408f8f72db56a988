#include "nn/expert_capacity.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "core/error.h"

namespace trifold {

namespace {

constexpr double kRounding = 1e-12;  // relative, of a factor such as 1.1

template <class T>
struct Sequence {
  std::span<const int32_t> chosen;  // of all its tokens
  std::span<const T> gates;
  std::span<int32_t> taken, order, end;  // `end` has one for each expert, and one more

  // Choices in the order of their experts, and of tokens for each of them; end[e] is where those of e end.
  void sort_by_expert() const {
    std::fill(end.begin(), end.end(), 0);
    for (const int32_t expert : chosen) ++end[static_cast<size_t>(expert) + 1];
    for (size_t e = 1; e < end.size(); ++e) end[e] += end[e - 1];
    for (size_t c = 0; c < chosen.size(); ++c)
      order[static_cast<size_t>(end[static_cast<size_t>(chosen[c])]++)] = static_cast<int32_t>(c);
  }

  // Of two choices of an expert; a gate that is no number comes first, so that all are in some order.
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

template <class T>
void drop_of_type(Stream& stream, Tensor taken, Tensor scratch, Tensor chosen, Tensor gates, int64_t experts,
                  int64_t seq, const ExpertCapacity& how) {
  const int64_t choices = chosen.last_dim();
  const int64_t capacity = expert_capacity(how.factor, seq, choices, experts);
  stream.run([=, pool = &stream.pool(), kept = how.kept] {
    const int64_t count = seq * choices, sequences = chosen.elements() / count;
    const auto part = [](auto* all, int64_t index, int64_t each) {
      return std::span(all + index * each, static_cast<size_t>(each));
    };
    auto* order = scratch.as<int32_t>();
    int32_t* ends = order + chosen.elements();
    pool->parallel_for(sequences, 1, [&](int64_t first, int64_t last) {
      for (int64_t s = first; s < last; ++s)
        Sequence<T>{part(static_cast<const int32_t*>(chosen.as<int32_t>()), s, count),
                    part(static_cast<const T*>(gates.as<T>()), s, count), part(taken.as<int32_t>(), s, count),
                    part(order, s, count), part(ends, s, experts + 1)}
            .drop(capacity, kept);
    });
  });
}

}  // namespace

int64_t expert_capacity(double factor, int64_t tokens, int64_t choices, int64_t experts) {
  const double rows = factor * static_cast<double>(tokens * choices) / static_cast<double>(experts);
  return rows < static_cast<double>(tokens) ? static_cast<int64_t>(std::ceil(rows * (1 - kRounding)))
                                            : tokens;
}

void drop_choices(Stream& stream, Tensor taken, Tensor scratch, Tensor chosen, Tensor gates, int64_t experts,
                  int64_t seq, const ExpertCapacity& how) {
  check(chosen.rank() == 2 && seq >= 1 && chosen.dim(0) % seq == 0 && how.factor > 0,
        "drop_choices: choices {} of sequences of {} tokens, capacity factor {}", to_string(chosen.shape),
        seq, how.factor);
  check(taken.elements() == chosen.elements() && gates.elements() == chosen.elements() &&
            scratch.elements() == chosen.elements() + chosen.dim(0) / seq * (experts + 1),
        "drop_choices: choices {}, taken {}, gates {}, scratch {}", to_string(chosen.shape),
        to_string(taken.shape), to_string(gates.shape), to_string(scratch.shape));
  if (gates.dtype == DType::F64)
    drop_of_type<double>(stream, taken, scratch, chosen, gates, experts, seq, how);
  else
    drop_of_type<float>(stream, taken, scratch, chosen, gates, experts, seq, how);
}

}  // namespace trifold
