// The list of all operations of the OpTable, each with its check.
//
// A back end makes a table of raw entries, which do not check their tensors. with_contract() puts the check
// of each operation in front of its entry, so shapes and types are checked in one place for all back ends.
// Checks run when the operation is called, also on a Dry stream, and do not read the tensors' elements.
// Entries check the limits of their back end, such as the largest head width of its kernels.
//
// A new operation needs: its declaration with its formula (ops.h), its check (here and in contract_*.cpp),
// and for each back end a kernel and an entry (launch_*.cpp, cuda/entries_*.cpp).
#pragma once

#include <cstddef>

#include "core/error.h"
#include "ops/ops.h"

namespace trifold {

// The checks. Each throws an Error that names the operation, the tensor and the requirement.
namespace contract {

// contract_products.cpp
void gemm(const Tensor& c, const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, double alpha,
          double beta);
void affine(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias);
void affine_add(const Tensor& y, const Tensor& residual, const Tensor& x, const Tensor& w,
                const Tensor& bias);
void affine_gelu(const Tensor& y, const Tensor& z, const Tensor& x, const Tensor& w, const Tensor& bias);
void affine_backward_input(const Tensor& dx, const Tensor& dy, const Tensor& w, double beta);
void affine_backward_gelu(const Tensor& dz, const Tensor& dy, const Tensor& w, const Tensor& z);
void affine_backward_weight(const Tensor& dw, const Tensor& db, const Tensor& dy, const Tensor& x,
                            bool accumulate);
void linear(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias, bool relu);
void attention(const Tensor& out, const Tensor& lse, const Tensor& qkv, const Attention& how);
void attention_backward(const Tensor& dqkv, const Tensor& dout, const Tensor& qkv, const Tensor& out,
                        const Tensor& lse, const Attention& how);

// contract_rows.cpp
void layer_norm(const Tensor& y, const Tensor& mean, const Tensor& rstd, const Tensor& x, const Tensor& gain,
                const Tensor& bias, double eps);
void layer_norm_backward(const Tensor& dx, const Tensor& dy, const Tensor& x, const Tensor& mean,
                         const Tensor& rstd, const Tensor& gain);
void layer_norm_backward_add(const Tensor& dx, const Tensor& residual, const Tensor& dy, const Tensor& x,
                             const Tensor& mean, const Tensor& rstd, const Tensor& gain);
void layer_norm_backward_weight(const Tensor& dgain, const Tensor& dbias, const Tensor& dy, const Tensor& x,
                                const Tensor& mean, const Tensor& rstd, bool accumulate);
void layer_norm_backward_all(const Tensor& dx, const Tensor& dgain, const Tensor& dbias,
                             const Tensor& residual, const Tensor& dy, const Tensor& x, const Tensor& mean,
                             const Tensor& rstd, const Tensor& gain, bool accumulate);
void rms_norm(const Tensor& y, const Tensor& rstd, const Tensor& x, const Tensor& gain, double eps);
void rms_norm_backward(const Tensor& dx, const Tensor& dy, const Tensor& x, const Tensor& rstd,
                       const Tensor& gain);
void rms_norm_backward_add(const Tensor& dx, const Tensor& residual, const Tensor& dy, const Tensor& x,
                           const Tensor& rstd, const Tensor& gain);
void rms_norm_backward_weight(const Tensor& dgain, const Tensor& dy, const Tensor& x, const Tensor& rstd,
                              bool accumulate);
void rms_norm_backward_all(const Tensor& dx, const Tensor& dgain, const Tensor& residual, const Tensor& dy,
                           const Tensor& x, const Tensor& rstd, const Tensor& gain, bool accumulate);
void column_sum(const Tensor& db, const Tensor& dy, bool accumulate);
void rotary(const Tensor& y, const Tensor& x, const Tensor& positions, const Rotary& how);
void latent_heads(const Tensor& packed, const Tensor& q, const Tensor& kv, const Tensor& key,
                  const Tensor& positions, const LatentHeads& how);
void latent_heads_backward(const Tensor& dq, const Tensor& dkv, const Tensor& dkey, const Tensor& dpacked,
                           const Tensor& positions, const LatentHeads& how);
void fit_columns(const Tensor& y, const Tensor& x);
void embedding(const Tensor& y, const Tensor& table, const Tensor& ids, int64_t first_id, bool accumulate);
void embedding_backward(const Tensor& dtable, const Tensor& dy, const Tensor& ids, const Tensor& order,
                        int64_t first_id);
void softmax_stats(const Tensor& max, const Tensor& sum, const Tensor& target, const Tensor& logits,
                   const Tensor& labels, int64_t first_id, int64_t vocab);
void softmax_rescale(const Tensor& sum, const Tensor& local_max, const Tensor& global_max);
void cross_entropy(const Tensor& loss, const Tensor& max, const Tensor& sum, const Tensor& target);
void cross_entropy_backward(const Tensor& dlogits, const Tensor& logits, const Tensor& max, const Tensor& sum,
                            const Tensor& labels, const Tensor& weight, const Factor& scale, int64_t first_id,
                            int64_t vocab);
void cross_entropy_all(const Tensor& dlogits, const Tensor& max, const Tensor& sum, const Tensor& target,
                       const Tensor& logits, const Tensor& labels, const Tensor& weight, const Factor& scale,
                       int64_t first_id, int64_t vocab);

// contract_optimizer.cpp
void sum_squares(const Tensor& total, const Tensor& x);
void weighted_sum(const Tensor& total, const Tensor& x, const Tensor& weight);
void chunk_squares(const Tensor& partials, const Tensor& x);
void exact_sum(const Tensor& limbs, const Tensor& x);
void adamw(const Tensor& p, const Tensor& copy, const Tensor& m, const Tensor& v, const Tensor& g,
           const AdamW& rule);
void sgd(const Tensor& p, const Tensor& copy, const Tensor& b, const Tensor& g, const Sgd& rule);
void adagrad(const Tensor& p, const Tensor& copy, const Tensor& s, const Tensor& g, const Adagrad& rule);
void lamb_moments(const Tensor& p_squares, const Tensor& u_squares, const Tensor& m, const Tensor& v,
                  const Tensor& p, const Tensor& g, const Lamb& rule);
void lamb(const Tensor& p, const Tensor& copy, const Tensor& m, const Tensor& v, const Lamb& rule);

// contract_recommender.cpp
void relu_backward(const Tensor& dx, const Tensor& db, const Tensor& dy, const Tensor& y, bool accumulate);
void embedding_bags(const Tensor& y, std::span<const BagLookup> lookups);
void sort_lookups(std::span<const LookupOrder> orders, std::span<const BagLookup> lookups);
void update_rows(const Tensor& dy, std::span<const RowUpdate> updates, const SparseRule& rule);
void row_squares(const Tensor& dy, std::span<const RowUpdate> updates, double grad_scale);
void row_gradients(const Tensor& dy, std::span<const RowUpdate> updates);
void dot_interaction(const Tensor& y, const Tensor& x, int64_t width, bool self);
void dot_interaction_backward(const Tensor& dx, const Tensor& dy, const Tensor& x, int64_t width, bool self);
void cross(const Tensor& y, const Tensor& x0, const Tensor& u, const Tensor& x);
void cross_backward(const Tensor& du, const Tensor& dx0, const Tensor& dy, const Tensor& x0, const Tensor& u);
void sigmoid(const Tensor& p, const Tensor& z);
void click_loss(const Tensor& loss, const Tensor& z, const Tensor& labels, ClickLoss how);
void click_loss_backward(const Tensor& dz, const Tensor& z, const Tensor& labels, const Tensor& weight,
                         const Factor& scale, ClickLoss how);
void copy_columns(const Tensor& y, const Tensor& x, std::span<const ColumnCopy> copies);
void copy_rows(const Tensor& y, const Tensor& to, const Tensor& x, const Tensor& from);
void inverse_root(const Tensor& y, const Tensor& x, double eps);

// contract_experts.cpp
void route(const Tensor& gates, const Tensor& chosen, const Tensor& logits, const Tensor& bias,
           const Router& how);
void router_losses(const Tensor& balance, const Tensor& z, const Tensor& counts, const Tensor& logits,
                   const Tensor& padding, int64_t seq, const Router& how);
void route_backward(const Tensor& dlogits, const Tensor& dgates, const Tensor& gates, const Tensor& chosen,
                    const Tensor& logits, const Tensor& counts, const Tensor& weight, const Factor& loss,
                    const RouterLosses& losses, const Router& how);
void drop_choices(const Tensor& taken, const Tensor& chosen, const Tensor& gates, const ExpertLimit& how);
void sort_choices(const Tensor& first, const Tensor& row, const Tensor& token, const Tensor& chosen);
void gate_rows(const Tensor& y, const Tensor& x, const Tensor& gates, const Tensor& row);
void gate_rows_backward(const Tensor& dx, const Tensor& dgates, const Tensor& dy, const Tensor& x,
                        const Tensor& gates, const Tensor& row);
void sum_choices(const Tensor& y, const Tensor& x, const Tensor& row, bool accumulate);
void expert_product(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& first, bool transposed);
void expert_product_weight(const Tensor& dw, const Tensor& dy, const Tensor& x, const Tensor& first,
                           bool accumulate);
void add_choice_counts(const Tensor& counts, const Tensor& chosen, const Tensor& padding, int64_t begin);
void clear_rows(const Tensor& y, const Tensor& begin);
void experts_of_ranks(const Tensor& expert, const Tensor& first, int64_t begin, int64_t here, int64_t skip);

// contract_elementwise.cpp
void fill(const Tensor& y, double value);
void copy(const Tensor& y, const Tensor& x);
void convert(const Tensor& y, const Tensor& x);
void scale(const Tensor& y, const Factor& a);
void add(const Tensor& y, const Tensor& a, const Tensor& b);
void reduce(const Tensor& y, const Tensor& x, Reduce how);
void fill_rows(const Tensor& y, const Tensor& row);
void gelu(const Tensor& y, const Tensor& x);
void gelu_backward(const Tensor& dx, const Tensor& dy, const Tensor& x);
void gelu_erf(const Tensor& y, const Tensor& x);
void gelu_erf_backward(const Tensor& dx, const Tensor& dy, const Tensor& x);
void tanh(const Tensor& y, const Tensor& x);
void tanh_backward(const Tensor& dx, const Tensor& dy, const Tensor& y);
void swiglu(const Tensor& y, const Tensor& x);
void swiglu_backward(const Tensor& dx, const Tensor& dy, const Tensor& x);
void dropout(const Tensor& y, const Tensor& x, const Dropout& how);
void dropout_add(const Tensor& y, const Tensor& residual, const Tensor& x, const Dropout& how);
void scale_uniform(const Tensor& y, const Tensor& x, double low, double high, const Dropout& which);

}  // namespace contract

// An entry of the OpTable and its check, which takes the entry's arguments without the stream.
template <auto Entry, auto Check>
struct Operation {
  static constexpr auto kEntry = Entry;
  static constexpr auto kCheck = Check;
};

template <class... Each>
struct OperationList {
  static constexpr size_t kCount = sizeof...(Each);
  // Calls visit(Operation<...>()) for every operation in order.
  template <class Visit>
  static void for_each(Visit visit) {
    (visit(Each()), ...);
  }
};

using Operations = OperationList<
    Operation<&OpTable::fill, contract::fill>, Operation<&OpTable::copy, contract::copy>,
    Operation<&OpTable::convert, contract::convert>, Operation<&OpTable::scale, contract::scale>,
    Operation<&OpTable::add, contract::add>, Operation<&OpTable::reduce, contract::reduce>,
    Operation<&OpTable::fill_rows, contract::fill_rows>, Operation<&OpTable::gemm, contract::gemm>,
    Operation<&OpTable::affine, contract::affine>, Operation<&OpTable::affine_add, contract::affine_add>,
    Operation<&OpTable::affine_gelu, contract::affine_gelu>,
    Operation<&OpTable::affine_backward_input, contract::affine_backward_input>,
    Operation<&OpTable::affine_backward_gelu, contract::affine_backward_gelu>,
    Operation<&OpTable::affine_backward_weight, contract::affine_backward_weight>,
    Operation<&OpTable::gelu, contract::gelu>, Operation<&OpTable::gelu_backward, contract::gelu_backward>,
    Operation<&OpTable::gelu_erf, contract::gelu_erf>,
    Operation<&OpTable::gelu_erf_backward, contract::gelu_erf_backward>,
    Operation<&OpTable::tanh, contract::tanh>, Operation<&OpTable::tanh_backward, contract::tanh_backward>,
    Operation<&OpTable::swiglu, contract::swiglu>,
    Operation<&OpTable::swiglu_backward, contract::swiglu_backward>,
    Operation<&OpTable::dropout, contract::dropout>, Operation<&OpTable::dropout_add, contract::dropout_add>,
    Operation<&OpTable::scale_uniform, contract::scale_uniform>,
    Operation<&OpTable::layer_norm, contract::layer_norm>,
    Operation<&OpTable::layer_norm_backward, contract::layer_norm_backward>,
    Operation<&OpTable::layer_norm_backward_add, contract::layer_norm_backward_add>,
    Operation<&OpTable::layer_norm_backward_weight, contract::layer_norm_backward_weight>,
    Operation<&OpTable::layer_norm_backward_all, contract::layer_norm_backward_all>,
    Operation<&OpTable::rms_norm, contract::rms_norm>,
    Operation<&OpTable::rms_norm_backward, contract::rms_norm_backward>,
    Operation<&OpTable::rms_norm_backward_add, contract::rms_norm_backward_add>,
    Operation<&OpTable::rms_norm_backward_weight, contract::rms_norm_backward_weight>,
    Operation<&OpTable::rms_norm_backward_all, contract::rms_norm_backward_all>,
    Operation<&OpTable::column_sum, contract::column_sum>, Operation<&OpTable::rotary, contract::rotary>,
    Operation<&OpTable::latent_heads, contract::latent_heads>,
    Operation<&OpTable::latent_heads_backward, contract::latent_heads_backward>,
    Operation<&OpTable::fit_columns, contract::fit_columns>,
    Operation<&OpTable::embedding, contract::embedding>,
    Operation<&OpTable::embedding_backward, contract::embedding_backward>,
    Operation<&OpTable::attention, contract::attention>,
    Operation<&OpTable::attention_backward, contract::attention_backward>,
    Operation<&OpTable::softmax_stats, contract::softmax_stats>,
    Operation<&OpTable::softmax_rescale, contract::softmax_rescale>,
    Operation<&OpTable::cross_entropy, contract::cross_entropy>,
    Operation<&OpTable::cross_entropy_backward, contract::cross_entropy_backward>,
    Operation<&OpTable::cross_entropy_all, contract::cross_entropy_all>,
    Operation<&OpTable::sum_squares, contract::sum_squares>,
    Operation<&OpTable::weighted_sum, contract::weighted_sum>,
    Operation<&OpTable::chunk_squares, contract::chunk_squares>,
    Operation<&OpTable::exact_sum, contract::exact_sum>, Operation<&OpTable::adamw, contract::adamw>,
    Operation<&OpTable::sgd, contract::sgd>, Operation<&OpTable::adagrad, contract::adagrad>,
    Operation<&OpTable::lamb_moments, contract::lamb_moments>, Operation<&OpTable::lamb, contract::lamb>,
    Operation<&OpTable::linear, contract::linear>,
    Operation<&OpTable::relu_backward, contract::relu_backward>,
    Operation<&OpTable::embedding_bags, contract::embedding_bags>,
    Operation<&OpTable::sort_lookups, contract::sort_lookups>,
    Operation<&OpTable::update_rows, contract::update_rows>,
    Operation<&OpTable::row_squares, contract::row_squares>,
    Operation<&OpTable::row_gradients, contract::row_gradients>,
    Operation<&OpTable::dot_interaction, contract::dot_interaction>,
    Operation<&OpTable::dot_interaction_backward, contract::dot_interaction_backward>,
    Operation<&OpTable::cross, contract::cross>,
    Operation<&OpTable::cross_backward, contract::cross_backward>,
    Operation<&OpTable::sigmoid, contract::sigmoid>, Operation<&OpTable::click_loss, contract::click_loss>,
    Operation<&OpTable::click_loss_backward, contract::click_loss_backward>,
    Operation<&OpTable::copy_columns, contract::copy_columns>,
    Operation<&OpTable::copy_rows, contract::copy_rows>,
    Operation<&OpTable::inverse_root, contract::inverse_root>, Operation<&OpTable::route, contract::route>,
    Operation<&OpTable::router_losses, contract::router_losses>,
    Operation<&OpTable::route_backward, contract::route_backward>,
    Operation<&OpTable::drop_choices, contract::drop_choices>,
    Operation<&OpTable::sort_choices, contract::sort_choices>,
    Operation<&OpTable::gate_rows, contract::gate_rows>,
    Operation<&OpTable::gate_rows_backward, contract::gate_rows_backward>,
    Operation<&OpTable::sum_choices, contract::sum_choices>,
    Operation<&OpTable::expert_product, contract::expert_product>,
    Operation<&OpTable::expert_product_weight, contract::expert_product_weight>,
    Operation<&OpTable::add_choice_counts, contract::add_choice_counts>,
    Operation<&OpTable::clear_rows, contract::clear_rows>,
    Operation<&OpTable::experts_of_ranks, contract::experts_of_ranks>>;
static_assert(sizeof(OpTable) == sizeof(OpTable::name) + sizeof(OpTable::device) +
                                     Operations::kCount * sizeof(OpTable::fill),
              "an operation of the OpTable is not in the list");

// The entry of the table Raw(), preceded by Check.
template <const OpTable& (*Raw)(), auto Entry, auto Check>
struct Checked;
template <const OpTable& (*Raw)(), class... Args, void (*OpTable::*Entry)(Stream&, Args...), auto Check>
struct Checked<Raw, Entry, Check> {
  static void call(Stream& stream, Args... args) {
    Check(args...);
    (Raw().*Entry)(stream, args...);
  }
};

// The table Raw() with every entry preceded by its check: the table for callers outside the back end. Throws
// if an entry is missing.
template <const OpTable& (*Raw)()>
OpTable with_contract() {
  OpTable ops = Raw();
  size_t number = 0;
  Operations::for_each([&](auto operation) {
    using Op = decltype(operation);
    ++number;
    check(ops.*Op::kEntry != nullptr, "the table {} has no entry for operation {} of OpTable", ops.name,
          number);
    ops.*Op::kEntry = Checked<Raw, Op::kEntry, Op::kCheck>::call;
  });
  return ops;
}

}  // namespace trifold
