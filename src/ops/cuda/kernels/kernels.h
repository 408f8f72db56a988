// The hand-written CUDA kernels as functions that launch them: raw pointers and counts, in device memory
// unless stated otherwise. ops/ops.h defines the operations. T is any of double, float, Bfloat16, Float16;
// Wide is the type of its computation; W is double or float only. Instantiations are in the .cu files.
//
// Some sums need `scratch`, device memory that this launch may use until the stream has passed it; its size
// in bytes is given by the function declared with each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/exact_digits.h"
#include "core/float16.h"
#include "ops/cuda/workspace.h"
#include "ops/kernels.h"
#include "ops/kernels/fp8.h"

struct CUstream_st;

namespace trifold::cuda {

// A cudaStream_t, without CUDA's headers.
using CudaStream = CUstream_st*;

// ---- movement and elementwise (elementwise.cu) ----
void copy_bytes(CudaStream stream, void* y, const void* x, int64_t bytes);
// to[0] = 63 bits of the Philox words under `key` of the counter `first`, to[1] = 0: the dropout seed of a
// call of a library that counts elements from zero each time
void dropout_seed(CudaStream stream, int64_t* to, const cpu::DropRule& key, const cpu::LateIndex& first);
// y has the rows of `batch` samples of `seq` positions: in rows from position lengths[sample] on, sets the
// bytes from `first_byte` on to 0. The address y, row_bytes and first_byte are multiples of 16.
void clear_behind(CudaStream stream, void* y, const int32_t* lengths, int64_t batch, int64_t seq,
                  int64_t row_bytes, int64_t first_byte);
// T also int32_t
template <class T>
void fill(CudaStream stream, T* y, int64_t n, double number);
template <class T>
void to_f32(CudaStream stream, float* y, const T* x, int64_t n);
template <class T>
void from_f32(CudaStream stream, T* y, const float* x, int64_t n);
template <class T>
void scale(CudaStream stream, T* y, int64_t n, const cpu::LateFactor& a);
// T also int32_t and int64_t
template <class T>
void add(CudaStream stream, T* y, const T* a, const T* b, int64_t n);
template <class T>
void maximum(CudaStream stream, T* y, const T* x, int64_t n);
template <class T>
void fill_rows(CudaStream stream, T* y, const T* row, int64_t rows, int64_t columns);

// ---- activations (activations.cu) ----
// y = f(x) and dx = dy f'(saved) of the formula with this index in cpu::Activations (ops/kernels/formulas.h)
template <class T>
void activate(CudaStream stream, size_t formula, T* y, const T* x, int64_t n);
template <class T>
void activate_backward(CudaStream stream, size_t formula, T* dx, const T* dy, const T* saved, int64_t n);
template <class T>
void swiglu(CudaStream stream, T* y, const T* x, int64_t rows, int64_t columns);
template <class T>
void swiglu_backward(CudaStream stream, T* dx, const T* dy, const T* x, int64_t rows, int64_t columns);
// y = residual + drop(x), or drop(x) if residual is null
template <class T>
void dropout(CudaStream stream, T* y, const T* residual, const T* x, int64_t n, const cpu::LateIndex& first,
             const cpu::DropRule& rule);
// y = x times uniform numbers
template <class T>
void scale_uniform(CudaStream stream, T* y, const T* x, int64_t n, const cpu::LateIndex& first,
                   const cpu::UniformRule& rule);

// ---- norms (norms.cu); with a null mean and bias, the root-mean-square norm ----
template <class T>
void norm(CudaStream stream, T* y, Accumulate<T>* mean, Accumulate<T>* rstd, const T* x, const T* gain,
          const T* bias, int64_t rows, int64_t columns, double eps);

// dx (plus a residual, unless it is null) and the gradients of gain and bias, in one pass over the rows; without
// dx, or without dgain and dbias, if those are null. What is left out does not change the bits of the rest.
// Scratch is for the gradients.
size_t norm_gradient_scratch(int64_t rows, int64_t columns, size_t size_of_number);
template <class T>
void norm_gradients(CudaStream stream, void* scratch, T* dx, Accumulate<T>* dgain, Accumulate<T>* dbias,
                    const T* residual, const T* dy, const T* x, const Accumulate<T>* mean,
                    const Accumulate<T>* rstd, const T* gain, int64_t rows, int64_t columns, bool accumulate);
// The two halves, for rows that are too long for that.
template <class T>
void norm_backward(CudaStream stream, T* dx, const T* residual, const T* dy, const T* x,
                   const Accumulate<T>* mean, const Accumulate<T>* rstd, const T* gain, int64_t rows,
                   int64_t columns);
template <class T>
void norm_backward_weight(CudaStream stream, void* scratch, Accumulate<T>* dgain, Accumulate<T>* dbias,
                          const T* dy, const T* x, const Accumulate<T>* mean, const Accumulate<T>* rstd,
                          int64_t rows, int64_t columns, bool accumulate);

// ---- sums over rows (columns.cu) ----
// first[c] = the sum over `count` of sums [count][kinds][columns] in f64, or += that; with two kinds, the sum
// of the second kind goes to `second`.
template <class Wide>
void add_parts(CudaStream stream, Wide* first, Wide* second, const Wide* sums, int64_t columns, int64_t count,
               int kinds, bool accumulate);
// Scratch for any sum over rows of `columns` numbers of that many bytes; for at most two sums. A sum is added
// to its destination if `accumulate` is set, otherwise assigned.
size_t column_scratch(int64_t rows, int64_t columns, size_t size_of_number);
template <class T>
void column_sum(CudaStream stream, void* scratch, Accumulate<T>* db, const T* dy, int64_t rows,
                int64_t columns, bool accumulate);
template <class T>
void relu_backward(CudaStream stream, void* scratch, T* dx, Accumulate<T>* db, const T* dy, const T* y,
                   int64_t rows, int64_t columns, bool accumulate);

// ---- rotary (rotary.cu); shape.frequencies is host memory, read before this returns ----
template <class T>
void rotary(CudaStream stream, T* y, const T* x, const int32_t* positions, int64_t rows,
            const cpu::RotaryShape& shape);

// ---- multi-head latent attention (latent.cu); shape.frequencies as above ----
template <class T>
void latent_heads(CudaStream stream, T* packed, const T* q, const T* kv, const T* key,
                  const int32_t* positions, int64_t rows, const cpu::LatentShape& shape);
template <class T>
void latent_heads_backward(CudaStream stream, T* dq, T* dkv, T* dkey, const T* dpacked,
                           const int32_t* positions, int64_t rows, const cpu::LatentShape& shape);
template <class T>
void fit_columns(CudaStream stream, T* y, const T* x, int64_t rows, int64_t y_columns, int64_t x_columns);

// ---- rows by id (embedding.cu) ----
template <class T>
void embedding(CudaStream stream, T* y, const T* table, const int32_t* ids, int64_t rows, int64_t columns,
               int64_t first_id, int64_t held, bool accumulate);
size_t embedding_scratch(int64_t rows);
template <class T>
void embedding_backward(CudaStream stream, void* scratch, Accumulate<T>* dtable, const T* dy,
                        const int32_t* ids, int64_t rows, int64_t columns, int64_t first_id, int64_t held);

// ---- cross entropy (loss.cu) ----
template <class T>
void softmax_stats(CudaStream stream, Accumulate<T>* max, Accumulate<T>* sum, Accumulate<T>* target,
                   const T* logits, const int32_t* labels, int64_t rows, const cpu::VocabularyPart& part);
template <class T>
void cross_entropy_all(CudaStream stream, T* dlogits, Accumulate<T>* max, Accumulate<T>* sum,
                       Accumulate<T>* target, const T* logits, const int32_t* labels, const float* weight,
                       const cpu::LateFactor& scale, int64_t rows, const cpu::VocabularyPart& part);
template <class W>
void softmax_rescale(CudaStream stream, W* sum, const W* local_max, const W* global_max, int64_t n);
template <class W>
void cross_entropy(CudaStream stream, W* loss, const W* max, const W* sum, const W* target, int64_t n);
template <class T>
void cross_entropy_backward(CudaStream stream, T* dlogits, const T* logits, const Accumulate<T>* max,
                            const Accumulate<T>* sum, const int32_t* labels, const float* weight,
                            const cpu::LateFactor& scale, int64_t rows, const cpu::VocabularyPart& part);

// ---- sums to one number (sums.cu) ----
constexpr size_t kSumScratch = 1024 * sizeof(double);
// Bytes of scratch of exact_sum.
constexpr size_t kExactScratch = 256 * kExactLimbs * sizeof(int64_t);
void exact_sum(CudaStream stream, void* scratch, int64_t* limbs, const double* x, int64_t n);
template <class T>
void sum_squares(CudaStream stream, void* scratch, double* total, const T* x, int64_t n);
template <class W>
void weighted_sum(CudaStream stream, void* scratch, double* total, const W* x, const float* weight,
                  int64_t n);
template <class W>
void chunk_squares(CudaStream stream, double* partials, const W* x, int64_t n);
template <class W>
void lamb_moments(CudaStream stream, double* p_squares, double* u_squares, W* m, W* v, const W* p, const W* g,
                  int64_t n, const cpu::LateRule<cpu::LambRule>& rule);

// ---- update rules (optimizer.cu) ----
template <class W>
void adamw(CudaStream stream, W* p, cpu::WeightCopy copy, W* m, W* v, const W* g, int64_t n,
           const cpu::LateRule<cpu::AdamWRule>& rule);
template <class W>
void sgd(CudaStream stream, W* p, cpu::WeightCopy copy, W* b, const W* g, int64_t n,
         const cpu::LateRule<cpu::SgdRule>& rule);  // b may be null
template <class W>
void adagrad(CudaStream stream, W* p, cpu::WeightCopy copy, W* s, const W* g, int64_t n,
             const cpu::LateRule<cpu::AdagradRule>& rule);
template <class W>
void lamb(CudaStream stream, W* p, cpu::WeightCopy copy, const W* m, const W* v, int64_t n,
          const cpu::LateRule<cpu::LambRule>& rule);

// ---- recommenders (clicks.cu) ----
// y += bias, then max(0, y) if `relu` is set
template <class T>
void bias_relu(CudaStream stream, T* y, const T* bias, int64_t rows, int64_t columns, bool relu);
template <class T>
void cross(CudaStream stream, T* y, const T* x0, const T* u, const T* x, int64_t n);
template <class T>
void cross_backward(CudaStream stream, T* du, T* dx0, const T* dy, const T* x0, const T* u, int64_t n);
template <class W>
void sigmoid(CudaStream stream, W* p, const W* z, int64_t n);
template <class W>
void click_loss(CudaStream stream, W* loss, const W* z, const float* labels, int64_t n, bool squared);
template <class W>
void click_loss_backward(CudaStream stream, W* dz, const W* z, const float* labels, const float* weight,
                         const cpu::LateFactor& scale, int64_t n, bool squared);
// Columns [0, width) of rows with the given strides; times row_scale[r] unless that is null.
template <class W>
void copy_columns(CudaStream stream, W* y, int64_t y_stride, const W* x, int64_t x_stride, const W* row_scale,
                  int64_t rows, int64_t width, bool add);
template <class W>
void copy_rows(CudaStream stream, W* y, const int32_t* to, const W* x, const int32_t* from, int64_t n,
               int64_t width);
template <class W>
void inverse_root(CudaStream stream, W* y, const W* x, double eps, int64_t n);

// ---- interaction (interaction.cu) ----
template <class W>
void dot_interaction(CudaStream stream, W* y, const W* x, int64_t rows, int64_t vectors, int64_t width,
                     bool self);
template <class W>
void dot_interaction_backward(CudaStream stream, W* dx, const W* dy, const W* x, int64_t rows,
                              int64_t vectors, int64_t width, bool self);

// ---- embedding bags (bags.cu, lookups.cu, row_updates.cu): many tables in one launch ----
constexpr int kTablesAtOnce = 32;
template <class W>
struct BagTask {
  const W* table;
  const int32_t* ids;
  const int32_t* offsets;
  const float* weights;  // or null
  W* y;                  // points to its first column
  int64_t width;
};
template <class W>
void embedding_bags(CudaStream stream, std::span<const BagTask<W>> tasks, int64_t bags, int64_t y_stride);

// As LookupOrder and BagLookup (ops/recommender.h); weights may be null. `keys` and `spare` have n elements.
struct SortTask {
  uint64_t* keys;
  uint64_t* spare;
  const int32_t* ids;
  const int32_t* offsets;
  const float* weights;
  int32_t* row;
  int32_t* begin;
  int32_t* bag;
  float* weight;
  int64_t* count;
  int64_t n;
  int64_t bags;
  int64_t rows;  // the limit of ids
};
size_t sort_scratch(std::span<const SortTask> tasks);
void sort_lookups(CudaStream stream, void* scratch, std::span<const SortTask> tasks);

template <class W>
struct UpdateTask {
  cpu::RowTask<W> rows;
  const int64_t* count;  // touched rows
  int64_t lookups;
};
// `scratch` has update_workspace bytes (ops/cuda/workspace.h).
template <class W>
void update_rows(CudaStream stream, void* scratch, std::span<const UpdateTask<W>> tasks,
                 cpu::RowAction action, const cpu::LateRule<cpu::RowRule>& rule);

// ---- products (product.cu, attention.cu): plain ones, to check the libraries against ----
// c = alpha op(a) op(b) + beta c, where C is T or Accumulate<T>
template <class T, class C>
void plain_gemm(CudaStream stream, C* c, const T* a, bool transpose_a, const T* b, bool transpose_b,
                int64_t m, int64_t n, int64_t k, double alpha, double beta);

// Attention as in ops.h; head_dim is at most kPlainAttentionWidth. `rule` describes the dropout except for
// the index.
constexpr int64_t kPlainAttentionWidth = 256;
// The positions of rows of a sample, in two runs: [begin[0], begin[0] + first) and [begin[1], begin[1] + rows - first).
struct RowPositions {
  int64_t rows, first;
  int64_t begin[2];
  HD int64_t of(int64_t row) const { return row < first ? begin[0] + row : begin[1] + row - first; }
  // Of run 0 or 1.
  HD int64_t first_row(int run) const { return run == 0 ? 0 : first; }
  HD int64_t end(int run) const { return begin[run] + (run == 0 ? first : rows - first); }
};
struct PlainAttention {
  int64_t batch, seq, heads, kv_heads, head_dim;
  int64_t first_given, given;  // key heads, as in Attention
  RowPositions queries, keys;
  bool gathered;           // keys and values are in a matrix of their own, Attention::key_values
  bool in_steps, further;  // as in Attention
  cpu::LateIndex first;    // row in [samples, global heads] of the first sample and head
  int64_t global_heads;
  double scale;
  bool causal;
  const int32_t* lengths;     // of each sample, or null
  const int32_t* first_keys;  // of each query, or null: 0
  cpu::DropRule rule;
};
// `keys` is qkv, or Attention::key_values; of the two outputs one is null, as in Attention.
template <class T>
struct PlainForward {
  T* out;
  Accumulate<T>* wide_out;
  Accumulate<T>* lse;
  const T* qkv;
  const T* keys;
};
template <class T>
void plain_attention(CudaStream stream, const PlainForward<T>& tensors, const PlainAttention& attention);
// dkeys (Attention::dkey_values) and dqueries may be null: dqkv then has these gradients.
template <class T>
struct PlainBackward {
  T* dqkv;
  Accumulate<T>* dkeys;
  Accumulate<T>* dqueries;
  const T* dout;
  const T* qkv;
  const T* keys;
  const T* out;
  const Accumulate<T>* lse;
};
template <class T>
void plain_attention_backward(CudaStream stream, const PlainBackward<T>& tensors,
                              const PlainAttention& attention);

// ---- mixture of experts (experts.cu) ----
template <class W>
void route(CudaStream stream, W* gates, int32_t* chosen, const W* logits, const W* bias, int64_t tokens,
           int64_t experts, const Router& router);
// scratch: router_workspace(tokens * choices), ops/cuda/workspace.h; `padding` may be null
template <class W>
void router_losses(CudaStream stream, void* scratch, W* balance, W* z, int32_t* counts, const W* logits,
                   const int32_t* padding, int64_t tokens, int64_t experts, int64_t seq,
                   const Router& router);
template <class T>
void route_backward(CudaStream stream, T* dlogits, const cpu::RouterGradient<T>& in, int64_t tokens);
template <class T>
void gate_rows(CudaStream stream, T* y, const T* x, const Accumulate<T>* gates, const int32_t* row,
               int64_t choices, int64_t columns);
template <class T>
void gate_rows_backward(CudaStream stream, T* dx, Accumulate<T>* dgates, const T* dy, const T* x,
                        const Accumulate<T>* gates, const int32_t* row, int64_t choices, int64_t columns);
template <class T>
void sum_choices(CudaStream stream, T* y, const T* x, const int32_t* row, int64_t tokens, int64_t choices,
                 int64_t columns, bool accumulate);
template <class T>
void expert_product(CudaStream stream, T* y, const T* x, const T* w, const int32_t* first, int64_t rows,
                    int64_t experts, int64_t n, int64_t k, bool transposed);
template <class T>
void expert_product_weight(CudaStream stream, Accumulate<T>* dw, const T* dy, const T* x,
                           const int32_t* first, int64_t experts, int64_t m, int64_t n, bool accumulate);

// What the instructions of the following products belong to, and the shared memory that a block needs: warps 96 KiB, or
// 144 KiB if operands have three buffers; warpgroups 192 KiB. A device that has one also has those before it.
enum class ProductUnit { WarpInLittleMemory, Warp, Warpgroup };

std::optional<ProductUnit> best_product_unit();  // on the current device
// On one of compute capability `major`.x whose blocks may have that many bytes of shared memory. Warpgroups need 9.0 and
// kernels compiled `for_90a`, not 90.
std::optional<ProductUnit> unit_for(int major, int shared, bool for_90a);

// The same two on tensor cores, T in 16 bits (expert_products.cu). Return false, and enqueue nothing, unless the device
// has the unit, all addresses are multiples of 16 and the numbers of columns multiples of 8. experts, m, n, k < 2^31.
template <class T>
bool grouped_product(CudaStream stream, ProductUnit unit, T* y, const T* x, const T* w, const int32_t* first,
                     int64_t rows, int64_t experts, int64_t n, int64_t k, bool transposed);
template <class T>
bool grouped_product_weight(CudaStream stream, ProductUnit unit, float* dw, const T* dy, const T* x,
                            const int32_t* first, int64_t experts, int64_t m, int64_t n, bool accumulate);

// ---- the choices of a mixture of experts (choices.cu) ----
// The tokens whose choices do not count: those where of_token [T] is not 0; null: all count.
struct PaddedTokens {
  const int32_t* of_token = nullptr;
  int64_t choices = 1;  // of a token
  HD bool has(int64_t choice) const { return of_token != nullptr && of_token[choice / choices] != 0; }
};
// counts [lists, experts] of `lists` lists of so many choices each
void count_choices(CudaStream stream, int32_t* counts, const int32_t* chosen, const PaddedTokens& padding,
                   int64_t experts, int64_t choices, int64_t lists);
void add_choice_counts(CudaStream stream, double* counts, const int32_t* chosen, const PaddedTokens& padding,
                       int64_t experts, int64_t choices, int64_t begin);
// `all` choices, of which a sequence has `choices`; scratch: router_workspace(all)
template <class W>
void drop_choices(CudaStream stream, void* scratch, int32_t* taken, const int32_t* chosen, const W* gates,
                  int64_t all, int64_t choices, const ExpertLimit& limit);
void sort_choices(CudaStream stream, int32_t* first, int32_t* row, int32_t* token, const int32_t* chosen,
                  int64_t experts, int64_t choices, int64_t each);
// first [ranks, each]; `rows` are those of `expert`.
void experts_of_ranks(CudaStream stream, int32_t* expert, const int32_t* first, int64_t ranks, int64_t each,
                      int64_t begin, int64_t here, int64_t skip, int64_t rows);
template <class T>
void clear_rows(CudaStream stream, T* y, const int32_t* begin, int64_t rows, int64_t columns);

// ---- factors of FP8 products (fp8.cu) ----
// The factor by which a tensor was multiplied before it was rounded (`to`), and its inverse, which cuBLASLt
// multiplies by and whose address must be a multiple of 16 bytes on Hopper.
struct alignas(16) Fp8Scale {
  float from, to;
};
// scale.to = the format's largest number / the largest magnitude of x [rows, columns]; it is computed and
// kept in device memory. y = x scale.to rounded, [rows, columns], or [columns, rows] if `transposed`. A NaN
// or infinity in x makes y NaN. If transposed, both extents must be multiples of 16 and both addresses
// aligned to their packs.
void to_fp8(CudaStream stream, void* scratch, uint8_t* y, Fp8Scale* scale, const Bfloat16* x, int64_t rows,
            int64_t columns, bool transposed, cpu::Fp8 format);

}  // namespace trifold::cuda
