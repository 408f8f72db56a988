// Cases of operations for mixtures of experts.
#include <cmath>

#include "conformance/op_table.h"

namespace trifold::conformance {

namespace {

struct Size {
  int64_t tokens, experts, choices, width, inner;
  int64_t rows() const { return tokens * choices; }
};

// Some experts get no token; some get more than a block of a product has rows.
constexpr Size kSizes[] = {{2, 1, 1, 3, 5}, {24, 5, 2, 17, 12}, {150, 40, 3, 24, 36}, {180, 3, 1, 40, 33}};

void each_size(OpRun& run, const std::function<void(OpRun&, const Size&)>& body) {
  for (const Size& size : kSizes) body(run, size);
}

Tensor logits_of(OpRun& run, const Size& size) {
  return run.in(run.wide(), {size.tokens, size.experts}, normal(size.tokens * size.experts, 1));
}

// Two tokens of three count.
Tensor padding_of(OpRun& run, const Size& size) {
  Values padding;
  for (int64_t t = 0; t < size.tokens; ++t) padding.push_back(t % 3 == 1 ? 1 : 0);
  return run.in(DType::I32, {size.tokens}, padding);
}

void route(OpRun& run, const Size& size) {
  constexpr int64_t kGroups = 4;
  const Shape choices{size.tokens, size.choices};
  const Tensor logits = logits_of(run, size);
  for (const RouterGate gate : {RouterGate::Chosen, RouterGate::All, RouterGate::Sigmoid}) {
    const Router how{size.choices, gate, 1.5};
    const Tensor gates = run.out(run.wide(), choices);
    const Tensor chosen = run.exact(DType::I32, choices);
    run.ops().route(run.stream(), gates, chosen, logits, {}, how);
    run.ops().route(run.stream(), run.out(run.wide(), choices), run.exact(DType::I32, choices), logits,
                    run.in(run.wide(), {size.experts}, normal(size.experts, 2)), how);
    if (size.experts % kGroups == 0)
      for (const int64_t kept : {int64_t{1}, size.choices})
        run.ops().route(run.stream(), run.out(run.wide(), choices), run.exact(DType::I32, choices), logits,
                        run.in(run.wide(), {size.experts}, normal(size.experts, 5)),
                        {size.choices, gate, 1.5, kGroups, kept});
    const Tensor counts = run.exact(DType::I32, {2, size.experts});
    run.ops().router_losses(run.stream(), run.out(run.wide(), {size.tokens}),
                            run.out(run.wide(), {size.tokens}), counts, logits, {}, size.tokens / 2, how);
    run.ops().router_losses(run.stream(), run.out(run.wide(), {size.tokens}),
                            run.out(run.wide(), {size.tokens}), run.exact(DType::I32, {2, size.experts}),
                            logits, padding_of(run, size), size.tokens / 2, how);
    // Losses count the choices without groups; counts of several ranks are read.
    Router in_groups{size.choices, gate, 1.5};
    if (size.experts % kGroups == 0) in_groups.groups = kGroups;
    run.ops().router_losses(run.stream(), run.out(run.wide(), {size.tokens}),
                            run.out(run.wide(), {size.tokens}), run.exact(DType::I32, {2, size.experts}),
                            logits, {}, size.tokens / 2, in_groups);
    in_groups.counted = true;
    run.ops().router_losses(run.stream(), run.out(run.wide(), {size.tokens}),
                            run.out(run.wide(), {size.tokens}),
                            run.in(DType::I32, {2, size.experts}, whole(2 * size.experts, 6, 9)), logits,
                            padding_of(run, size), size.tokens / 2, in_groups);
    run.ops().route_backward(run.stream(), run.out({size.tokens, size.experts}),
                             run.in(run.wide(), choices, normal(size.rows(), 3)), gates, chosen, logits,
                             counts, run.in(DType::F32, {size.tokens}, whole(size.tokens, 4, 3)),
                             Factor(0.5, run.in(DType::F64, {1}, {0.7})), {0.25, 0.125}, how);
  }
}

void jitter(OpRun& run, const Size& size) {
  const Shape shape{size.tokens, size.width};
  const Tensor x = run.in(shape, normal(size.tokens * size.width, 1));
  for (const uint64_t first : {uint64_t{0}, uint64_t{3}, (uint64_t{1} << 34) + 2}) {
    Dropout which{0, philox_key(7, "router"), first};
    if (first == 3) {  // set late
      which.sample = run.in(DType::I64, {1}, {5});
      which.sample_elements = 1234567891;
    }
    run.ops().scale_uniform(run.stream(), run.out(shape), x, 0.75, 1.5, which);
  }
}

struct Order {
  Tensor first, row;
};

Order order_of(OpRun& run, const Size& size) {
  // Ascending, but for the last expert, which nobody chooses.
  Values chosen;
  for (int64_t t = 0; t < size.tokens; ++t)
    for (int64_t s = 0; s < size.choices; ++s)
      chosen.push_back(static_cast<double>(size.choices < size.experts - 1 ? s + t % 2 : s));
  const Tensor first = run.exact(DType::I32, {size.experts + 1});
  const Tensor row = run.exact(DType::I32, {size.tokens, size.choices});
  run.ops().sort_choices(run.stream(), first, row, run.exact(DType::I32, {size.rows()}),
                         run.in(DType::I32, {size.tokens, size.choices}, chosen));
  return {first, row};
}

void rows(OpRun& run, const Size& size) {
  const Order order = order_of(run, size);
  const Shape shape{size.rows(), size.width};
  const Tensor x = run.in(shape, normal(shape.elements(), 1));
  const Tensor gates = run.in(run.wide(), {size.rows()}, normal(size.rows(), 2));
  run.ops().gate_rows(run.stream(), run.out(shape), x, gates, order.row);
  const Tensor dx = run.out(shape, normal(shape.elements(), 3));
  run.ops().gate_rows_backward(run.stream(), dx, run.out(run.wide(), {size.rows()}), dx, x, gates, order.row);
  for (const bool accumulate : {true, false})
    run.ops().sum_choices(
        run.stream(),
        run.out({size.tokens, size.width}, before_sum(normal(size.tokens * size.width, 4), accumulate)), x,
        order.row, accumulate);
}

// More choices and experts than a block of a sort has threads, in no order; half of the experts get none.
void many_choices(OpRun& run) {
  constexpr int64_t kTokens = 700, kExperts = 512, kChoices = 2;
  Values chosen;
  for (int64_t i = 0; i < kTokens * kChoices; ++i) chosen.push_back(static_cast<double>(2 * (i * 149 % 256)));
  run.ops().sort_choices(
      run.stream(), run.exact(DType::I32, {kExperts + 1}), run.exact(DType::I32, {kTokens, kChoices}),
      run.exact(DType::I32, {kTokens * kChoices}), run.in(DType::I32, {kTokens, kChoices}, chosen));
}

// All forms of a feed-forward network's activation, with and without a gate of its own.
void activations_of_rows(OpRun& run, const Size& size) {
  const Order order = order_of(run, size);
  const Shape shape{size.rows(), size.width};
  const Tensor gates = run.in(run.wide(), {size.rows()}, normal(size.rows(), 2));
  for (const ActivationForm& form :
       {ActivationForm(ActivationKind::Gelu), ActivationForm(ActivationKind::GeluErf),
        ActivationForm(ActivationKind::SquaredRelu), ActivationForm(ActivationKind::Relu),
        ActivationForm(ActivationKind::Swiglu), ActivationForm(ActivationKind::Geglu),
        ActivationForm(ActivationKind::GegluErf), ActivationForm::clamped_swiglu(1.7, 0.75, 1)}) {
    const Shape inner{size.rows(), (form.gated() ? 2 : 1) * size.width};
    const Tensor x = run.in(inner, normal(inner.elements(), 1));
    const Tensor dy = run.in(shape, normal(shape.elements(), 3));
    run.ops().activate_choices(run.stream(), run.out(shape), x, gates, order.row, form);
    const Tensor dx = run.out(inner), y = run.out(shape), dgates = run.summed({size.rows()});
    run.ops().activate_choices_backward(run.stream(), dx, y, dgates, dy, x, gates, order.row, form);
  }
}

// Three ranks' rows of the experts, of which some are asked for, from some row on.
void experts_of_ranks(OpRun& run, const Size& size) {
  constexpr int64_t kRanks = 3;
  Values first;
  int64_t here = 0;
  const int64_t begin = size.experts / 2, count = size.experts - begin;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    const Values rows = whole(size.experts, static_cast<uint64_t>(rank + 1), 5);
    double sum = 0;
    for (int64_t e = 0; e <= size.experts; ++e) {
      first.push_back(sum);
      if (e < size.experts) sum += rows[static_cast<size_t>(e)];
      if (e < size.experts && e >= begin) here += static_cast<int64_t>(rows[static_cast<size_t>(e)]);
    }
  }
  const Tensor all = run.in(DType::I32, {kRanks, size.experts + 1}, first);
  run.ops().experts_of_ranks(run.stream(), run.exact(DType::I32, {here}), all, begin, count, 0);
  const int64_t skip = here / 3;
  run.ops().experts_of_ranks(run.stream(), run.exact(DType::I32, {(here - skip) / 2}), all, begin, count,
                             skip);
}

void counts(OpRun& run, const Size& size) {
  const Shape choices{size.tokens, size.choices};
  const Tensor chosen = run.in(DType::I32, choices, whole(size.rows(), 2, size.experts));
  run.ops().add_choice_counts(run.stream(), run.exact(DType::F64, {size.experts}, whole(size.experts, 1, 9)),
                              chosen, {}, 0);
  run.ops().add_choice_counts(run.stream(), run.exact(DType::F64, {1}, {3}), chosen, {}, size.experts / 2);
  run.ops().add_choice_counts(run.stream(), run.exact(DType::F64, {size.experts}, whole(size.experts, 1, 9)),
                              chosen, padding_of(run, size), 0);
  experts_of_ranks(run, size);
}

// Gates have few values, some are no numbers, and most experts have more choices than they take.
void dropped(OpRun& run, const Size& size) {
  const Shape choices{size.tokens, size.choices};
  Values chosen = whole(size.rows(), 2, size.experts), gates = whole(size.rows(), 3, 5);
  for (size_t c = 0; c < chosen.size(); ++c) {
    chosen[c] = std::floor(chosen[c] * chosen[c] / static_cast<double>(size.experts));
    gates[c] = c % 11 == 7 ? std::nan("") : gates[c] == 0 ? -0.0 : (gates[c] - 2) / 4;
  }
  const Tensor expert = run.in(DType::I32, choices, chosen), gate = run.in(run.wide(), choices, gates);
  for (const KeptChoices kept : {KeptChoices::LargestGates, KeptChoices::FirstTokens})
    for (const int64_t sequences : {1, 2})
      for (const int64_t capacity : {int64_t{1}, size.tokens / 4 + 1, size.rows() + 1})
        run.ops().drop_choices(run.stream(), run.exact(DType::I32, choices), expert, gate,
                               {size.experts, size.tokens / sequences, capacity, kept});
  for (const double begin : {0.0, 1.0, static_cast<double>(size.rows())})
    run.ops().clear_rows(run.stream(),
                         run.out({size.rows(), size.width}, normal(size.rows() * size.width, 4)),
                         run.in(DType::I32, {1}, {begin}));
}

void products(OpRun& run, const Size& size) {
  const Order order = order_of(run, size);
  const int64_t rows = size.rows(), n = size.inner, k = size.width;
  const Shape weights{size.experts, n, k};
  const Tensor w = run.in(weights, normal(weights.elements(), 1));
  const Tensor x = run.in({rows, k}, normal(rows * k, 2));
  const Tensor dy = run.in({rows, n}, normal(rows * n, 3));
  run.ops().expert_product(run.stream(), run.out({rows, n}), x, w, order.first, true);
  run.ops().expert_product(run.stream(), run.out({rows, k}), dy, w, order.first, false);
  for (const bool accumulate : {true, false})
    run.ops().expert_product_weight(
        run.stream(), run.out(run.wide(), weights, before_sum(normal(weights.elements(), 4), accumulate)), dy,
        x, order.first, accumulate);
}

// Products that a GPU computes with tensor cores in 16 bits, since columns are multiples of 8: the `rows` of each expert,
// n and k. Experts without rows, with a few and with more than a tile of 128; columns that fill no tile of 256, and more;
// sums over more numbers than are copied ahead, and over few.
struct Products {
  Values rows;
  int64_t n, k;
};

void tiled_products(OpRun& run) {
  const bool wide = accumulate_type(run.rounded()) == run.rounded();
  std::vector<Products> all{{{3, 0}, 8, 24}, {{2, 4, 0, 1}, 5, 1}};  // the second as biases are computed
  if (!wide) all.push_back({{0, 130, 3}, 72, 264});
  for (const auto& [count, n, k] : all) {
    const auto experts = static_cast<int64_t>(count.size());
    Values first{0};
    for (const double here : count) first.push_back(first.back() + here);
    const auto rows = static_cast<int64_t>(first.back());
    const Tensor begins = run.in(DType::I32, {experts + 1}, first);
    const Shape weights{experts, n, k};
    const Tensor w = run.in(weights, normal(weights.elements(), 1));
    const Tensor x = run.in({rows, k}, normal(rows * k, 2));
    const Tensor dy = run.in({rows, n}, normal(rows * n, 3));
    run.ops().expert_product(run.stream(), run.out({rows, n}), x, w, begins, true);
    run.ops().expert_product(run.stream(), run.out({rows, k}), dy, w, begins, false);
    for (const bool accumulate : {true, false})
      run.ops().expert_product_weight(
          run.stream(), run.out(run.wide(), weights, before_sum(normal(weights.elements(), 4), accumulate)),
          dy, x, begins, accumulate);
  }
}

}  // namespace

std::vector<OpCase> experts_op_cases() {
  const auto every = [](void (*body)(OpRun&, const Size&)) {
    return [body](OpRun& run) { each_size(run, body); };
  };
  return {
      {"router", entries(&OpTable::route, &OpTable::router_losses, &OpTable::route_backward), false, 8,
       every(route)},
      {"jitter", entries(&OpTable::scale_uniform), false, 1, every(jitter)},
      {"rows of choices",
       entries(&OpTable::sort_choices, &OpTable::gate_rows, &OpTable::gate_rows_backward,
               &OpTable::sum_choices),
       false, 4, every(rows)},
      {"many choices", entries(&OpTable::sort_choices), false, 1, many_choices},
      {"activations of wide choices",
       entries(&OpTable::activate_choices, &OpTable::activate_choices_backward), false, 4,
       [](OpRun& run) {
         activations_of_rows(run, {3, 2, 1, 2056, 8});
       }},
      {"activations of choices", entries(&OpTable::activate_choices, &OpTable::activate_choices_backward),
       false, 4, every(activations_of_rows)},
      {"counts of choices", entries(&OpTable::add_choice_counts, &OpTable::experts_of_ranks), false, 1,
       every(counts)},
      {"dropped choices", entries(&OpTable::drop_choices, &OpTable::clear_rows), false, 1, every(dropped)},
      {"products of experts", entries(&OpTable::expert_product, &OpTable::expert_product_weight), false, 4,
       every(products)},
      {"tiled products of experts", entries(&OpTable::expert_product, &OpTable::expert_product_weight), false,
       4, tiled_products}};
}

}  // namespace trifold::conformance
