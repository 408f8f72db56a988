// The CUDA entries of a mixture of experts.
#include <algorithm>
#include <initializer_list>

#include "ops/activations.h"
#include "ops/composed.h"
#include "ops/cuda/entries.h"
#include "ops/cuda/entries_support.h"

namespace trifold::cuda {

namespace {

const int32_t* padding_of(const Tensor& padding) {
  return padding.data == nullptr ? nullptr : padding.as<int32_t>();
}

// Whether rows consist of whole packs of 16 bits, which is what choice_activations.cu computes.
bool in_packs(const Tensor& y, std::initializer_list<Tensor> others) {
  constexpr int64_t kPack = 16;
  const auto whole = [](const Tensor& tensor) {
    return reinterpret_cast<uintptr_t>(tensor.data) % static_cast<uintptr_t>(kPack) == 0;
  };
  return size_of(y.dtype) == 2 && y.last_dim() * 2 % kPack == 0 && whole(y) &&
         std::all_of(others.begin(), others.end(), whole);
}

ChoiceActivation activation_of(const ActivationForm& form) {
  const Gating gating = form.gated() ? gating_of(form) : Gating{};
  return {formula_of(form), form.gated(), gate_rule(gating)};
}

// Calls launch(T) for a type of 16 bits.
template <class Launch>
void dispatch_16bit(DType dtype, const Launch& launch) {
  dispatch_float(dtype, [&](auto zero) {
    if constexpr (sizeof(zero) == 2) launch(zero);
  });
}

}  // namespace

void route(Stream& stream, Tensor gates, Tensor chosen, Tensor logits, Tensor bias, const Router& router) {
  dispatch_wide_float(logits.dtype, [&](auto zero) {
    using W = decltype(zero);
    enqueue(stream, "route",
            [router, weights = gates.as<W>(), to = chosen.as<int32_t>(), from = logits.as<W>(),
             shift = bias.data == nullptr ? nullptr : bias.as<W>(), tokens = logits.row_count(),
             experts = logits.last_dim()](CudaStream on) {
              route<W>(on, weights, to, from, shift, tokens, experts, router);
            });
  });
}

void router_losses(Stream& stream, Tensor balance, Tensor z, Tensor counts, Tensor logits, Tensor padding,
                   int64_t seq, const Router& router) {
  const int64_t tokens = logits.row_count();
  dispatch_wide_float(logits.dtype, [&](auto zero) {
    using W = decltype(zero);
    enqueue_with_scratch(stream, "router_losses", router_workspace(tokens * router.choices),
                         [router, seq, tokens, even = balance.as<W>(), size = z.as<W>(),
                          counted = counts.as<int32_t>(), from = logits.as<W>(), padded = padding_of(padding),
                          experts = logits.last_dim()](CudaStream on, void* scratch) {
                           router_losses<W>(on, scratch, even, size, counted, from, padded, tokens, experts,
                                            seq, router);
                         });
  });
}

void route_backward(Stream& stream, Tensor dlogits, Tensor dgates, Tensor gates, Tensor chosen, Tensor logits,
                    Tensor counts, Tensor weight, const Factor& loss, const RouterLosses& losses,
                    const Router& router) {
  constexpr const char* kOp = "route_backward";
  const int64_t experts = logits.last_dim();
  const int64_t tokens = logits.row_count();
  const cpu::LateFactor factor = cpu::late(kOp, loss);
  const int64_t seq = tokens * experts / std::max<int64_t>(1, counts.elements());
  dispatch_float(dlogits.dtype, [&](auto zero) {
    using T = decltype(zero);
    using Wide = Accumulate<T>;
    const cpu::RouterGradient<T> in{dgates.as<Wide>(),
                                    gates.as<Wide>(),
                                    chosen.as<int32_t>(),
                                    logits.as<Wide>(),
                                    counts.as<int32_t>(),
                                    weight.as<float>(),
                                    factor,
                                    losses,
                                    router,
                                    experts,
                                    seq};
    enqueue(stream, kOp,
            [in, tokens, out = dlogits.as<T>()](CudaStream on) { route_backward<T>(on, out, in, tokens); });
  });
}

void drop_choices(Stream& stream, Tensor taken, Tensor chosen, Tensor gates, const ExpertLimit& limit) {
  dispatch_wide_float(gates.dtype, [&](auto zero) {
    using W = decltype(zero);
    enqueue_with_scratch(
        stream, "drop_choices", router_workspace(chosen.elements()),
        [limit, to = taken.as<int32_t>(), expert = chosen.as<int32_t>(), gate = gates.as<W>(),
         all = chosen.elements(), choices = limit.seq * chosen.last_dim()](CudaStream on, void* scratch) {
          drop_choices<W>(on, scratch, to, expert, gate, all, choices, limit);
        });
  });
}

void sort_choices(Stream& stream, Tensor first, Tensor row, Tensor token, Tensor chosen) {
  enqueue(stream, "sort_choices",
          [begins = first.as<int32_t>(), place = row.as<int32_t>(), of = token.as<int32_t>(),
           expert = chosen.as<int32_t>(), experts = first.elements() - 1, count = chosen.elements(),
           each = chosen.last_dim()](CudaStream on) {
            sort_choices(on, begins, place, of, expert, experts, count, each);
          });
}

void add_choice_counts(Stream& stream, Tensor counts, Tensor chosen, Tensor padding, int64_t begin) {
  enqueue(stream, "add_choice_counts",
          [sums = counts.as<double>(), expert = chosen.as<int32_t>(), padded = padding_of(padding),
           experts = counts.elements(), choices = chosen.elements(), each = chosen.last_dim(),
           begin](CudaStream on) {
            add_choice_counts(on, sums, expert, {padded, each}, experts, choices, begin);
          });
}

void clear_rows(Stream& stream, Tensor y, Tensor begin) {
  dispatch_float(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "clear_rows",
            [to = y.as<T>(), first = begin.as<int32_t>(), rows = y.row_count(),
             columns = y.last_dim()](CudaStream on) { clear_rows<T>(on, to, first, rows, columns); });
  });
}

void experts_of_ranks(Stream& stream, Tensor expert, Tensor first, int64_t begin, int64_t local_experts,
                      int64_t skip) {
  enqueue(stream, "experts_of_ranks",
          [=, to = expert.as<int32_t>(), rows = expert.elements(), begins = first.as<int32_t>(),
           ranks = first.dim(0), each = first.last_dim()](CudaStream on) {
            experts_of_ranks(on, to, begins, ranks, each, begin, local_experts, skip, rows);
          });
}

void gate_rows(Stream& stream, Tensor y, Tensor x, Tensor gates, Tensor row) {
  dispatch_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "gate_rows",
            [out = y.as<T>(), in = x.as<T>(), gate = gates.as<Accumulate<T>>(), rows = row.as<int32_t>(),
             choices = row.elements(), columns = x.last_dim()](CudaStream on) {
              gate_rows<T>(on, out, in, gate, rows, choices, columns);
            });
  });
}

void gate_rows_backward(Stream& stream, Tensor dx, Tensor dgates, Tensor dy, Tensor x, Tensor gates,
                        Tensor row) {
  dispatch_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    using Wide = Accumulate<T>;
    enqueue(stream, "gate_rows_backward",
            [out = dx.as<T>(), slope = dgates.as<Wide>(), grad = dy.as<T>(), in = x.as<T>(),
             gate = gates.as<Wide>(), rows = row.as<int32_t>(), choices = row.elements(),
             columns = x.last_dim()](CudaStream on) {
              gate_rows_backward<T>(on, out, slope, grad, in, gate, rows, choices, columns);
            });
  });
}

namespace {

// The entries that activate_choices is composed of where it has no kernel.
const OpTable& parts_of_activation() {
  static const OpTable kTable = [] {
    OpTable ops{};
    add_elementwise(ops);
    add_experts(ops);
    return ops;
  }();
  return kTable;
}

}  // namespace

void activate_choices(Stream& stream, Tensor y, Tensor x, Tensor gates, Tensor row,
                      const ActivationForm& form) {
  if (!in_packs(y, {x}))
    return Composed<parts_of_activation>::activate_choices(stream, y, x, gates, row, form);
  dispatch_16bit(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "activate_choices",
            [activation = activation_of(form), out = y.as<T>(), in = x.as<T>(), gate = gates.as<float>(),
             rows = row.as<int32_t>(), choices = row.elements(), columns = y.last_dim()](CudaStream on) {
              activate_choices<T>(on, activation, out, in, gate, rows, choices, columns);
            });
  });
}

void activate_choices_backward(Stream& stream, Tensor dx, Tensor y, Tensor dgates, Tensor dy, Tensor x,
                               Tensor gates, Tensor row, const ActivationForm& form) {
  if (!in_packs(y, {dx, dy, x}))
    return Composed<parts_of_activation>::activate_choices_backward(stream, dx, y, dgates, dy, x, gates, row,
                                                                    form);
  dispatch_16bit(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "activate_choices_backward",
            [activation = activation_of(form), to = dx.as<T>(), out = y.as<T>(), slope = dgates.as<float>(),
             grad = dy.as<T>(), in = x.as<T>(), gate = gates.as<float>(), rows = row.as<int32_t>(),
             choices = row.elements(), columns = y.last_dim()](CudaStream on) {
              activate_choices_backward<T>(on, activation, to, out, slope, grad, in, gate, rows, choices,
                                           columns);
            });
  });
}

void sum_choices(Stream& stream, Tensor y, Tensor x, Tensor row, bool accumulate) {
  dispatch_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "sum_choices",
            [out = y.as<T>(), in = x.as<T>(), rows = row.as<int32_t>(), tokens = row.dim(0),
             choices = row.last_dim(), columns = x.last_dim(), accumulate](CudaStream on) {
              sum_choices<T>(on, out, in, rows, tokens, choices, columns, accumulate);
            });
  });
}

void expert_product(Stream& stream, Tensor y, Tensor x, Tensor w, Tensor first, bool transposed) {
  dispatch_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "expert_product",
            [out = y.as<T>(), in = x.as<T>(), weights = w.as<T>(), begins = first.as<int32_t>(),
             rows = x.row_count(), experts = w.dim(0), n = y.last_dim(), k = x.last_dim(),
             transposed](CudaStream on) {
              expert_product<T>(on, out, in, weights, begins, rows, experts, n, k, transposed);
            });
  });
}

void expert_product_weight(Stream& stream, Tensor dw, Tensor dy, Tensor x, Tensor first, bool accumulate) {
  dispatch_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "expert_product_weight",
            [out = dw.as<Accumulate<T>>(), grad = dy.as<T>(), in = x.as<T>(), begins = first.as<int32_t>(),
             rows = dy.row_count(), experts = dw.dim(0), m = dw.dim(1), n = dw.dim(2),
             accumulate](CudaStream on) {
              expert_product_weight<T>(on, out, grad, in, begins, rows, experts, m, n, accumulate);
            });
  });
}

void add_experts(OpTable& ops) {
  ops.route = route;
  ops.router_losses = router_losses;
  ops.route_backward = route_backward;
  ops.drop_choices = drop_choices;
  ops.sort_choices = sort_choices;
  ops.gate_rows = gate_rows;
  ops.gate_rows_backward = gate_rows_backward;
  ops.activate_choices = activate_choices;
  ops.activate_choices_backward = activate_choices_backward;
  ops.sum_choices = sum_choices;
  ops.expert_product = expert_product;
  ops.expert_product_weight = expert_product_weight;
  ops.add_choice_counts = add_choice_counts;
  ops.clear_rows = clear_rows;
  ops.experts_of_ranks = experts_of_ranks;
}

}  // namespace trifold::cuda
