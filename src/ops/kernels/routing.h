// The router of a mixture of experts (ops/experts.h), one token at a time. All back ends use this code.
#pragma once

#include "ops/kernels.h"
#include "ops/kernels/formulas.h"
#include "ops/kernels/math.h"
#include "ops/kernels/number.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

// Calls visit(slot, index) for the `wanted` largest of key(i), 0 <= i < count, among the indices for which allowed(i)
// holds: the largest first, ties by index. No visited flags are needed: an index was visited if its key is greater than
// the last one, or equal with a lower index. If NaNs leave too few keys, arbitrary indices fill the remaining slots.
template <class T, class Key, class Allowed, class Visit>
HD inline void visit_largest_of(int64_t count, int64_t wanted, Key key, Allowed allowed, Visit visit) {
  T last = 0;
  int64_t last_at = -1;
  for (int64_t slot = 0; slot < wanted; ++slot) {
    T best = 0;
    int64_t at = -1;
    for (int64_t i = 0; i < count; ++i) {
      if (!allowed(i)) continue;
      const T number = key(i);
      const bool left = slot == 0 || number < last || (number == last && i > last_at);
      if (left && (at < 0 ? number == number : number > best)) {
        best = number;
        at = i;
      }
    }
    if (at < 0) at = slot;
    visit(slot, at);
    last = best;
    last_at = at;
  }
}

template <class T, class Key, class Visit>
HD inline void visit_largest(int64_t count, int64_t wanted, Key key, Visit visit) {
  visit_largest_of<T>(
      count, wanted, key, [](int64_t) { return true; }, visit);
}

// A softmax: log of the sum of exp(z) = most + log(sum), with `most` the largest z.
template <class T>
struct Spread {
  T most, sum;
  HD inline T share(T z) const { return exp_of(z - most) / sum; }
  HD inline T log_sum() const { return most + log_of(sum); }
};
template <class T>
HD inline Spread<T> spread_of(const T* z, int64_t experts) {
  Spread<T> spread{z[0], 0};
  for (int64_t i = 1; i < experts; ++i) spread.most = larger(spread.most, z[i]);
  for (int64_t i = 0; i < experts; ++i) spread.sum += exp_of(z[i] - spread.most);
  return spread;
}

// Prevents division by zero if all logistic functions are zero.
inline constexpr double kSmallestSum = 1e-20;

template <class T>
HD inline T sum_of_sigmoids(const T* z, const int32_t* chosen, int64_t choices) {
  T sum = T(kSmallestSum);
  for (int64_t s = 0; s < choices; ++s) sum += sigmoid_of(z[chosen[s]]);
  return sum;
}

template <class T>
HD inline void gates_of(T* gates, const int32_t* chosen, const T* z, int64_t experts, const Router& router) {
  const auto scale = static_cast<T>(router.scale);
  if (router.gate == RouterGate::Sigmoid) {
    const T sum = router.choices == 1 ? T(1) : sum_of_sigmoids(z, chosen, router.choices);
    for (int64_t s = 0; s < router.choices; ++s) gates[s] = scale * sigmoid_of(z[chosen[s]]) / sum;
    return;
  }
  Spread<T> spread{z[chosen[0]], 0};
  if (router.gate == RouterGate::All) {
    spread = spread_of(z, experts);
  } else {
    for (int64_t s = 1; s < router.choices; ++s) spread.most = larger(spread.most, z[chosen[s]]);
    for (int64_t s = 0; s < router.choices; ++s) spread.sum += exp_of(z[chosen[s]] - spread.most);
  }
  for (int64_t s = 0; s < router.choices; ++s) gates[s] = scale * spread.share(z[chosen[s]]);
}

// Calls visit(slot, expert) for the experts with the best scores key(expert) in the best groups (Router::groups).
template <class T, class Key, class Visit>
HD inline void visit_best_in_groups(int64_t experts, const Router& router, Key key, Visit visit) {
  const int64_t each = experts / router.groups;
  const int64_t counted = router.choices / router.kept_groups;
  uint64_t kept = 0;  // one bit for each group
  visit_largest<T>(
      router.groups, router.kept_groups,
      [=](int64_t group) {
        const auto in_group = [=](int64_t i) { return key(group * each + i); };
        T sum = 0;
        visit_largest<T>(each, counted, in_group,
                         [&sum, in_group](int64_t, int64_t i) { sum += in_group(i); });
        return sum;
      },
      [&kept](int64_t, int64_t group) { kept |= uint64_t{1} << group; });
  visit_largest_of<T>(
      experts, router.choices, key, [=](int64_t i) { return (kept >> (i / each) & 1) != 0; }, visit);
}

template <class T, class Visit>
HD inline void choose_in_groups(const T* z, const T* bias, int64_t experts, const Router& router,
                                Visit visit) {
  if (router.gate == RouterGate::Sigmoid)
    return visit_best_in_groups<T>(
        experts, router,
        [z, bias](int64_t i) { return sigmoid_of(z[i]) + (bias == nullptr ? T(0) : bias[i]); }, visit);
  if (router.gate == RouterGate::Chosen)
    return visit_best_in_groups<T>(
        experts, router, [z](int64_t i) { return z[i]; }, visit);
  const Spread<T> spread = spread_of(z, experts);
  visit_best_in_groups<T>(
      experts, router, [z, spread](int64_t i) { return spread.share(z[i]); }, visit);
}

template <class T>
HD inline void route_token(T* gates, int32_t* chosen, const T* z, const T* bias, int64_t experts,
                           const Router& router) {
  const auto put_in_order = [chosen](int64_t slot, int64_t expert) {
    for (; slot > 0 && chosen[slot - 1] > expert; --slot) chosen[slot] = chosen[slot - 1];
    chosen[slot] = static_cast<int32_t>(expert);
  };
  if (router.groups > 1) {
    choose_in_groups(z, bias, experts, router, put_in_order);
  } else if (bias == nullptr) {
    visit_largest<T>(
        experts, router.choices, [z](int64_t i) { return z[i]; }, put_in_order);
  } else {
    visit_largest<T>(
        experts, router.choices, [z, bias](int64_t i) { return sigmoid_of(z[i]) + bias[i]; }, put_in_order);
  }
  gates_of(gates, chosen, z, experts, router);
}

// A token's scores, which sum to 1, for the balancing loss (OpTable::router_losses).
template <class T>
struct Scores {
  const T* z;
  bool sigmoid;
  T divisor;
  Spread<T> spread;

  HD inline Scores(const T* logits, int64_t experts, const Router& router)
      : z(logits),
        sigmoid(router.gate == RouterGate::Sigmoid),
        divisor(T(kSmallestSum)),
        spread(spread_of(logits, experts)) {
    if (sigmoid)
      for (int64_t i = 0; i < experts; ++i) divisor += sigmoid_of(z[i]);
  }
  HD inline T operator()(int64_t i) const {
    return sigmoid ? sigmoid_of(z[i]) / divisor : spread.share(z[i]);
  }
  // The sum over experts of score times count.
  HD inline T counted(const int32_t* counts, int64_t experts) const {
    T sum = 0;
    for (int64_t i = 0; i < experts; ++i) sum += static_cast<T>(counts[i]) * (*this)(i);
    return sum;
  }
};

HD inline double balance_factor(const int32_t* counts, int64_t experts) {
  int64_t all = 0;
  for (int64_t i = 0; i < experts; ++i) all += counts[i];
  return all == 0 ? 0.0 : static_cast<double>(experts) / static_cast<double>(all);
}

template <class T>
HD inline void token_losses(T& balance, T& z_loss, const T* z, const int32_t* counts, int64_t experts,
                            const Router& router) {
  const Scores<T> scores(z, experts, router);
  const T log_sum = scores.spread.log_sum();
  balance = static_cast<T>(balance_factor(counts, experts)) * scores.counted(counts, experts);
  z_loss = log_sum * log_sum;
}

// The gradient of the logits of token `t`. `in` has all tokens.
template <class T>
HD inline void token_gradient(T* dlogits, const RouterGradient<T>& in, int64_t t) {
  using Wide = Accumulate<T>;
  const Router& router = in.router;
  const Wide* z = in.logits + t * in.experts;
  const Wide* gates = in.gates + t * router.choices;
  const Wide* dgates = in.dgates + t * router.choices;
  const int32_t* chosen = in.chosen + t * router.choices;
  const int32_t* counts = in.counts + t / in.seq * in.experts;
  const Scores<Wide> scores(z, in.experts, router);
  const double loss = in.loss.now() * static_cast<double>(in.weight[t]);
  const auto balance = static_cast<Wide>(loss * in.losses.balance * balance_factor(counts, in.experts));
  const Wide z_slope = static_cast<Wide>(2 * loss * in.losses.z) * scores.spread.log_sum();
  const Wide counted = scores.counted(counts, in.experts);
  const auto scale = static_cast<Wide>(router.scale);
  Wide shared = 0;  // the part that is common to the choices' gradients
  for (int64_t s = 0; s < router.choices; ++s) shared += dgates[s] * gates[s];
  const bool one_sigmoid = router.choices == 1;
  const Wide sum = one_sigmoid || !scores.sigmoid ? Wide(1) : sum_of_sigmoids(z, chosen, router.choices);
  int64_t slot = 0;
  for (int64_t i = 0; i < in.experts; ++i) {
    const Wide p = scores.spread.share(z[i]);
    Wide d = z_slope * p;
    Wide slope = p;  // derivative factor of the score
    if (scores.sigmoid) {
      const Wide s = sigmoid_of(z[i]);
      slope = s * (1 - s) / scores.divisor;
    }
    d += balance * slope * (static_cast<Wide>(counts[i]) - counted);
    if (router.gate == RouterGate::All) d -= p * shared;
    if (slot < router.choices && chosen[slot] == i) {
      if (router.gate == RouterGate::Chosen) {
        d += gates[slot] * (dgates[slot] - shared / scale);
      } else if (router.gate == RouterGate::All) {
        d += gates[slot] * dgates[slot];
      } else {
        const Wide s = sigmoid_of(z[i]);
        d += s * (1 - s) * (one_sigmoid ? scale * dgates[slot] : (scale * dgates[slot] - shared) / sum);
      }
      ++slot;
    }
    put(dlogits[i], d);
  }
}

}  // namespace
}  // namespace trifold::cpu
