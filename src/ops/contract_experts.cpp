// The contract of a mixture of experts.
#include <limits>

#include "ops/contract.h"
#include "ops/expect.h"

namespace trifold::contract {

namespace {

void expect_router(const char* op, const Tensor& logits, const Router& router) {
  expect_matrix(op, "logits", logits);
  check(accumulate_type(logits.dtype) == logits.dtype, "{}: logits are {}, but f32 or f64 is needed", op,
        name_of(logits.dtype));
  check(router.choices >= 1 && router.choices <= logits.last_dim(),
        "{}: {} experts a token of {} experts: give 1 to the number of experts", op, router.choices,
        logits.last_dim());
  if (router.groups == 1) return;
  const int64_t each = router.groups > 0 ? logits.last_dim() / router.groups : 0;
  check(router.groups >= 1 && router.groups <= kMostGroups && each * router.groups == logits.last_dim(),
        "{}: {} experts do not divide into {} groups of one size (at most {} groups)", op, logits.last_dim(),
        router.groups, kMostGroups);
  check(router.kept_groups >= 1 && router.kept_groups <= router.groups &&
            router.choices % router.kept_groups == 0 && router.choices / router.kept_groups <= each,
        "{}: {} experts a token cannot be chosen evenly from {} of {} groups of {} experts", op,
        router.choices, router.kept_groups, router.groups, each);
}

// Checks the rows of choices; `row` has one element per choice.
void expect_rows(const char* op, const Tensor& x, const Tensor& row) {
  expect_matrix(op, "x", x);
  expect(op, "row", row, DType::I32, x.row_count());
}

void expect_experts(const char* op, const Tensor& w, const Tensor& first) {
  if (w.rank() != 3)
    fail("{}: weights are {}, but [experts, rows, columns] is needed", op, to_string(w.shape));
  expect(op, "first", first, DType::I32, w.dim(0) + 1);
}

}  // namespace

void route(const Tensor& gates, const Tensor& chosen, const Tensor& logits, const Tensor& bias,
           const Router& router) {
  expect_router("route", logits, router);
  expect("route", "gates", gates, logits.dtype, logits.row_count() * router.choices);
  expect("route", "chosen", chosen, DType::I32, logits.row_count() * router.choices);
  if (bias.data != nullptr) expect("route", "bias", bias, logits.dtype, logits.last_dim());
}

void router_losses(const Tensor& balance, const Tensor& z, const Tensor& counts, const Tensor& logits,
                   const Tensor& padding, int64_t seq, const Router& router) {
  constexpr const char* kOp = "router_losses";
  expect_router(kOp, logits, router);
  const int64_t tokens = logits.row_count();
  check(seq >= 1 && tokens % seq == 0, "{}: {} tokens are not a multiple of the sequence length {}", kOp,
        tokens, seq);
  expect(kOp, "balance", balance, logits.dtype, tokens);
  expect(kOp, "z", z, logits.dtype, tokens);
  expect(kOp, "counts", counts, DType::I32, tokens / seq * logits.last_dim());
  if (padding.data != nullptr) expect(kOp, "padding", padding, DType::I32, tokens);
}

void route_backward(const Tensor& dlogits, const Tensor& dgates, const Tensor& gates, const Tensor& chosen,
                    const Tensor& logits, const Tensor& counts, const Tensor& weight, const Factor& /*loss*/,
                    const RouterLosses& /*losses*/, const Router& router) {
  constexpr const char* kOp = "route_backward";
  expect_router(kOp, logits, router);
  const int64_t tokens = logits.row_count();
  const int64_t experts = logits.last_dim();
  expect_float(kOp, "dlogits", dlogits);
  if (dlogits.elements() != logits.elements() || accumulate_type(dlogits.dtype) != logits.dtype)
    fail(
        "{}: the gradient {} {} does not match the logits {} {}: element counts and accumulation types must be equal",
        kOp, name_of(dlogits.dtype), to_string(dlogits.shape), name_of(logits.dtype),
        to_string(logits.shape));
  expect(kOp, "dgates", dgates, logits.dtype, tokens * router.choices);
  expect(kOp, "gates", gates, logits.dtype, tokens * router.choices);
  expect(kOp, "chosen", chosen, DType::I32, tokens * router.choices);
  expect(kOp, "counts", counts, DType::I32, counts.elements());
  const int64_t sequences = counts.elements() / experts;
  if (counts.elements() % experts != 0 || sequences < 1 || tokens % sequences != 0)
    fail(
        "{}: counts are {}, but [sequences, experts] is needed, for {} tokens in equal sequences and {} experts",
        kOp, to_string(counts.shape), tokens, experts);
  expect(kOp, "weight", weight, DType::F32, tokens);
}

void drop_choices(const Tensor& taken, const Tensor& chosen, const Tensor& gates, const ExpertLimit& limit) {
  constexpr const char* kOp = "drop_choices";
  check(chosen.rank() == 2, "{}: chosen is {}, but [tokens, choices] is needed", kOp,
        to_string(chosen.shape));
  check(
      limit.experts >= 1 && limit.seq >= 1 && chosen.dim(0) % limit.seq == 0 && limit.capacity >= 1,
      "{}: capacity {} for assignments {} in sequences of {} tokens to {} experts: capacity and experts must be "
      "positive, and tokens a multiple of the sequence length",
      kOp, limit.capacity, to_string(chosen.shape), limit.seq, limit.experts);
  check(chosen.elements() <= std::numeric_limits<int32_t>::max(), "{}: {} assignments are more than 2^31 - 1",
        kOp, chosen.elements());
  expect(kOp, "chosen", chosen, DType::I32, chosen.elements());
  expect(kOp, "taken", taken, DType::I32, chosen.elements());
  check(accumulate_type(gates.dtype) == gates.dtype, "{}: gates are {}, but f32 or f64 is needed", kOp,
        name_of(gates.dtype));
  expect(kOp, "gates", gates, gates.dtype, chosen.elements());
}

void sort_choices(const Tensor& first, const Tensor& row, const Tensor& token, const Tensor& chosen) {
  constexpr const char* kOp = "sort_choices";
  expect(kOp, "first", first, DType::I32, first.elements());
  expect(kOp, "chosen", chosen, DType::I32, chosen.elements());
  if (first.elements() < 2 || chosen.rank() != 2)
    fail("{}: chosen is {} and first is {}, but [tokens, choices] and [experts + 1] are needed", kOp,
         to_string(chosen.shape), to_string(first.shape));
  check(chosen.elements() <= std::numeric_limits<int32_t>::max(), "{}: {} assignments are more than 2^31 - 1",
        kOp, chosen.elements());
  expect(kOp, "row", row, DType::I32, chosen.elements());
  expect(kOp, "token", token, DType::I32, chosen.elements());
}

void gate_rows(const Tensor& y, const Tensor& x, const Tensor& gates, const Tensor& row) {
  expect_rows("gate_rows", x, row);
  expect("gate_rows", "y", y, x.dtype, x.elements());
  expect("gate_rows", "gates", gates, accumulate_type(x.dtype), x.row_count());
}

void gate_rows_backward(const Tensor& dx, const Tensor& dgates, const Tensor& dy, const Tensor& x,
                        const Tensor& gates, const Tensor& row) {
  constexpr const char* kOp = "gate_rows_backward";
  expect_rows(kOp, x, row);
  expect(kOp, "dx", dx, x.dtype, x.elements());
  expect(kOp, "dy", dy, x.dtype, x.elements());
  expect(kOp, "dgates", dgates, accumulate_type(x.dtype), x.row_count());
  expect(kOp, "gates", gates, accumulate_type(x.dtype), x.row_count());
}

void activate_choices(const Tensor& y, const Tensor& x, const Tensor& gates, const Tensor& row,
                      const ActivationForm& form) {
  constexpr const char* kOp = "activate_choices";
  expect_matrix(kOp, "y", y);
  expect(kOp, "x", x, y.dtype, (form.gated() ? 2 : 1) * y.elements());
  expect(kOp, "gates", gates, accumulate_type(y.dtype), y.row_count());
  expect(kOp, "row", row, DType::I32, y.row_count());
}

void activate_choices_backward(const Tensor& dx, const Tensor& y, const Tensor& dgates, const Tensor& dy,
                               const Tensor& x, const Tensor& gates, const Tensor& row,
                               const ActivationForm& form) {
  constexpr const char* kOp = "activate_choices_backward";
  expect_matrix(kOp, "y", y);
  expect(kOp, "dy", dy, y.dtype, y.elements());
  expect(kOp, "x", x, y.dtype, (form.gated() ? 2 : 1) * y.elements());
  expect(kOp, "dx", dx, y.dtype, x.elements());
  expect(kOp, "dgates", dgates, accumulate_type(y.dtype), y.row_count());
  expect(kOp, "gates", gates, accumulate_type(y.dtype), y.row_count());
  expect(kOp, "row", row, DType::I32, y.row_count());
}

void sum_choices(const Tensor& y, const Tensor& x, const Tensor& row, bool /*accumulate*/) {
  expect_rows("sum_choices", x, row);
  if (row.rank() != 2) fail("sum_choices: row is {}, but [tokens, choices] is needed", to_string(row.shape));
  expect("sum_choices", "y", y, x.dtype, row.dim(0) * x.last_dim());
}

void expert_product(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& first, bool transposed) {
  constexpr const char* kOp = "expert_product";
  expect_experts(kOp, w, first);
  expect_matrix(kOp, "x", x);
  const int64_t rows = x.row_count();
  expect(kOp, "x", x, w.dtype, rows * w.dim(transposed ? 2 : 1));
  expect(kOp, "y", y, w.dtype, rows * w.dim(transposed ? 1 : 2));
}

void expert_product_weight(const Tensor& dw, const Tensor& dy, const Tensor& x, const Tensor& first,
                           bool /*accumulate*/) {
  constexpr const char* kOp = "expert_product_weight";
  expect_experts(kOp, dw, first);
  expect_matrix(kOp, "x", x);
  const int64_t rows = x.row_count();
  expect(kOp, "dw", dw, accumulate_type(x.dtype), dw.elements());
  expect(kOp, "x", x, x.dtype, rows * dw.dim(2));
  expect(kOp, "dy", dy, x.dtype, rows * dw.dim(1));
}

void add_choice_counts(const Tensor& counts, const Tensor& chosen, const Tensor& padding, int64_t begin) {
  constexpr const char* kOp = "add_choice_counts";
  check(chosen.rank() == 2, "{}: chosen is {}, but [tokens, choices] is needed", kOp,
        to_string(chosen.shape));
  expect(kOp, "counts", counts, DType::F64, counts.elements());
  expect(kOp, "chosen", chosen, DType::I32, chosen.elements());
  if (padding.data != nullptr) expect(kOp, "padding", padding, DType::I32, chosen.dim(0));
  check(begin >= 0, "{}: the first expert is {}, but it must be at least 0", kOp, begin);
}

void clear_rows(const Tensor& y, const Tensor& begin) {
  expect_matrix("clear_rows", "y", y);
  expect_float("clear_rows", "y", y);
  expect("clear_rows", "begin", begin, DType::I32, 1);
}

void experts_of_ranks(const Tensor& expert, const Tensor& first, int64_t begin, int64_t local_experts,
                      int64_t skip) {
  constexpr const char* kOp = "experts_of_ranks";
  expect(kOp, "expert", expert, DType::I32, expert.elements());
  expect(kOp, "first", first, DType::I32, first.elements());
  if (first.rank() != 2)
    fail("{}: first is {}, but [ranks, experts + 1] is needed", kOp, to_string(first.shape));
  check(
      begin >= 0 && local_experts >= 1 && begin + local_experts < first.last_dim() && skip >= 0,
      "{}: experts [{}, {}) of {} after {} rows: the range must lie within the experts, and rows be at least 0",
      kOp, begin, begin + local_experts, first.last_dim() - 1, skip);
}

void add_experts(OpTable& checks) {
  bind<&OpTable::route, route>(checks);
  bind<&OpTable::router_losses, router_losses>(checks);
  bind<&OpTable::route_backward, route_backward>(checks);
  bind<&OpTable::drop_choices, drop_choices>(checks);
  bind<&OpTable::sort_choices, sort_choices>(checks);
  bind<&OpTable::gate_rows, gate_rows>(checks);
  bind<&OpTable::gate_rows_backward, gate_rows_backward>(checks);
  bind<&OpTable::activate_choices, activate_choices>(checks);
  bind<&OpTable::activate_choices_backward, activate_choices_backward>(checks);
  bind<&OpTable::sum_choices, sum_choices>(checks);
  bind<&OpTable::expert_product, expert_product>(checks);
  bind<&OpTable::expert_product_weight, expert_product_weight>(checks);
  bind<&OpTable::add_choice_counts, add_choice_counts>(checks);
  bind<&OpTable::clear_rows, clear_rows>(checks);
  bind<&OpTable::experts_of_ranks, experts_of_ranks>(checks);
}

}  // namespace trifold::contract
