// The kernels behind the CPU OpTable: loops over raw memory on the calling thread, compiled once per
// instruction set.
//
// A kernel takes pointers and counts; the launchers (ops/launch.h) take tensors, split work over a pool
// and call kernels on the parts. A sum is computed by one kernel call in a fixed order, or by fixed chunks
// that the launcher adds in order, so results do not depend on the number of threads. This header is the only one that
// the per-instruction-set files share with the rest of the program. It must not contain function bodies:
// otherwise the linker might keep a function compiled for AVX-512 for the whole program.
#pragma once

#include <cstdint>

#include "core/float16.h"
#include "core/hd.h"
#include "ops/attention_heads.h"
#include "ops/experts.h"
#include "ops/map_op.h"

namespace trifold::cpu {

// Scalars that change every step (ops/ops.h: Factor, Dropout::sample). now() reads them when the kernel runs.
struct LateFactor {
  double constant = 1;
  const double* number = nullptr;  // null: 1
  HD double now() const { return number == nullptr ? constant : constant * *number; }
};
struct LateIndex {
  uint64_t index = 0;
  const int64_t* number = nullptr;  // null: 0
  uint64_t stride = 0;
  HD uint64_t now() const {
    return number == nullptr ? index : index + static_cast<uint64_t>(*number) * stride;
  }
};

// An update rule, or the address from which its values are read when the kernel runs.
template <class Rule>
struct LateRule {
  Rule rule{};
  const Rule* numbers = nullptr;  // null: `rule` holds the values
  HD Rule now() const {
    if (numbers == nullptr) return rule;
    return *numbers;
  }
};

// Dropout in the form that kernels need: elements with word >= threshold are kept and multiplied by `multiplier`.
struct DropRule {
  bool active = false;
  uint32_t key_lo = 0;
  uint32_t key_hi = 0;
  uint32_t threshold = 0;
  double multiplier = 1;
};

// RandomRounding of ops.h without its key.
struct RandomRoundingRows {
  int64_t begin = 0, width = 1, stride = 1, first = 0;
};

// The rows of a quantized matrix (QuantizedForm of ops/quantized.h). Element i of a row has the scale i >> scale_shift
// from the row's first on.
struct QuantizedRows {
  bool four_bits = false;
  bool along_columns = false;
  int scale_shift = 0;
  int64_t columns = 0, row_bytes = 0;
  int64_t row_scales = 0;              // scales of a row, or of a band of rows
  int64_t matrix_rows = 0, bands = 0;  // rows and bands of a matrix, with blocks along columns
  int64_t band_rows = 0;
};

// The numbers of a gated activation (Gating of ops.h).
struct GateRule {
  double slope = 1, limit = 0, offset = 0;
};

// Uniform random numbers: low + step * (word + 1/2). Only the key of `words` is read.
struct UniformRule {
  DropRule words;
  double low = 0, step = 0;
};

// Constants of Adam's moments and direction.
struct MomentRule {
  double grad_scale;
  double beta1, one_minus_beta1;
  double beta2, one_minus_beta2;
  double root_scale;  // 1 / sqrt(1 - beta2^step)
  double eps;
};

struct AdamWRule {
  MomentRule moments;
  double decay;      // 1 - lr * weight_decay
  double step_size;  // lr / (1 - beta1^step)
};

struct LambRule {
  MomentRule moments;
  double first_scale;  // 1 / (1 - beta1^step)
  double weight_decay;
  double step_size;  // lr * trust ratio; second phase only
};

struct SgdRule {
  double grad_scale, weight_decay, momentum, lr;
};

struct AdagradRule {
  double grad_scale, weight_decay, eps, lr;
};

// The type of an update's second output, the weights that layers read. The 16-bit types only for f32.
enum class CopyType : uint8_t { None, Same, Bfloat16, Float16 };
struct WeightCopy {
  CopyType type = CopyType::None;
  void* to = nullptr;
};

// The columns of a row that are real vocabulary entries: column c is id first_id + c; columns from `held` on
// are padding.
struct VocabularyPart {
  int64_t columns;
  int64_t held;
  int64_t first_id;
};

// The largest number of pairs that `rotary` rotates per head.
constexpr int64_t kRotaryPairs = 512;

// Rows of `columns` elements, `x_stride` and `y_stride` apart: first `heads` heads of `width` elements. The first
// 2 * pairs elements of a head are rotated by position * frequencies[pair], negated if `inverse`, and multiplied by
// `scale`; the rest of the row is copied.
struct RotaryShape {
  int64_t x_stride, y_stride, columns;
  int64_t heads, width, pairs;
  const double* frequencies;
  bool inverse;
  double scale;
};

// The shape of multi-head latent attention (LatentHeads in ops/rotary.h).
struct LatentShape {
  int64_t heads, plain, pairs, value, width;
  const double* frequencies;
  double key_scale;
};

// Elements of one partial sum of chunk_squares.
constexpr int64_t kSquaresChunk = 256;

// Sums over rows: chunks of kRowChunk rows are summed in the type of the result, and their sums are added in f64.
constexpr int64_t kRowChunk = 32;

// The tensors from which the gradient of a router's logits is computed, [T, E], [T, k] or [T]; T is the type
// in which it is stored.
template <class T>
struct RouterGradient {
  using Wide = Accumulate<T>;
  const Wide* dgates;
  const Wide* gates;
  const int32_t* chosen;
  const Wide* logits;
  const int32_t* counts;
  const float* weight;
  LateFactor loss;
  RouterLosses losses;
  Router router;
  int64_t experts;
  int64_t seq;
};

// The indices of a box (ops/strided.h) in row-major order, and for each of several tensors the distance between elements
// that are neighbours along an axis. Axes are joined where possible (ops/walk.h); there is at least one.
constexpr int kWalkAxes = 6;
template <int Tensors>
struct StridedWalk {
  int rank;
  int64_t extents[kWalkAxes];
  int64_t strides[Tensors][kWalkAxes];
};

// y[i] = f(x0[i], x1[i], x2[i]) of a MapOp with constants a and b; inputs that f does not have are not read. y may be an
// input.
template <class T>
using MapKernel = void (*)(T* y, const T* x0, const T* x1, const T* x2, int64_t n, T a, T b);

// y = f(x) and dx = dy f'(saved) of an activation (ops/activations.h).
template <class T>
struct ActivationKernels {
  void (*forward)(T* y, const T* x, int64_t n);
  void (*backward)(T* dx, const T* dy, const T* saved, int64_t n);
};

// y = f(gate) * up and its adjoint, of a formula of Gates; `columns` of y.
template <class T>
struct GateKernels {
  void (*forward)(T* y, const T* x, int64_t rows, int64_t columns, const GateRule& rule);
  void (*backward)(T* dx, const T* dy, const T* x, int64_t rows, int64_t columns, const GateRule& rule);
};

// Kernels for activations, weights and their products. T is the storage type of tensors; `Wide` is the type
// of computation, of statistics and of the gradients of parameters.
template <class T>
struct StorageKernels {
  using Wide = Accumulate<T>;

  void (*fill)(T* y, int64_t n, Wide number);
  void (*to_f32)(float* y, const T* x, int64_t n);
  void (*from_f32)(T* y, const float* x, int64_t n);
  // Rows [begin, end) of a quantized matrix.
  void (*dequantize)(T* y, const uint8_t* codes, const Bfloat16* scales, int64_t begin, int64_t end,
                     const QuantizedRows& form);
  void (*scale)(T* y, int64_t n, Wide a);
  void (*add)(T* y, const T* a, const T* b, int64_t n);
  void (*maximum)(T* y, const T* x, int64_t n);  // y = max(y, x); NaN wins
  const ActivationKernels<T>* activations;       // by the index of the formula (kernels/formulas.h)
  const GateKernels<T>* gates;                   // by the index of the formula
  // y = residual + drop(x), or drop(x) where residual is null; x[0] is the global element `first`.
  void (*dropout)(T* y, const T* residual, const T* x, int64_t n, uint64_t first, const DropRule& rule);
  void (*scale_uniform)(T* y, const T* x, int64_t n, uint64_t first, const UniformRule& rule);

  void (*layer_norm)(T* y, Wide* mean, Wide* rstd, const T* x, const T* gain, const T* bias, int64_t rows,
                     int64_t columns, double eps, double gain_offset);
  void (*layer_norm_backward)(T* dx, const T* dy, const T* x, const Wide* mean, const Wide* rstd,
                              const T* gain, int64_t rows, int64_t columns, double gain_offset);
  // Column sums process columns [begin, end) of all rows: a strip belongs to one worker.
  void (*layer_norm_backward_weight)(Wide* dgain, Wide* dbias, const T* dy, const T* x, const Wide* mean,
                                     const Wide* rstd, int64_t rows, int64_t columns, int64_t begin,
                                     int64_t end);
  void (*rms_norm)(T* y, Wide* rstd, const T* x, const T* gain, int64_t rows, int64_t columns, double eps,
                   double gain_offset);
  void (*rms_norm_backward)(T* dx, const T* dy, const T* x, const Wide* rstd, const T* gain, int64_t rows,
                            int64_t columns, double gain_offset);
  void (*rms_part_sums)(Wide* sums, const T* x, const T* dy, const T* gain, int64_t rows, int64_t columns,
                        double gain_offset);
  void (*rms_part)(T* y, const T* x, const Wide* rstd, const T* gain, int64_t rows, int64_t columns,
                   double gain_offset);
  void (*rms_part_backward)(T* dx, const T* dy, const T* x, const Wide* rstd, const Wide* along,
                            const T* gain, int64_t rows, int64_t columns, double gain_offset);
  void (*rms_norm_backward_weight)(Wide* dgain, const T* dy, const T* x, const Wide* rstd, int64_t rows,
                                   int64_t columns, int64_t begin, int64_t end);
  void (*column_sum)(Wide* db, const T* dy, int64_t rows, int64_t columns, int64_t begin, int64_t end);
  // c[m, n] (rows c_stride apart) += bias, then max(0, c) if `relu` is set.
  void (*bias_relu)(T* c, int64_t c_stride, const T* bias, int64_t m, int64_t n, bool relu);
  // Also writes sums [ceil(rows / kRowChunk), columns]: the column sums of dx for each chunk of kRowChunk rows.
  void (*relu_backward)(T* dx, Wide* sums, const T* dy, const T* y, int64_t rows, int64_t columns);
  void (*cross)(T* y, const T* x0, const T* u, const T* x, int64_t n);
  void (*cross_backward)(T* du, T* dx0, const T* dy, const T* x0, const T* u, int64_t n);

  void (*rotary)(T* y, const T* x, const int32_t* positions, int64_t rows, const RotaryShape& shape);
  void (*latent_heads)(T* packed, const T* q, const T* kv, const T* key, const int32_t* positions,
                       int64_t rows, const LatentShape& shape);
  void (*latent_heads_backward)(T* dq, T* dkv, T* dkey, const T* dpacked, const int32_t* positions,
                                int64_t rows, const LatentShape& shape);

  void (*embedding)(T* y, const T* table, const int32_t* ids, int64_t rows, int64_t columns, int64_t first_id,
                    int64_t held, bool accumulate);
  // `order` lists the rows by id, ascending within an id.
  void (*embedding_backward)(Wide* dtable, const T* dy, const int32_t* ids, const int32_t* order,
                             int64_t rows, int64_t columns, int64_t begin, int64_t end, int64_t first_id,
                             int64_t held);

  void (*softmax_stats)(Wide* max, Wide* sum, Wide* target, const T* logits, const int32_t* labels,
                        int64_t rows, const VocabularyPart& part);
  void (*cross_entropy_backward)(T* dlogits, const T* logits, const Wide* max, const Wide* sum,
                                 const int32_t* labels, const float* weight, double scale, int64_t rows,
                                 const VocabularyPart& part);

  double (*sum_squares)(const T* x, int64_t n);

  // Strided views: indices [begin, end) of a walk. Pointers are to the element of index 0.
  void (*gather)(Wide* to, const T* x, const StridedWalk<1>& walk, int64_t begin, int64_t end);
  // y = x, each rounded once; the walk has the strides of y, then the strides of x.
  void (*copy_strided_from_f32)(T* y, const float* x, const StridedWalk<2>& walk, int64_t begin, int64_t end);
  void (*copy_strided_from_f64)(T* y, const double* x, const StridedWalk<2>& walk, int64_t begin,
                                int64_t end);
  void (*copy_strided_to_f32)(float* y, const T* x, const StridedWalk<2>& walk, int64_t begin, int64_t end);
  void (*copy_strided_to_f64)(double* y, const T* x, const StridedWalk<2>& walk, int64_t begin, int64_t end);
  // sums[i] += the sum over the walk of x[i * stride + its distance], i < n
  void (*add_strided)(double* sums, const T* x, int64_t stride, int64_t n, const StridedWalk<1>& walk,
                      int64_t begin, int64_t end);
  // The sum over the walk.
  double (*sum_strided)(const T* x, const StridedWalk<1>& walk, int64_t begin, int64_t end);
  // y[i * stride] = factor * sums[i], plus its previous value if `accumulate`
  void (*store_sums)(T* y, int64_t stride, const double* sums, int64_t n, double factor, bool accumulate);

  void (*softmax)(T* y, const T* x, int64_t rows, int64_t columns);
  void (*softmax_backward)(T* dx, const T* dy, const T* y, int64_t rows, int64_t columns);
  void (*log_softmax)(T* y, const T* x, int64_t rows, int64_t columns);
  void (*log_softmax_backward)(T* dx, const T* dy, const T* y, int64_t rows, int64_t columns);

  // Mixture of experts, as in ops.h. [begin, end) are choices in gate_rows and gate_rows_backward, otherwise tokens.
  void (*route_backward)(T* dlogits, const RouterGradient<T>& in, int64_t begin, int64_t end);
  void (*gate_rows)(T* y, const T* x, const Wide* gates, const int32_t* row, int64_t columns, int64_t begin,
                    int64_t end);
  void (*gate_rows_backward)(T* dx, Wide* dgates, const T* dy, const T* x, const Wide* gates,
                             const int32_t* row, int64_t columns, int64_t begin, int64_t end);
  void (*sum_choices)(T* y, const T* x, const int32_t* row, int64_t choices, int64_t columns, bool accumulate,
                      int64_t begin, int64_t end);

  // Unless output.adds is set, every query must see a key.
  void (*attention_forward)(const HeadOutput<T>& output, const HeadInput<T>& in, const HeadShape& shape,
                            const DropRule& rule, Wide* scratch);
  // Query heads that share a key head are computed by consecutive calls with the same scratch. The first call sets
  // `assign` and assigns the gradients of keys and values (except in steps, Attention::key_rows); later calls add to
  // them. After the last call, which sets `last`, grad.key and grad.value are complete.
  void (*attention_backward)(const HeadGradient<T>& grad, const T* dout, const T* out, const Wide* lse,
                             const HeadInput<T>& in, const HeadShape& shape, const DropRule& rule,
                             bool assign, bool last, Wide* scratch);
};

// Kernels for statistics, gradients of parameters and optimizer state, which are never stored in 16 bits.
template <class T>
struct Kernels {
  void (*softmax_rescale)(T* sum, const T* local_max, const T* global_max, int64_t n);
  void (*cross_entropy)(T* loss, const T* max, const T* sum, const T* target, int64_t n);
  double (*weighted_sum)(const T* x, const float* weight, int64_t n);
  // Tokens [begin, end); bias may be null.
  void (*route)(T* gates, int32_t* chosen, const T* logits, const T* bias, int64_t experts,
                const Router& router, int64_t begin, int64_t end);
  // Sequences [begin, end); `padding` may be null.
  void (*router_losses)(T* balance, T* z, int32_t* counts, const T* logits, const int32_t* padding,
                        int64_t experts, int64_t seq, const Router& router, int64_t begin, int64_t end);
  void (*chunk_squares)(double* partials, const T* x, int64_t n);
  const MapKernel<T>* maps;  // by MapOp
  void (*adamw)(T* p, WeightCopy copy, T* m, T* v, const T* g, int64_t n, const AdamWRule& rule);
  void (*sgd)(T* p, WeightCopy copy, T* b, const T* g, int64_t n, const SgdRule& rule);  // b may be null
  void (*adagrad)(T* p, WeightCopy copy, T* s, const T* g, int64_t n, const AdagradRule& rule);
  // Element i has the global index first + i; `words` has the key.
  void (*round_randomly)(Bfloat16* y, const T* x, int64_t n, uint64_t first, const DropRule& words);
  void (*round_to_small)(uint8_t* y, const T* x, int64_t n, uint64_t first, const DropRule& words,
                         bool is_signed);
  void (*widen_small)(T* y, const uint8_t* x, int64_t n, bool is_signed);
  void (*lamb_moments)(double* p_squares, double* u_squares, T* m, T* v, const T* p, const T* g, int64_t n,
                       const LambRule& rule);
  void (*lamb)(T* p, WeightCopy copy, const T* m, const T* v, int64_t n, const LambRule& rule);
};

// The touched rows of one table: the views of ops/recommender.h as pointers. `dy` points to the table's first column
// of row 0.
template <class T>
struct RowTask {
  T* table;
  T* state;
  T* second;
  const int32_t* row;
  const int32_t* begin;
  const int32_t* bag;
  const float* weight;  // or null
  const T* dy;
  T* squares;        // or null
  const T* touched;  // an entry of 0: the row is not updated; null: all rows are
  int64_t dy_stride;
  int64_t width;
  int64_t whole_width;  // columns of the whole row; equal to `width` unless columns are sharded
};

// What is done with a touched row's gradient: an update (SparseKind), or the sum of its squares, or storing it.
enum class RowAction : uint8_t { Sgd, Adagrad, RowwiseAdagrad, Adam, Ftrl, Squares, Store };
struct FtrlRule {
  double rate;  // 1 / alpha
  double beta, l1, l2;
};
struct RowRule {
  MomentRule moments;  // grad_scale and eps are used by all actions
  double lr;
  double step_size;  // for Adam: lr / (1 - beta1^step)
  double decay;      // weights are multiplied by it first; 1: no weight decay
  FtrlRule ftrl;
};
constexpr bool has_whole_state(RowAction action) {
  return action == RowAction::Adagrad || action == RowAction::Adam || action == RowAction::Ftrl;
}
constexpr bool has_second_state(RowAction action) {
  return action == RowAction::Adam || action == RowAction::Ftrl;
}

// Kernels for recommender models, in f32 and f64.
template <class T>
struct RecommenderKernels {
  // Bags [begin, end), whose rows of y are y_stride apart; y is the row of bag 0.
  void (*embedding_bag)(T* y, int64_t y_stride, const T* table, int64_t width, const int32_t* ids,
                        const int32_t* offsets, const float* weights, int64_t begin, int64_t end);
  // Touched rows [begin, end); `gradient` has room for one row.
  void (*update_rows)(const RowTask<T>& task, RowAction action, const RowRule& rule, T* gradient,
                      int64_t begin, int64_t end);
  // Rows [begin, end) of out [columns, rows], the transpose of x [rows, columns].
  void (*transpose)(T* out, const T* x, int64_t rows, int64_t columns, int64_t begin, int64_t end);
  // Rows of x and y as in ops.h. Scratch: interaction_scratch() elements.
  void (*dot_interaction)(T* y, const T* x, int64_t rows, int64_t vectors, int64_t width, bool self,
                          T* scratch);
  void (*dot_interaction_backward)(T* dx, const T* dy, const T* x, int64_t rows, int64_t vectors,
                                   int64_t width, bool self, T* scratch);
  void (*sigmoid)(T* p, const T* z, int64_t n);
  void (*inverse_root)(T* y, const T* x, double eps, int64_t n);
  void (*click_loss)(T* loss, const T* z, const float* labels, int64_t n, bool squared);
  void (*click_loss_backward)(T* dz, const T* z, const float* labels, const float* weight, double scale,
                              int64_t n, bool squared);
};

// Elements of scratch for the interaction of `vectors` vectors of width `width`: the transposed vectors, padded to
// whole registers of the widest instruction set, and the matrix of their products.
constexpr int64_t kInteractionPad = 32;
constexpr int64_t padded_vectors(int64_t vectors) {
  return (vectors + kInteractionPad - 1) / kInteractionPad * kInteractionPad;
}
constexpr int64_t interaction_scratch(int64_t vectors, int64_t width) {
  return padded_vectors(vectors) * (width + vectors + kInteractionPad);
}

// y = x for indices [begin, end) of a walk, for numbers of 2, 4 and 8 bytes. The walk has the strides of y, then the
// strides of x.
struct WordKernels {
  void (*copy_2)(uint16_t* y, const uint16_t* x, const StridedWalk<2>& walk, int64_t begin, int64_t end);
  void (*copy_4)(uint32_t* y, const uint32_t* x, const StridedWalk<2>& walk, int64_t begin, int64_t end);
  void (*copy_8)(uint64_t* y, const uint64_t* x, const StridedWalk<2>& walk, int64_t begin, int64_t end);
};

struct KernelTable {
  const char* name;
  Kernels<float> f32;
  Kernels<double> f64;
  StorageKernels<float> stored_f32;
  StorageKernels<double> stored_f64;
  StorageKernels<Bfloat16> stored_bf16;
  StorageKernels<Float16> stored_f16;
  RecommenderKernels<float> recommender_f32;
  RecommenderKernels<double> recommender_f64;
  WordKernels words;
};

extern const KernelTable kKernelsGeneric;
#if defined(__x86_64__)
extern const KernelTable kKernelsV3;
extern const KernelTable kKernelsV4;
#endif

}  // namespace trifold::cpu
