// Activations: elementwise operations y = f(x), dx = dy f'(x), each written once, as a formula, for all back ends.
//
// To add an activation: declare its two operations and list them (ops.h), with an ActivationKind if layers use it; add
// its formula and list it (kernels/formulas.h); add a line to kActivations. Checks, the entries of all tables and the
// layers' choice follow from these.
#pragma once

#include <cstddef>
#include <iterator>
#include <optional>
#include <type_traits>
#include <utility>

#include "ops/kernels/formulas.h"
#include "ops/ops.h"

namespace trifold {

struct ActivationEntries {
  std::optional<ActivationKind> kind;  // none: not an activation of feed-forward networks
  size_t formula;                      // index in cpu::Activations
  const char* name;                    // for messages about `forward`
  const char* backward_name;           // for messages about `backward`
  const char* saved;                   // "x" or "y": the tensor that backward reads in addition to dy
  void (*OpTable::*forward)(Stream&, const Forms& y, Tensor x);
  void (*OpTable::*backward)(Stream&, const Forms& dx, Tensor dy, Tensor saved);
};

inline constexpr ActivationEntries kActivations[] = {
    {ActivationKind::Gelu, cpu::Activations::index<cpu::Gelu>(), "gelu", "gelu_backward", "x", &OpTable::gelu,
     &OpTable::gelu_backward},
    {ActivationKind::GeluErf, cpu::Activations::index<cpu::GeluErf>(), "gelu_erf", "gelu_erf_backward", "x",
     &OpTable::gelu_erf, &OpTable::gelu_erf_backward},
    {ActivationKind::SquaredRelu, cpu::Activations::index<cpu::SquaredRelu>(), "squared_relu",
     "squared_relu_backward", "x", &OpTable::squared_relu, &OpTable::squared_relu_backward},
    {ActivationKind::Relu, cpu::Activations::index<cpu::Relu>(), "rectify", "rectify_backward", "x",
     &OpTable::rectify, &OpTable::rectify_backward},
    {std::nullopt, cpu::Activations::index<cpu::Tanh>(), "tanh", "tanh_backward", "y", &OpTable::tanh,
     &OpTable::tanh_backward},
};
static_assert(std::size(kActivations) == cpu::Activations::kCount,
              "an activation is in one of two lists only");

static_assert(static_cast<size_t>(Gating::Kind::Silu) == cpu::Gates::index<cpu::GatedBySilu>() &&
                  static_cast<size_t>(Gating::Kind::Gelu) == cpu::Gates::index<cpu::GatedBy<cpu::Gelu>>() &&
                  static_cast<size_t>(Gating::Kind::GeluErf) ==
                      cpu::Gates::index<cpu::GatedBy<cpu::GeluErf>>() &&
                  static_cast<size_t>(Gating::Kind::ClampedSilu) ==
                      cpu::Gates::index<cpu::GatedByClampedSilu>(),
              "Gating::Kind and cpu::Gates have different orders");
// What kernels read of a gating.
inline cpu::GateRule gate_rule(const Gating& gating) { return {gating.slope, gating.limit, gating.offset}; }

// The gating of a form with a gate; and the index of a form's formula: in cpu::Gates with a gate, else in
// cpu::Activations.
Gating gating_of(const ActivationForm& form);
size_t formula_of(const ActivationForm& form);

// Calls visit(number), a compile-time constant of type size_t, for every index of kActivations.
template <class Visit>
void for_each_activation(Visit visit) {
  [&]<size_t... Number>(std::index_sequence<Number...>) {
    (visit(std::integral_constant<size_t, Number>()), ...);
  }
  (std::make_index_sequence<std::size(kActivations)>());
}

}  // namespace trifold
