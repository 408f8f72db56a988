// Functions that launch the hand-written CUDA kernels. They take raw pointers, to device memory unless stated
// otherwise, and counts; ops/ops.h defines the operations. T is any of double, float, Bfloat16, Float16;
// Wide is the type of its computation; W is double or float only. Instantiations are in the .cu files.
//
// Some sums need `scratch`: device memory that the launch uses until the stream has executed it. Its size in bytes is
// the result of a function declared next to the launch.
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
#include "ops/strided.h"

struct CUstream_st;

namespace trifold::cuda {

// A cudaStream_t, without CUDA's headers.
using CudaStream = CUstream_st*;

// A matrix in narrow form (ops/narrow.h): its codes and scales.
constexpr int64_t kNarrowBlock = 128;
struct NarrowMatrix {
  uint8_t* codes;
  float* scales;  // [blocks of columns, rows]
  int64_t rows, columns;
};
// The narrow forms of a matrix (ops/forms.h) that a kernel writes. Pointers of absent forms are null.
struct NarrowForms {
  int64_t rows, columns;
  uint8_t* codes = nullptr;  // as in NarrowMatrix
  float* scales = nullptr;
  uint8_t* turned_codes = nullptr;  // [columns, rows]
  float* turned_scales = nullptr;   // [blocks of rows, columns]
  float* sums = nullptr;            // [blocks of rows, columns]

  bool only_rows() const { return turned_codes == nullptr && sums == nullptr; }
};
HD constexpr int64_t scale_blocks_of(int64_t extent) { return (extent + kNarrowBlock - 1) / kNarrowBlock; }
// Scales of weights for consecutive blocks of outputs begin this far apart, a multiple of 4 as cuBLASLt requires.
HD constexpr int64_t weight_scale_stride(int64_t depth) { return (scale_blocks_of(depth) + 3) / 4 * 4; }

// ---- movement and elementwise (elementwise.cu) ----
void copy_bytes(CudaStream stream, void* y, const void* x, int64_t bytes);
// Seed and offset of dropout for a library that counts the elements of every call from zero: to[0] = 63 bits of the
// Philox words of counter `first` under `key`, to[1] = 0.
void dropout_seed(CudaStream stream, int64_t* to, const cpu::DropRule& key, const cpu::LateIndex& first);
// y has the rows of `batch` samples of `seq` positions. Sets the bytes from `first_byte` on to 0 in all rows from
// position lengths[sample] on. The address y, row_bytes and first_byte are multiples of 16.
void clear_behind(CudaStream stream, void* y, const int32_t* lengths, int64_t batch, int64_t seq,
                  int64_t row_bytes, int64_t first_byte);
// T may also be int32_t.
template <class T>
void fill(CudaStream stream, T* y, int64_t n, double number);
template <class T>
void to_f32(CudaStream stream, float* y, const T* x, int64_t n);
template <class T>
void from_f32(CudaStream stream, T* y, const float* x, int64_t n);
template <class T>
void scale(CudaStream stream, T* y, int64_t n, const cpu::LateFactor& a);
// T may also be int32_t or int64_t.
template <class T>
void add(CudaStream stream, T* y, const T* a, const T* b, int64_t n);
template <class T>
void maximum(CudaStream stream, T* y, const T* x, int64_t n);
template <class T>
void fill_rows(CudaStream stream, T* y, const T* row, int64_t rows, int64_t columns);

// ---- quantized matrices (dequantize.cu) ----
template <class T>
void dequantize(CudaStream stream, T* y, const uint8_t* codes, const Bfloat16* scales, int64_t rows,
                const cpu::QuantizedRows& form);

// ---- activations (activations.cu) ----
// y = f(x) and dx = dy f'(saved) of the formula with this index in cpu::Activations (ops/kernels/formulas.h)
template <class T>
void activate(CudaStream stream, size_t formula, T* y, const T* x, int64_t n);
template <class T>
void activate_backward(CudaStream stream, size_t formula, T* dx, const T* dy, const T* saved, int64_t n);
// Gated activations of the halves of rows of x, with a formula of cpu::Gates; `columns` of y.
template <class T>
void gated(CudaStream stream, size_t formula, const cpu::GateRule& rule, T* y, const T* x, int64_t rows,
           int64_t columns);
template <class T>
void gated_backward(CudaStream stream, size_t formula, const cpu::GateRule& rule, T* dx, const T* dy,
                    const T* x, int64_t rows, int64_t columns);
// y = residual + drop(x), or drop(x) if residual is null
template <class T>
void dropout(CudaStream stream, T* y, const T* residual, const T* x, int64_t n, const cpu::LateIndex& first,
             const cpu::DropRule& rule);
// y = x times uniform numbers
template <class T>
void scale_uniform(CudaStream stream, T* y, const T* x, int64_t n, const cpu::LateIndex& first,
                   const cpu::UniformRule& rule);

// ---- norms (norms.cu); with a null mean and bias, the root-mean-square norm; `offset` is added to each gain ----
template <class T>
void norm(CudaStream stream, T* y, Accumulate<T>* mean, Accumulate<T>* rstd, const T* x, const T* gain,
          const T* bias, int64_t rows, int64_t columns, double eps, double offset);

// dx (plus `residual`, unless it is null) and the gradients of gain and bias, in one pass over the rows. A null dx, or
// null dgain and dbias, is not computed, which does not change the bits of the other results. Scratch is for dgain and
// dbias.
size_t norm_gradient_scratch(int64_t rows, int64_t columns, size_t size_of_number);
template <class T>
void norm_gradients(CudaStream stream, void* scratch, T* dx, Accumulate<T>* dgain, Accumulate<T>* dbias,
                    const T* residual, const T* dy, const T* x, const Accumulate<T>* mean,
                    const Accumulate<T>* rstd, const T* gain, double offset, int64_t rows, int64_t columns,
                    bool accumulate);
// norm_gradients in two passes, for rows that are too long for one.
template <class T>
void norm_backward(CudaStream stream, T* dx, const T* residual, const T* dy, const T* x,
                   const Accumulate<T>* mean, const Accumulate<T>* rstd, const T* gain, double offset,
                   int64_t rows, int64_t columns);
template <class T>
void norm_backward_weight(CudaStream stream, void* scratch, Accumulate<T>* dgain, Accumulate<T>* dbias,
                          const T* dy, const T* x, const Accumulate<T>* mean, const Accumulate<T>* rstd,
                          int64_t rows, int64_t columns, bool accumulate);

// The root-mean-square norm of rows of which only some columns are here (OpTable::rms_part_sums); dy may be null.
template <class T>
void rms_part_sums(CudaStream stream, Accumulate<T>* sums, const T* x, const T* dy, const T* gain,
                   double offset, int64_t rows, int64_t columns);
template <class T>
void rms_part(CudaStream stream, T* y, const T* x, const Accumulate<T>* rstd, const T* gain, double offset,
              int64_t rows, int64_t columns);
template <class T>
void rms_part_backward(CudaStream stream, T* dx, const T* dy, const T* x, const Accumulate<T>* rstd,
                       const Accumulate<T>* along, const T* gain, double offset, int64_t rows,
                       int64_t columns);

// ---- sums over rows (columns.cu) ----
// first[c] = the sum over i of sums[i][0][c], in f64, for sums [count][kinds][columns]; with two kinds, second[c] is
// the sum of sums[i][1][c]. Added to the previous values if `accumulate`.
template <class Wide>
void add_parts(CudaStream stream, Wide* first, Wide* second, const Wide* sums, int64_t columns, int64_t count,
               int kinds, bool accumulate);
// Scratch for up to two sums over rows of `columns` elements of `size_of_number` bytes. A sum is added to its
// destination if `accumulate` is set, otherwise assigned.
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

// ---- multi-head latent attention (latent.cu); shape.frequencies is host memory, read before this returns ----
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

// ---- sums to a scalar (sums.cu) ----
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
// y = x rounded up or down; `words` has the key
void round_randomly(CudaStream stream, Bfloat16* y, const float* x, int64_t n,
                    const cpu::RandomRoundingRows& rows, const cpu::DropRule& words);
void round_to_small(CudaStream stream, uint8_t* y, const float* x, int64_t n,
                    const cpu::RandomRoundingRows& rows, const cpu::DropRule& words, bool is_signed);
void widen_small(CudaStream stream, float* y, const uint8_t* x, int64_t n, bool is_signed);

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
// Copies columns [0, width) of rows with the given strides, times row_scale[r] unless that is null.
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

// LookupOrder and BagLookup (ops/recommender.h) as pointers; weights may be null. `keys` and `spare` have n elements.
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
  int64_t rows;  // rows of the table, the limit of ids
};
size_t sort_scratch(std::span<const SortTask> tasks);
void sort_lookups(CudaStream stream, void* scratch, std::span<const SortTask> tasks);

template <class W>
struct UpdateTask {
  cpu::RowTask<W> rows;
  const int64_t* count;  // number of touched rows
  int64_t lookups;
};
// `scratch` has update_workspace bytes (ops/cuda/workspace.h).
template <class W>
void update_rows(CudaStream stream, void* scratch, std::span<const UpdateTask<W>> tasks,
                 cpu::RowAction action, const cpu::LateRule<cpu::RowRule>& rule);

// ---- products without libraries (product.cu, attention.cu), also the reference for tests of the libraries ----
// c = alpha op(a) op(b) + beta c, where C is T or Accumulate<T>
template <class T, class C>
void plain_gemm(CudaStream stream, C* c, const T* a, bool transpose_a, const T* b, bool transpose_b,
                int64_t m, int64_t n, int64_t k, double alpha, double beta);

// Computes OpTable::batched_product.
template <class T, class C>
void plain_batched_product(CudaStream stream, C* c, const T* a, const T* b, const BatchedProduct& product);

// Largest head_dim of plain_attention.
constexpr int64_t kPlainAttentionWidth = 256;
// The positions of a sample's rows: up to two runs, [begin[0], begin[0] + first) and [begin[1], begin[1] + rows -
// first).
struct RowPositions {
  int64_t rows, first;
  int64_t begin[2];
  HD int64_t position(int64_t row) const { return row < first ? begin[0] + row : begin[1] + row - first; }
  // The first row and the end of the positions of a run, 0 or 1.
  HD int64_t first_row(int run) const { return run == 0 ? 0 : first; }
  HD int64_t end(int run) const { return begin[run] + (run == 0 ? first : rows - first); }
};
// The arguments of Attention (ops.h) for the plain kernels.
struct PlainAttention {
  int64_t batch, seq, heads, kv_heads, head_dim;
  int64_t first_given, given;  // key heads, as in Attention
  RowPositions queries, keys;
  bool gathered;           // keys and values are in Attention::key_values
  bool in_steps, further;  // as in Attention
  cpu::LateIndex first;    // index of the first sample and head in [samples, global heads]
  int64_t global_heads;
  double scale;
  int64_t left, right;        // keys before and after a query that it may see; 0 after it under a causal mask
  double soft_cap;            // as in Attention
  const int32_t* lengths;     // Attention::lengths, or null
  const int32_t* first_keys;  // Attention::first_keys, or null: 0
  cpu::DropRule rule;         // dropout, without the index of elements
};
// `keys` is qkv or Attention::key_values. Exactly one of out and wide_out is null: `out` for attention in steps.
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
// dkeys is Attention::dkey_values or null, dqueries is Attention::dqueries or null; if null, dqkv gets the gradients.
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

// ---- blocks of attention (attention_blocks.cu); heads of a multiple of 8 elements ----
// `queries` rows of each sample from `row` on, of `all_rows`, and `heads` heads from `head` on, of `all_heads`.
struct RowsOfBlock {
  int64_t batch, queries, heads, width;
  int64_t all_rows, row, all_heads, head;
};
// Merges a block's output `part` [batch, queries, heads, width] and logs of sums of exponentials `sums` [batch, heads,
// queries] into these rows of out [batch, all_rows, all_heads, width] and lse [batch, all_heads, all_rows], or, if it is
// the first, assigns them. T and Out are float, or T is a 16-bit type and Out is it or float.
template <class T, class Out>
void merge_block(CudaStream stream, Out* out, float* lse, const T* part, const float* sums,
                 const RowsOfBlock& rows, bool first);
// sums [batch, heads, queries] = these rows of lse.
void sums_of_block(CudaStream stream, float* sums, const float* lse, const RowsOfBlock& rows);
// `count` rows of each sample from `row` on, of `all_rows` of `stride` elements each, and `columns` columns from `column`
// on, all multiples of 8.
struct BlockColumns {
  int64_t batch, count, columns;
  int64_t all_rows, row, stride, column;
};
// Adds part [batch, count, columns] to these elements of `to`, or assigns them. Types as of merge_block.
template <class T, class Out>
void add_block(CudaStream stream, Out* to, const T* part, const BlockColumns& place, bool assign);

// A head's rows in out [batch * queries, heads * width] and its sums in lse [batch, heads, queries]; logits [heads].
template <class T>
void attention_sinks(CudaStream stream, T* out, Accumulate<T>* lse, const T* sinks, int64_t batch,
                     int64_t heads, int64_t queries, int64_t width);
template <class T>
void attention_sinks_backward(CudaStream stream, Accumulate<T>* dsinks, const T* dout, const T* out,
                              const Accumulate<T>* lse, const T* sinks, int64_t batch, int64_t heads,
                              int64_t queries, int64_t width);

// ---- strided views (strided.cu); pointers are to the elements of index 0 ----
// y = x, rounded once. The walk has the strides of y, then the strides of x. One of the types is float or double, or both
// are uint16_t, uint32_t or uint64_t, which stand for any numbers of these sizes.
template <class Y, class X>
void strided_copy(CudaStream stream, Y* y, const X* x, const cpu::StridedWalk<2>& walk, int64_t elements);
// Computes OpTable::strided_sum, where Y is T, Accumulate<T> or double. `kept` has the strides of y, then the strides of x;
// `summed` has the strides of x.
struct StridedSums {
  cpu::StridedWalk<2> kept;
  cpu::StridedWalk<1> summed;
  int64_t elements, terms;  // the lengths of the walks
  double factor;
  bool accumulate;
};
size_t strided_sum_scratch(const StridedSums& sums);  // at most kProductWorkspace
template <class Y, class T>
void strided_sum(CudaStream stream, void* scratch, Y* y, const T* x, const StridedSums& sums);
// Computes OpTable::map for `inputs` inputs.
template <class T>
struct MapViews {
  const T* x[3];
  cpu::StridedWalk<1> walks[3];
  int inputs;
};
template <class T>
void map_views(CudaStream stream, T* y, const MapViews<T>& views, int64_t n, MapOp op, double a, double b);

// ---- softmax over rows (softmax.cu), or log_softmax if `logarithm` ----
template <class T>
void softmax(CudaStream stream, T* y, const T* x, int64_t rows, int64_t columns, bool logarithm);
template <class T>
void softmax_backward(CudaStream stream, T* dx, const T* dy, const T* y, int64_t rows, int64_t columns,
                      bool logarithm);

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
// The activation of the rows of choices with gates, and its adjoint, in whole packs; T has 16 bits (choice_activations.cu).
// The formula is an index in cpu::Gates if `gated`, else in cpu::Activations. y [choices, columns].
struct ChoiceActivation {
  size_t formula;
  bool gated;
  cpu::GateRule rule;
};
template <class T>
void activate_choices(CudaStream stream, const ChoiceActivation& activation, T* y, const T* x,
                      const float* gates, const int32_t* row, int64_t choices, int64_t columns);
template <class T>
void activate_choices_backward(CudaStream stream, const ChoiceActivation& activation, T* dx, T* y,
                               float* dgates, const T* dy, const T* x, const float* gates, const int32_t* row,
                               int64_t choices, int64_t columns);
template <class T>
void sum_choices(CudaStream stream, T* y, const T* x, const int32_t* row, int64_t tokens, int64_t choices,
                 int64_t columns, bool accumulate);
template <class T>
void expert_product(CudaStream stream, T* y, const T* x, const T* w, const int32_t* first, int64_t rows,
                    int64_t experts, int64_t n, int64_t k, bool transposed);
template <class T>
void expert_product_weight(CudaStream stream, Accumulate<T>* dw, const T* dy, const T* x,
                           const int32_t* first, int64_t rows, int64_t experts, int64_t m, int64_t n,
                           bool accumulate);

// The unit that executes a tensor-core instruction, and the shared memory of a block: warps, with 96 KiB
// (WarpInLittleMemory) or 144 KiB (Warp), or warpgroups with 224 KiB
// and up to 2 KiB of static memory. A device that supports a unit also supports the
// units listed before it.
enum class ProductUnit { WarpInLittleMemory, Warp, Warpgroup };

std::optional<ProductUnit> best_product_unit();  // on the current device
// The best unit of a device of compute capability `major`.x with `shared` bytes of shared memory per block. Warpgroups
// need 9.0, and kernels compiled `for_90a`, not 90.
std::optional<ProductUnit> unit_for(int major, int shared, bool for_90a);

// expert_product and expert_product_weight on tensor cores, for 16-bit T (expert_products.cu). Return false, and
// enqueue nothing, unless the device has the unit, all addresses are multiples of 16 and the numbers of columns are
// multiples of 8. rows, experts, m, n, k < 2^31. If the driver cannot make tensor maps, warps are used in place of
// warpgroups. Where warpgroups add to gradients, subnormal operands and results (magnitude below 2^-126) become zero.
template <class T>
bool grouped_product(CudaStream stream, ProductUnit unit, T* y, const T* x, const T* w, const int32_t* first,
                     int64_t rows, int64_t experts, int64_t n, int64_t k, bool transposed);
template <class T>
bool grouped_product_weight(CudaStream stream, ProductUnit unit, float* dw, const T* dy, const T* x,
                            const int32_t* first, int64_t rows, int64_t experts, int64_t m, int64_t n,
                            bool accumulate);

// Warpgroups read a tensor [matrices, rows, columns] of Bfloat16 or float through a tensor map. Returns 0 if the driver
// makes that map, its error code if it refuses, and -1 if it cannot make tensor maps.
template <class T>
int tensor_map_error(const T* data, int64_t columns, int64_t rows, int64_t matrices);

// ---- the choices of a mixture of experts (choices.cu) ----
// The padding among tokens, whose choices do not count: tokens where of_token [T] is not 0; null: no padding.
struct PaddedTokens {
  const int32_t* of_token = nullptr;
  int64_t choices = 1;  // choices per token
  HD bool has(int64_t choice) const { return of_token != nullptr && of_token[choice / choices] != 0; }
};
// counts [lists, experts]: the choices of each expert in each of `lists` lists of `choices` choices.
void count_choices(CudaStream stream, int32_t* counts, const int32_t* chosen, const PaddedTokens& padding,
                   int64_t experts, int64_t choices, int64_t lists);
void add_choice_counts(CudaStream stream, double* counts, const int32_t* chosen, const PaddedTokens& padding,
                       int64_t experts, int64_t choices, int64_t begin);
// For `all` choices, `choices` per sequence; scratch: router_workspace(all).
template <class W>
void drop_choices(CudaStream stream, void* scratch, int32_t* taken, const int32_t* chosen, const W* gates,
                  int64_t all, int64_t choices, const ExpertLimit& limit);
void sort_choices(CudaStream stream, int32_t* first, int32_t* row, int32_t* token, const int32_t* chosen,
                  int64_t experts, int64_t choices, int64_t each);
// first [ranks, each]  expert [rows]
void experts_of_ranks(CudaStream stream, int32_t* expert, const int32_t* first, int64_t ranks, int64_t each,
                      int64_t begin, int64_t local_experts, int64_t skip, int64_t rows);
template <class T>
void clear_rows(CudaStream stream, T* y, const int32_t* begin, int64_t rows, int64_t columns);

// ---- factors of FP8 products (fp8.cu) ----
// `to` is the factor by which a tensor was multiplied before it was rounded; `from` is its inverse, by which cuBLASLt
// multiplies, and whose address must be a multiple of 16 bytes on Hopper.
struct alignas(16) Fp8Scale {
  float from, to;
};
// Computes, in device memory, scale.to = the format's largest number / the largest magnitude of x [rows, columns], and
// y = x scale.to, rounded, [rows, columns], or [columns, rows] if `transposed`. A NaN or infinity in x makes y NaN. If
// transposed, both extents must be multiples of 16 and both addresses aligned to packs.
void to_fp8(CudaStream stream, void* scratch, uint8_t* y, Fp8Scale* scale, const Bfloat16* x, int64_t rows,
            int64_t columns, bool transposed, cpu::Fp8 format);

// ---- factors of FP8 products with scales of blocks (fp8_blocks.cu), of extents that are multiples of 16 ----
// y = x in these forms, in one pass.
void write_forms(CudaStream stream, const NarrowForms& y, const Bfloat16* x);
// w [rows, columns] with a scale for 128 x 128 elements: codes [rows, columns], scales [blocks of rows,
// weight_scale_stride(columns)]; `turned`: codes [columns, rows], scales [blocks of columns, weight_scale_stride(rows)].
void narrow_weight(CudaStream stream, uint8_t* codes, float* scales, const Bfloat16* w, int64_t rows,
                   int64_t columns, bool turned);
// The turned form, and the sums, of a matrix that is narrow already; sums are of its narrow elements. y has no codes.
void turn_rows(CudaStream stream, const NarrowForms& y, const NarrowMatrix& x);
// total [columns] = the sums over all rows, of the sums of a form; added to total if `accumulate`.
void add_turned_sums(CudaStream stream, float* total, const float* sums, int64_t rows, int64_t columns,
                     bool accumulate);

// Results in narrow forms (norms.cu, activations.cu), with the bits of write_forms of the bf16 result.
void norm_narrow(CudaStream stream, const NarrowMatrix& y, float* mean, float* rstd, const Bfloat16* x,
                 const Bfloat16* gain, const Bfloat16* bias, double eps, double offset);
void activate_narrow(CudaStream stream, size_t formula, const NarrowForms& y, const Bfloat16* x);
void activate_backward_narrow(CudaStream stream, size_t formula, const NarrowForms& dx, const Bfloat16* dy,
                              const Bfloat16* saved);
void gated_narrow(CudaStream stream, size_t formula, const cpu::GateRule& rule, const NarrowForms& y,
                  const Bfloat16* x);
// dx has a multiple of 256 columns.
void gated_backward_narrow(CudaStream stream, size_t formula, const cpu::GateRule& rule,
                           const NarrowForms& dx, const Bfloat16* dy, const Bfloat16* x);

}  // namespace trifold::cuda
