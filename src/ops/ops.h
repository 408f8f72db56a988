// OpTable: every arithmetic operation of the engine, one typed function pointer each.
//
// A table is filled once per back end; making one that lacks an operation is an Error. Conventions:
//   * `Stream&` first, then outputs, then inputs. Calls enqueue; they return before the work is done if the
//     stream is asynchronous, and do nothing on a Dry stream, so no operation reads a tensor outside the
//     enqueued work.
//   * All floating-point tensors of one call have one dtype, any of f64, f32, bf16, f16, unless stated
//     otherwise. Statistics of rows (mean, rstd, lse, max, sum, target, loss) and gradients of parameters
//     (dgain, dbias, db, dtable) have its accumulate_type: f32 for the 16-bit types, which are computed with
//     in f32; results are rounded once, to nearest even. Operations on statistics and optimizer states alone
//     take f32 and f64. ids and labels are i32.
//   * Activation gradients are assigned ("dx = "). Parameter gradients are added ("dw += ") if `accumulate` is
//     set, and otherwise assigned, so that they need not be initialised.
//   * An output may alias an input only if the comment says so.
//   * Tables of products in 8 bits take and write some tensors in narrow form (ops/narrow.h). Other tables write Forms
//     that have nothing but a floating-point matrix, and read that.
//   * A result never depends on the number of threads: every sum has a fixed order.
// Notation: R rows, C columns, V vocabulary entries held here, B samples, T positions, H heads, D head width.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "core/random.h"
#include "core/sequence_rows.h"
#include "core/stream.h"
#include "core/tensor.h"
#include "ops/experts.h"
#include "ops/forms.h"
#include "ops/quantized.h"
#include "ops/recommender.h"
#include "ops/rotary.h"
#include "ops/strided.h"
#include "ops/update_rules.h"

namespace trifold {

enum class Reduce { Sum, Max };

// Elements of a chunk of chunk_squares: the granularity at which flat buffers are sharded.
constexpr int64_t kNormChunk = 256;

// Scalars that change every step (loss scale, sample index, learning rate) can be in memory instead of in a launch's
// arguments: kernels read them at run time, so a captured launch can be replayed (pipeline/block_graphs.h).
//
// Factor is such a scalar: constant, times number[0] if `number`, f64 [1], has memory.
struct Factor {
  Factor(double times) : constant(times) {}  // NOLINT(google-explicit-constructor): a plain number is one
  Factor(double times, Tensor late) : constant(times), number(late) {}
  double constant;
  Tensor number = {};
};

// Element e of a tensor is kept if its Philox word under `key`, at global element index `first_element + e`,
// is at least probability * 2^32; kept elements are multiplied by 1 / (1 - probability). Probability 0 keeps
// all.
struct Dropout {
  double probability = 0;
  PhiloxKey key;
  uint64_t first_element = 0;
  // i64 [1] or no memory: if it has memory, sample[0] * sample_elements is added to first_element.
  Tensor sample = {};
  int64_t sample_elements = 0;
};

// Floating-point numbers in 8 bits without a scale, for moments of an optimizer: no part of a tensor decides how another
// is rounded. Both have 2 mantissa bits, subnormal numbers, and no infinity; larger numbers become the largest.
//   Signed     a sign, 5 exponent bits:  2^-31 to 3.5, and 0; 0x80 is NaN
//   Positive   6 exponent bits:          2^-60 to 24, and 0; 0xff is NaN; negative numbers become 0
enum class SmallFloat : uint8_t { Signed, Positive };

// Random rounding of elements that lie in rows of a global tensor. Element e of a tensor is element first + e of rows of
// `width` elements, which begin `stride` elements apart in the global tensor, the first at `begin`; the Philox word
// under `key` at that global index decides how it is rounded.
struct RandomRounding {
  PhiloxKey key;
  int64_t begin = 0, width = 1, stride = 1;
  int64_t first = 0;
  SmallFloat format = SmallFloat::Signed;  // type of a result in 8 bits
};

// Softmax attention over packed projections. Row (b * seq + t) of `qkv` holds `heads` query heads, then
// `kv_heads` key heads, then `kv_heads` value heads, each `head_dim` wide; query head h reads key head
// h / (heads / kv_heads). Context parallelism adds three variants:
//
// Gathered keys: `rows` are the positions of a sequence that this rank holds. qkv, out and lse have rows.rows() rows
// per sample instead of seq. `key_values` holds the keys and values of all positions, and the ones in qkv are not
// read. Backward writes these queries' contributions to the gradients of keys and values to `dkey_values`, not to dqkv.
// If runs of rows begin and end at multiples of 8, a query and its gradient have the same bits as on a single rank.
//
// A group of heads (with `rows`): key_values holds `given_heads` key heads from `first_given` on. Only the query heads
// that read them are computed, and only their columns of qkv, out, lse and gradients are read and written. The results
// have the bits of a call for all heads.
//
// Steps (with `rows` and `key_rows`; Liu et al., "Ring Attention", arXiv 2310.01889): key_values holds the keys and
// values of the positions key_rows, a part of the sequence. `out` has the accumulate_type. The first step has the keys
// of the queries' own positions; each later one sets `further` and merges its keys into out and lse, which thus cover
// the keys of all steps so far. Backward takes out (in the type of dout) and lse over all keys, and adds to dqueries
// and dkey_values instead of assigning them. A run of key_rows equals a run of rows or overlaps with none. Keys after
// `lengths` and, under a causal mask, keys after a query are masked as in a single call.
struct Attention {
  int64_t batch = 0;
  int64_t seq = 0;    // length of a sequence
  int64_t heads = 0;  // query heads on this rank
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  bool causal = true;
  double scale = 1;  // usually 1 / sqrt(head_dim)
  // The number of valid keys of each sample, in [1, seq]. Later keys are masked; their gradients and their values'
  // gradients are zero. i32 [batch]; without memory: all keys are valid.
  Tensor lengths = {};
  // The first key that each query sees: the beginning of its document, if documents are packed into a sample. It is
  // at most the query's index, and non-decreasing within a sample. Masked keys cost no time. Only for causal
  // attention without lengths. i32 [batch, seq]; without memory: 0.
  Tensor first_keys = {};
  // Sliding window (Beltagy et al., "Longformer", arXiv 2004.05150): the query at position i sees only keys from i -
  // left to i + right, which must also be visible by the rules above; below 0: no limit. A causal attention has no
  // `right`. Masked keys cost no time. A query that sees no key, because all keys of its window are behind the sample's
  // length, has the output 0 and the lowest lse.
  int64_t left = -1, right = -1;
  // If above 0, a score s, already scaled, becomes soft_cap * tanh(s / soft_cap) (Gemma 2, arXiv 2408.00118).
  double soft_cap = 0;
  SequenceRows rows = {};      // empty: all positions
  SequenceRows key_rows = {};  // empty: all positions
  bool further = false;
  int64_t first_given = 0;
  int64_t given_heads = 0;  // 0: all, from first_given 0
  Tensor key_values = {};   // [batch * keys(), 2 given() * D], with `rows`
  Tensor dkey_values = {};  // backward: the shape of key_values, in accumulate_type
  Tensor dqueries = {};     // backward with key_rows: [batch * queries(), heads * D], in accumulate_type
  bool in_steps() const { return key_rows.rows() > 0; }
  // Keys of a sample in this call, key heads in this call, and queries of a sample on this rank.
  int64_t keys() const { return in_steps() ? key_rows.rows() : seq; }
  int64_t given() const { return given_heads > 0 ? given_heads : kv_heads; }
  int64_t queries() const { return rows.rows() > 0 ? rows.rows() : seq; }
  // Dropout of the probabilities. The element of (sample b, head h, query i, key j) is, as a global index,
  // (((first_sample + b) * global_heads + first_head + h) * seq + i) * seq + j; dropout.first_element is not
  // used. (On CUDA in 16 bits the mask is cuDNN's own: ops/cuda/attention.h.)
  Dropout dropout;
  int64_t first_sample = 0;
  int64_t first_head = 0;
  int64_t global_heads = 0;
  Tensor sample = {};  // i64 [1]; if it has memory, sample[0] is added to first_sample
  // The columns of a key and of a value before their padding of zeros, for counts of flops; 0: head_dim.
  int64_t key_dim = 0, value_dim = 0;
};

// A gated activation of two halves of a row, gate g and up u (OpTable::gated):
//   Silu, Gelu, GeluErf  f(g) u, where silu(g) = g sigmoid(g)
//   ClampedSilu          g' sigmoid(slope g') (u' + offset), g' = min(g, limit), u' = u clamped to [-limit, limit]
struct Gating {
  enum class Kind : uint8_t {
    Silu,
    Gelu,
    GeluErf,
    ClampedSilu
  };  // in the order of cpu::Gates (kernels/formulas.h)
  Kind kind = Kind::Silu;
  double slope = 1;
  double limit = std::numeric_limits<double>::infinity();
  double offset = 0;
};

// The activations of feed-forward networks. Activations with a gate output half as many columns as x has.
enum class ActivationKind : uint8_t { Gelu, GeluErf, SquaredRelu, Relu, Swiglu, Geglu, GegluErf };
struct ActivationForm {
  ActivationForm(ActivationKind activation)
      : kind(activation) {}  // NOLINT(google-explicit-constructor): a kind is a form
  // Swiglu with slope, limit and offset of Gating::ClampedSilu.
  static ActivationForm clamped_swiglu(double slope, double limit, double offset) {
    ActivationForm form(ActivationKind::Swiglu);
    form.gating = {Gating::Kind::ClampedSilu, slope, limit, offset};
    return form;
  }
  bool gated() const { return kind >= ActivationKind::Swiglu; }

  ActivationKind kind;
  std::optional<Gating> gating = {};  // instead of the kind's
};

struct OpTable {
  const char* name;  // "x86-64-v4", "x86-64-v3", "generic", "cuda"; for reports and messages
  // The device of the tensors and streams; null: the host.
  Device* device;

  // ---- movement and elementwise ----
  // y = x in each of the forms of y that are present. x bf16 [R, C]; y.rows, if present, is narrow
  void (*write_forms)(Stream&, const Forms& y, Tensor x);
  void (*fill)(Stream&, Tensor y, double value);
  void (*copy)(Stream&, Tensor y, Tensor x);  // y = x; both have one dtype, which may be any
  // y = x rounded to y's dtype. Floating-point types; they are equal, or one of them is f32.
  void (*convert)(Stream&, Tensor y, Tensor x);
  void (*scale)(Stream&, Tensor y, const Factor& a);              // y = a * y
  void (*add)(Stream&, Tensor y, Tensor a, Tensor b);             // y = a + b; y may be a or b
  void (*reduce)(Stream&, Tensor y, Tensor x, Reduce reduction);  // y = y + x, or max(y, x); also i32 and i64
  void (*fill_rows)(Stream&, Tensor y, Tensor row);               // y[r, :] = row.  y [R, C]  row [C]

  // ---- matrix product: c = alpha * op(a) op(b) + beta * c, op transposing when its flag is set ----
  // c [M, N]; a [M, K] or, transposed, [K, M]; b [K, N] or, transposed, [N, K]. With beta 0, c need not be
  // initialised. c has the dtype of a and b, rounded once, or their accumulate_type. Tensors of more than two
  // dims are treated as matrices [row_count, last dim].
  void (*gemm)(Stream&, Tensor c, Tensor a, bool transpose_a, Tensor b, bool transpose_b, double alpha,
               double beta);

  // ---- products of linear layers, fused with adjacent operations. Each is defined by the sequence of calls to the
  // ---- right of its formula; the CPU has the bits of that sequence, another back end may round less often in between
  // ---- and, on request, use narrower factors.
  // ---- x, dx [R, K]  w, dw [N, K]  bias, db [N]  y, dy [R, N]; without memory of `bias`, no bias is added
  // y = x w^T + bias                       fill_rows(y, bias), gemm(y, x, w^T, beta 1)
  void (*affine)(Stream&, Tensor y, Tensor x, Tensor w, Tensor bias);
  // y = residual + (x w^T + bias)          affine(y), add(y, residual, y).  residual [R, N]; not aliased by y
  void (*affine_add)(Stream&, Tensor y, Tensor residual, Tensor x, Tensor w, Tensor bias);
  // z = x w^T + bias, y = gelu(z)          affine(z), gelu(y, z)
  void (*affine_gelu)(Stream&, const Forms& y, Tensor z, Tensor x, Tensor w, Tensor bias);
  // dx = dy w + beta dx                    gemm(dx, dy, w, beta)
  void (*affine_backward_input)(Stream&, Tensor dx, Tensor dy, Tensor w, double beta);
  // dz = (dy w) * gelu'(z).  z, dz [R, K]  gemm(dz, dy, w), gelu_backward(dz, dz, z)
  void (*affine_backward_gelu)(Stream&, Tensor dz, Tensor dy, Tensor w, Tensor z);
  // dw += dy^T x, db += column sums of dy  gemm(dw, dy^T, x, beta 1 or 0), column_sum(db, dy)
  void (*affine_backward_weight)(Stream&, Tensor dw, Tensor db, const Forms& dy, const Forms& x,
                                 bool accumulate);

  // ---- activation: tanh form of GELU (Hendrycks & Gimpel, arXiv 1606.08415) ----
  // y = x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))
  void (*gelu)(Stream&, const Forms& y, Tensor x);
  void (*gelu_backward)(Stream&, const Forms& dx, Tensor dy, Tensor x);  // dx may be dy
  // The exact form of GELU: y = x P(x), with the normal distribution P(x) = (1 + erf(x / sqrt(2))) / 2.
  void (*gelu_erf)(Stream&, const Forms& y, Tensor x);
  void (*gelu_erf_backward)(Stream&, const Forms& dx, Tensor dy, Tensor x);  // dx may be dy
  // y = max(x, 0)^2 (So et al., "Primer", arXiv 2109.08668).
  void (*squared_relu)(Stream&, const Forms& y, Tensor x);
  void (*squared_relu_backward)(Stream&, const Forms& dx, Tensor dy, Tensor x);  // dx may be dy

  void (*rectify)(Stream&, const Forms& y, Tensor x);                       // y = max(x, 0)
  void (*rectify_backward)(Stream&, const Forms& dx, Tensor dy, Tensor x);  // dx may be dy

  void (*tanh)(Stream&, const Forms& y, Tensor x);                       // y may be x
  void (*tanh_backward)(Stream&, const Forms& dx, Tensor dy, Tensor y);  // dx = dy * (1 - y^2); dx may be dy

  // ---- gated activations (Shazeer, arXiv 2002.05202) ----
  // y = f(gate) * up, the halves of a row of x, in the form that the gating describes.  y [R, C]  x [R, 2C] = [gate | up]
  void (*gated)(Stream&, const Forms& y, Tensor x, const Gating& gating);
  void (*gated_backward)(Stream&, const Forms& dx, Tensor dy, Tensor x,
                         const Gating& gating);  // dx may be x

  // ---- dropout ----
  void (*dropout)(Stream&, Tensor y, Tensor x, const Dropout& dropout);  // y may be x
  void (*dropout_add)(Stream&, Tensor y, Tensor residual, Tensor x,
                      const Dropout& dropout);  // y = residual + drop(x)
  // y = x * (low + (high - low) (w + 1/2) / 2^32), where w is the element's Philox word under which.key (see Dropout;
  // which.probability is not read); y may be x
  void (*scale_uniform)(Stream&, Tensor y, Tensor x, double low, double high, const Dropout& which);

  // ---- layer norm over the last dim (Ba et al., arXiv 1607.06450) ----
  // y = (x - mean) * rstd * (gain + gain_offset) + bias, rstd = 1 / sqrt(var + eps); the offset is added in the type of
  // rstd.  x, y [R, C]  mean, rstd [R]  gain, bias
  // [C]
  void (*layer_norm)(Stream&, Tensor y, Tensor mean, Tensor rstd, Tensor x, Tensor gain, Tensor bias,
                     double eps, double gain_offset);
  void (*layer_norm_backward)(Stream&, Tensor dx, Tensor dy, Tensor x, Tensor mean, Tensor rstd, Tensor gain,
                              double gain_offset);
  // dx = layer_norm_backward + residual: layer_norm_backward(dx), add(dx, dx, residual), fused as the
  // products above. residual [R, C]; not aliased by dx
  void (*layer_norm_backward_add)(Stream&, Tensor dx, Tensor residual, Tensor dy, Tensor x, Tensor mean,
                                  Tensor rstd, Tensor gain, double gain_offset);
  void (*layer_norm_backward_weight)(Stream&, Tensor dgain, Tensor dbias, Tensor dy, Tensor x, Tensor mean,
                                     Tensor rstd, bool accumulate);
  // layer_norm_backward_add (layer_norm_backward if `residual` has no memory) and layer_norm_backward_weight in one
  // call, with the bits of the separate operations.
  void (*layer_norm_backward_all)(Stream&, Tensor dx, Tensor dgain, Tensor dbias, Tensor residual, Tensor dy,
                                  Tensor x, Tensor mean, Tensor rstd, Tensor gain, bool accumulate,
                                  double gain_offset);
  // ---- root-mean-square norm over the last dim (Zhang & Sennrich, arXiv 1910.07467) ----
  // y = x * rstd * (gain + gain_offset), rstd = 1 / sqrt(mean of x^2 + eps).  x, y [R, C]  rstd [R]  gain [C]
  void (*rms_norm)(Stream&, Tensor y, Tensor rstd, Tensor x, Tensor gain, double eps, double gain_offset);
  void (*rms_norm_backward)(Stream&, Tensor dx, Tensor dy, Tensor x, Tensor rstd, Tensor gain,
                            double gain_offset);  // dx may be dy
  void (*rms_norm_backward_add)(Stream&, Tensor dx, Tensor residual, Tensor dy, Tensor x, Tensor rstd,
                                Tensor gain, double gain_offset);  // as layer_norm_backward_add
  void (*rms_norm_backward_weight)(Stream&, Tensor dgain, Tensor dy, Tensor x, Tensor rstd, bool accumulate);
  void (*rms_norm_backward_all)(Stream&, Tensor dx, Tensor dgain, Tensor residual, Tensor dy, Tensor x,
                                Tensor rstd, Tensor gain, bool accumulate,
                                double gain_offset);  // as layer_norm_backward_all

  // Root-mean-square norm of rows of which each rank has some columns: the sums of this rank's columns, and the rest once these are
  // added over the ranks.  x, y, dx, dy [R, C]  gain [C]  sums, rstd, along [R]
  // sums[r] = the sum over c of x[r, c]^2, or of x[r, c] dy[r, c] (gain[c] + gain_offset) if dy has memory
  void (*rms_part_sums)(Stream&, Tensor sums, Tensor x, Tensor dy, Tensor gain, double gain_offset);
  void (*rms_part)(Stream&, Tensor y, Tensor x, Tensor rstd, Tensor gain, double gain_offset);
  // dx = rstd (dy (gain + gain_offset) - x rstd^2 along); dx may be dy
  void (*rms_part_backward)(Stream&, Tensor dx, Tensor dy, Tensor x, Tensor rstd, Tensor along, Tensor gain,
                            double gain_offset);

  // db[c] += sum over r of dy[r, c]
  void (*column_sum)(Stream&, Tensor db, Tensor dy, bool accumulate);

  // ---- rotary position embedding (Su et al., arXiv 2104.09864); its adjoint is its inverse ----
  // x [R, X]  y [R, Y]  positions [R] i32, below 2^20; y may be x if the columns are the same
  void (*rotary)(Stream&, Tensor y, Tensor x, Tensor positions, const Rotary& rotation);

  // ---- multi-head latent attention ----
  // Fills the packed matrix of LatentHeads from the products q, kv and key.
  // packed [R, 3 H width]  q [R, H (plain + turned)]  kv [R, H (plain + value)]: for each head its key, then its value
  // key [R, turned]  positions [R] i32, below 2^20
  void (*latent_heads)(Stream&, Tensor packed, Tensor q, Tensor kv, Tensor key, Tensor positions,
                       const LatentHeads& latent);
  // The adjoint of latent_heads. dkey is summed over the heads of this rank.
  void (*latent_heads_backward)(Stream&, Tensor dq, Tensor dkv, Tensor dkey, Tensor dpacked, Tensor positions,
                                const LatentHeads& latent);
  // y[r, c] = x[r, c], or 0 where x has no column c.  y [R, Y]  x [R, X]
  void (*fit_columns)(Stream&, Tensor y, Tensor x);

  // ---- table rows by id ----
  // y[r, :] = table[ids[r] - first_id, :], or zeros if that row is not in this table; added to y if
  // `accumulate`. y [R, C]  table [V, C]  ids [R] i32
  void (*embedding)(Stream&, Tensor y, Tensor table, Tensor ids, int64_t first_id, bool accumulate);
  // dtable[ids[r] - first_id, :] += dy[r, :]; ids outside the table are skipped. The rows of one id are
  // summed separately, in increasing r, and their sum is added to the table, so its bits do not depend on the
  // table's previous content. order [R] i32: work space.
  void (*embedding_backward)(Stream&, Tensor dtable, Tensor dy, Tensor ids, Tensor order, int64_t first_id);

  // ---- attention: never stores [H, T, T]; blocks over queries and keys (Dao et al., arXiv 2205.14135) ----
  // out [B*T, heads*D]  lse [B, heads, T] (log of the sum of exponentials)  qkv [B*T, (heads + 2 kv_heads)*D],
  // where T is attention.queries()
  void (*attention)(Stream&, Tensor out, Tensor lse, Tensor qkv, const Attention& attention);
  void (*attention_backward)(Stream&, Tensor dqkv, Tensor dout, Tensor qkv, Tensor out, Tensor lse,
                             const Attention& attention);
  // Attention sinks (Xiao et al., arXiv 2309.17453; learned in gpt-oss, arXiv 2508.10925): a logit of each head that
  // takes part in the softmax but has no value. attention_sinks changes the results of `attention`: with s = log(exp(lse)
  // + exp(sinks[h])), out *= exp(lse - s) and lse = s. attention_backward takes the changed results.
  // dsinks[h] = -sum over samples and queries of exp(sinks[h] - lse) (dout . out), with the changed lse and out.
  // out, dout [B*T, heads*D]  lse [B, heads, T]  sinks [heads], in the type of out  dsinks [heads], in that of lse
  void (*attention_sinks)(Stream&, Tensor out, Tensor lse, Tensor sinks);
  void (*attention_sinks_backward)(Stream&, Tensor dsinks, Tensor dout, Tensor out, Tensor lse, Tensor sinks);

  // ---- cross entropy over a vocabulary that may be cut over ranks (Shoeybi et al., arXiv 1909.08053) ----
  // This rank holds the logits of ids [first_id, first_id + V); columns with id >= vocab are padding and are
  // ignored. max[r] = max_c logits; sum[r] = sum_c exp(logits - max); target[r] = logits[label], 0 if the
  // label is not on this rank. If all columns are padding, max = lowest finite value and sum = 0.
  void (*softmax_stats)(Stream&, Tensor max, Tensor sum, Tensor target, Tensor logits, Tensor labels,
                        int64_t first_id, int64_t vocab);
  // sum[r] *= exp(local_max[r] - global_max[r])
  void (*softmax_rescale)(Stream&, Tensor sum, Tensor local_max, Tensor global_max);
  // loss[r] = log(sum[r]) + max[r] - target[r]
  void (*cross_entropy)(Stream&, Tensor loss, Tensor max, Tensor sum, Tensor target);
  // dlogits = weight[r] * scale * (exp(logits - max) / sum - [c is the label]); padding columns get 0.
  // dlogits may be logits.  weight [R] f32 always
  void (*cross_entropy_backward)(Stream&, Tensor dlogits, Tensor logits, Tensor max, Tensor sum,
                                 Tensor labels, Tensor weight, const Factor& scale, int64_t first_id,
                                 int64_t vocab);
  // softmax_stats followed by cross_entropy_backward with its results: for ranks that hold the whole vocabulary
  void (*cross_entropy_all)(Stream&, Tensor dlogits, Tensor max, Tensor sum, Tensor target, Tensor logits,
                            Tensor labels, Tensor weight, const Factor& scale, int64_t first_id,
                            int64_t vocab);

  // ---- sums to a scalar, always accumulated in f64 in a fixed order ----
  void (*sum_squares)(Stream&, Tensor total, Tensor x);  // total f64 [1] += sum x^2
  void (*weighted_sum)(Stream&, Tensor total, Tensor x,
                       Tensor weight);  // total f64 [1] += sum x*w; weight f32
  // partials[c] = sum of the squares of elements [c * kNormChunk, (c + 1) * kNormChunk) of x. Added exactly
  // (core/exact_sum.h), they give a norm that does not depend on how x was cut into chunks. For f32 the bits
  // are the same in every table; for f64 a table without fused multiply-add ("generic") rounds differently.
  // partials f64 [ceil(n / kNormChunk)]  x [n]
  void (*chunk_squares)(Stream&, Tensor partials, Tensor x);

  // Adds the digits of every element to their limbs; ExactSum().add_limbs(limbs) is then the exact sum, whatever the
  // table and the order (core/exact_sum.h). limbs i64 [ExactSum::kLimbs], initially zero; x f64 [n], n at most
  // kMostExactAdditions
  void (*exact_sum)(Stream&, Tensor limbs, Tensor x);

  // ---- optimizer: one pass over memory, element by element ----
  // p (master weights), g and the rule's state have one dtype, f32 or f64, and one length; p and the state
  // are updated in place. `copy` receives the new p, in the dtype of p or, if that is f32, in a 16-bit one; without
  // memory (data null) no copy is written.
  void (*adamw)(Stream&, Tensor p, Tensor copy, Tensor m, Tensor v, Tensor g, const AdamW& rule);
  // d = g grad_scale + weight_decay p;  b = momentum b + d;  p -= lr b. Without momentum (0), b has no
  // memory.
  void (*sgd)(Stream&, Tensor p, Tensor copy, Tensor b, Tensor g, const Sgd& rule);
  // d = g grad_scale + weight_decay p;  s += d^2;  p -= lr d / (sqrt(s) + eps)
  void (*adagrad)(Stream&, Tensor p, Tensor copy, Tensor s, Tensor g, const Adagrad& rule);
  // y = one of the two neighbours of x in the type of y, the upper one with the probability with which the mean of y is x.
  // y bf16, or u8 with the codes of which.format; x f32, of one length.
  void (*round_randomly)(Stream&, Tensor y, Tensor x, const RandomRounding& which);
  // y f32 = the values whose codes are x, u8.
  void (*widen_small)(Stream&, Tensor y, Tensor x, SmallFloat format);
  // y = the elements of a quantized matrix, f32 numbers rounded to the type of y. y [form.rows, form.columns]; stored u8
  // [form.bytes()], at an address that is a multiple of 16
  void (*dequantize)(Stream&, Tensor y, Tensor stored, const QuantizedForm& form);
  // LAMB has two phases, because its step length depends on two norms, which may span ranks. The first
  // updates m and v as Adam does and writes the chunks' squares (as chunk_squares does) of p and of the
  // direction
  //   u = m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps) + weight_decay p;
  // the second recomputes u from the state that the first left:  p -= lr trust_ratio u.
  // The first phase ignores lr and trust_ratio.
  // p_squares, u_squares f64 [ceil(n / kNormChunk)]
  void (*lamb_moments)(Stream&, Tensor p_squares, Tensor u_squares, Tensor m, Tensor v, Tensor p, Tensor g,
                       const Lamb& rule);
  void (*lamb)(Stream&, Tensor p, Tensor copy, Tensor m, Tensor v, const Lamb& rule);

  // ---- recommender: linear, relu_backward, cross for every type, the rest for f32 and f64 ----
  // y = x w^T + bias, or max(0, x w^T + bias) with `relu`.  y [R, N]  x [R, K]  w [N, K]  bias [N]
  void (*linear)(Stream&, Tensor y, Tensor x, Tensor w, Tensor bias, bool relu);
  // dx = dy where y > 0, else 0;  db += its column sums. dx may be dy.  y, dy, dx [R, N]  db [N]
  void (*relu_backward)(Stream&, Tensor dx, Tensor db, Tensor dy, Tensor y, bool accumulate);
  // y[b, column + c] = sum of bag b's rows; zeros for an empty bag. Columns of y without a lookup are not
  // written.  y [B, columns]
  void (*embedding_bags)(Stream&, Tensor y, std::span<const BagLookup> lookups);
  // Computes orders[i] from lookups[i] (its ids, offsets and weights).
  void (*sort_lookups)(Stream&, std::span<const LookupOrder> orders, std::span<const BagLookup> lookups);
  // Backward of embedding_bags and the optimizer's step in one pass over the touched rows. dy [B, columns]
  void (*update_rows)(Stream&, Tensor dy, std::span<const RowUpdate> updates, const SparseRule& rule);
  // update.squares[s] = sum over the columns held here of the squares of row[s]'s gradient (times grad_scale)
  void (*row_squares)(Stream&, Tensor dy, std::span<const RowUpdate> updates, double grad_scale);
  // update.table[row] = the row's gradient and update.state[row] = 1 for every touched row.  state [rows]
  void (*row_gradients)(Stream&, Tensor dy, std::span<const RowUpdate> updates);
  // Every row b of x holds F vectors of `width` elements. y[b] = [first vector, the dot products v_i . v_j for
  // ascending i and, within i, j < i (j <= i with `self`)].  x [B, F * width]  y [B, width + F (F -+ 1) / 2]
  void (*dot_interaction)(Stream&, Tensor y, Tensor x, int64_t width, bool self);
  void (*dot_interaction_backward)(Stream&, Tensor dx, Tensor dy, Tensor x, int64_t width, bool self);
  // A cross layer (Wang et al., "DCN V2", WWW 2021), where u is its linear part: y = x0 * u + x, elementwise
  void (*cross)(Stream&, Tensor y, Tensor x0, Tensor u, Tensor x);
  // du = dy * x0;  dx0 += dy * u
  void (*cross_backward)(Stream&, Tensor du, Tensor dx0, Tensor dy, Tensor x0, Tensor u);
  void (*sigmoid)(Stream&, Tensor p, Tensor z);  // p = 1 / (1 + exp(-z))
  // loss[r] = the loss of logit z[r] and labels[r].  labels [R] f32
  void (*click_loss)(Stream&, Tensor loss, Tensor z, Tensor labels, ClickLoss kind);
  // dz[r] = weight[r] * scale * dloss/dz.  labels, weight [R] f32
  void (*click_loss_backward)(Stream&, Tensor dz, Tensor z, Tensor labels, Tensor weight, const Factor& scale,
                              ClickLoss kind);
  // Copies columns between matrices with the same number of rows, in the order of the list.
  void (*copy_columns)(Stream&, Tensor y, Tensor x, std::span<const ColumnCopy> copies);
  // y[to[i], :] = x[from[i], :] for every i; the rows in `to` are distinct. On a device each tensor may also be in
  // host memory that the device can access (Buffer::shared).  y [R, C]  x [S, C]  to, from [n] i32
  void (*copy_rows)(Stream&, Tensor y, Tensor to, Tensor x, Tensor from);
  void (*inverse_root)(Stream&, Tensor y, Tensor x, double eps);  // y = 1 / sqrt(x + eps); y may be x

  // ---- mixture of experts (ops/experts.h): T tokens, E experts, k choices per token, R = T k rows ----
  // ---- logits, gates and their statistics have the accumulate_type; chosen, row, token, first, counts i32
  // Chooses the k experts with the largest logits or, given a bias, with the largest logistic(logit) + bias; ties go
  // to the lower index. With Router::groups, only experts of the best groups are candidates.
  // logits [T, E]  bias [E] or no memory  gates, chosen [T, k]
  void (*route)(Stream&, Tensor gates, Tensor chosen, Tensor logits, Tensor bias, const Router& router);
  // counts[b, e] = how many of the `seq` tokens of sequence b, without padding, choose expert e if bias and groups are
  // ignored. With p the softmax of token t's logits or, for RouterGate::Sigmoid, their logistic functions over the sum
  // of these,
  //   balance[t] = E * sum over e of counts[b, e] p_e / sum over e of counts[b, e]  (1 if counts are equal, 0 if all 0)
  //   z[t] = (log of the sum over e of exp(logit))^2               (Zoph et al., arXiv 2202.08906)
  // balance, z [T]  counts [T / seq, E]: read instead of written with Router::counted
  // padding i32 [T]: not 0 at tokens that do not count; no memory: all tokens count
  void (*router_losses)(Stream&, Tensor balance, Tensor z, Tensor counts, Tensor logits, Tensor padding,
                        int64_t seq, const Router& router);
  // dlogits[t] = the gradient of the logits through the gates, given dgates, plus weight[t] * loss times the gradient
  // of losses.balance * balance[t] + losses.z * z[t]. Counts and choices are constants.
  // dlogits [T, E]  dgates [T, k]  weight [T] f32
  void (*route_backward)(Stream&, Tensor dlogits, Tensor dgates, Tensor gates, Tensor chosen, Tensor logits,
                         Tensor counts, Tensor weight, const Factor& loss, const RouterLosses& losses,
                         const Router& router);
  // taken = chosen, but limit.experts for every choice beyond the capacity of its expert.
  // taken, chosen, gates [T, k]
  void (*drop_choices)(Stream&, Tensor taken, Tensor chosen, Tensor gates, const ExpertLimit& limit);
  // Sorts choices by expert: row[c] is the row of choice c, token[r] the token of row r.  first [E + 1]  row, token [R]
  void (*sort_choices)(Stream&, Tensor first, Tensor row, Tensor token, Tensor chosen);
  // y[row[c]] = gates[c] * x[row[c]]; y may be x.  x, y [R, C]
  void (*gate_rows)(Stream&, Tensor y, Tensor x, Tensor gates, Tensor row);
  // dgates[c] = dy[row[c]] . x[row[c]];  dx[row[c]] = gates[c] * dy[row[c]]; dx may be dy
  void (*gate_rows_backward)(Stream&, Tensor dx, Tensor dgates, Tensor dy, Tensor x, Tensor gates,
                             Tensor row);
  // The activation of the experts with gates, and its adjoint; each is defined by the sequence of calls to the right of
  // its formula (`activate`, ops.h), with the bits of that sequence, except that a device may sum dgates in another
  // order. Backward also computes y again, for the gradients of the second projection, and leaves dy undefined.
  // y, dy [R, F]  x, dx [R, F], or [R, 2F] with a gate of its own
  // y[row[c]] = gates[c] f(x[row[c]])              activate(y, x), gate_rows(y, y)
  void (*activate_choices)(Stream&, Tensor y, Tensor x, Tensor gates, Tensor row, const ActivationForm& form);
  // dgates[c] = dy[row[c]] . f(x[row[c]])          activate(y, x), gate_rows_backward(dy, dgates, dy, y),
  // dx[row[c]] = gates[c] dy[row[c]] f'(x[row[c]])  activate_backward(dx, dy, x), gate_rows(y, y)
  void (*activate_choices_backward)(Stream&, Tensor dx, Tensor y, Tensor dgates, Tensor dy, Tensor x,
                                    Tensor gates, Tensor row, const ActivationForm& form);
  // y[t] = the sum of x over the rows of token t's choices, in their order; added to y if `accumulate`.
  // y [T, C]  x [R, C]  row [T, k]
  void (*sum_choices)(Stream&, Tensor y, Tensor x, Tensor row, bool accumulate);
  // y[r] = x[r] w[e]^T if `transposed`, else x[r] w[e], where e is the expert of row r. A row's bits do not depend on
  // the other rows.  w [E, N, K]  transposed: x [R, K], y [R, N]; else x [R, N], y [R, K]
  void (*expert_product)(Stream&, Tensor y, Tensor x, Tensor w, Tensor first, bool transposed);
  // dw[e] += dy^T x over the rows of expert e.  dy [R, N]  x [R, K]  dw [E, N, K]
  void (*expert_product_weight)(Stream&, Tensor dw, Tensor dy, Tensor x, Tensor first, bool accumulate);
  // counts[i] += the choices of expert begin + i by tokens other than padding.
  // counts f64 [any number of experts]  chosen [T, k]  padding as in router_losses
  void (*add_choice_counts)(Stream&, Tensor counts, Tensor chosen, Tensor padding, int64_t begin);
  // y[r, :] = 0 for every row r >= begin[0].  y [R, C]  begin i32 [1]
  void (*clear_rows)(Stream&, Tensor y, Tensor begin);
  // Rows for experts [begin, begin + local_experts), concatenated in the order of the ranks that sent them and sorted
  // by expert within each rank: expert[r] = the expert of row skip + r, minus `begin`.
  // expert [R]  first [ranks, E + 1]: the `first` of sort_choices on each rank
  void (*experts_of_ranks)(Stream&, Tensor expert, Tensor first, int64_t begin, int64_t local_experts,
                           int64_t skip);

  // ---- strided views (ops/strided.h), for graphs of operations; i is an index of the box ----
  // y[to(i)] = x[from(i)]. Both have one dtype, i32 or floating-point, or are floating-point and one of them is f32 or
  // f64; results are rounded once. No two indices have the same to(i).
  void (*strided_copy)(Stream&, Tensor y, const StridedView& to, Tensor x, const StridedView& from,
                       const Box& box);
  // y[to(i)] = factor * the sum of x[from(i)] over the axes whose stride in `to` is 0; added to y if `accumulate`.
  // Otherwise no two indices have the same to(i). Sums are in f64 and rounded to the accumulate_type of y. y has the
  // dtype of x, its accumulate_type, or f64.
  void (*strided_sum)(Stream&, Tensor y, const StridedView& to, Tensor x, const StridedView& from,
                      const Box& box, double factor, bool accumulate);
  // y[i] = f(x[0][from[0](i)], ...), where y has the elements of the box in order. y may be an input that has them too.
  void (*map)(Stream&, Tensor y, std::span<const Tensor> x, const Map& map);
  // Softmax over the last dim; a row in which every x is -infinity gives zeros.  x, y [R, C]; y may be x
  void (*softmax)(Stream&, Tensor y, Tensor x);
  // dx = y (dy - the row's sum of dy y); dx may be dy
  void (*softmax_backward)(Stream&, Tensor dx, Tensor dy, Tensor y);
  // y = x - log(the row's sum of exp(x)); y may be x
  void (*log_softmax)(Stream&, Tensor y, Tensor x);
  // dx = dy - exp(y) (the row's sum of dy); dx may be dy
  void (*log_softmax_backward)(Stream&, Tensor dx, Tensor dy, Tensor y);
  // Products of many matrices. a and b have one dtype; c has it, rounded once, or their accumulate_type.
  void (*batched_product)(Stream&, Tensor c, Tensor a, Tensor b, const BatchedProduct& product);
};

// Represents an entry of OpTable as a type.
template <auto Entry>
struct Operation {
  static constexpr auto kEntry = Entry;
};

template <auto... Entries>
struct OperationList {
  static constexpr size_t kCount = sizeof...(Entries);
  // Calls visit(Operation<Entry>()) for every entry in order.
  template <class Visit>
  static void for_each(Visit visit) {
    (visit(Operation<Entries>()), ...);
  }
};

// All operations, in the order of OpTable.
using Operations = OperationList<
    &OpTable::write_forms,  // movement
    &OpTable::fill, &OpTable::copy, &OpTable::convert, &OpTable::scale, &OpTable::add, &OpTable::reduce,
    &OpTable::fill_rows, &OpTable::gemm, &OpTable::affine, &OpTable::affine_add, &OpTable::affine_gelu,
    &OpTable::affine_backward_input, &OpTable::affine_backward_gelu, &OpTable::affine_backward_weight,
    &OpTable::gelu, &OpTable::gelu_backward, &OpTable::gelu_erf, &OpTable::gelu_erf_backward,
    &OpTable::squared_relu, &OpTable::squared_relu_backward, &OpTable::rectify, &OpTable::rectify_backward,
    &OpTable::tanh, &OpTable::tanh_backward, &OpTable::gated, &OpTable::gated_backward, &OpTable::dropout,
    &OpTable::dropout_add, &OpTable::scale_uniform, &OpTable::layer_norm, &OpTable::layer_norm_backward,
    &OpTable::layer_norm_backward_add, &OpTable::layer_norm_backward_weight,
    &OpTable::layer_norm_backward_all, &OpTable::rms_norm, &OpTable::rms_norm_backward,
    &OpTable::rms_norm_backward_add, &OpTable::rms_norm_backward_weight, &OpTable::rms_norm_backward_all,
    &OpTable::rms_part_sums, &OpTable::rms_part, &OpTable::rms_part_backward, &OpTable::column_sum,
    &OpTable::rotary, &OpTable::latent_heads, &OpTable::latent_heads_backward, &OpTable::fit_columns,
    &OpTable::embedding, &OpTable::embedding_backward, &OpTable::attention, &OpTable::attention_backward,
    &OpTable::attention_sinks, &OpTable::attention_sinks_backward, &OpTable::softmax_stats,
    &OpTable::softmax_rescale, &OpTable::cross_entropy, &OpTable::cross_entropy_backward,
    &OpTable::cross_entropy_all, &OpTable::sum_squares, &OpTable::weighted_sum, &OpTable::chunk_squares,
    &OpTable::exact_sum, &OpTable::adamw, &OpTable::sgd, &OpTable::adagrad, &OpTable::round_randomly,
    &OpTable::widen_small, &OpTable::dequantize, &OpTable::lamb_moments, &OpTable::lamb, &OpTable::linear,
    &OpTable::relu_backward, &OpTable::embedding_bags, &OpTable::sort_lookups, &OpTable::update_rows,
    &OpTable::row_squares, &OpTable::row_gradients, &OpTable::dot_interaction,
    &OpTable::dot_interaction_backward, &OpTable::cross, &OpTable::cross_backward, &OpTable::sigmoid,
    &OpTable::click_loss, &OpTable::click_loss_backward, &OpTable::copy_columns, &OpTable::copy_rows,
    &OpTable::inverse_root, &OpTable::route, &OpTable::router_losses, &OpTable::route_backward,
    &OpTable::drop_choices, &OpTable::sort_choices, &OpTable::gate_rows, &OpTable::gate_rows_backward,
    &OpTable::activate_choices, &OpTable::activate_choices_backward, &OpTable::sum_choices,
    &OpTable::expert_product, &OpTable::expert_product_weight, &OpTable::add_choice_counts,
    &OpTable::clear_rows, &OpTable::experts_of_ranks, &OpTable::strided_copy, &OpTable::strided_sum,
    &OpTable::map, &OpTable::softmax, &OpTable::softmax_backward, &OpTable::log_softmax,
    &OpTable::log_softmax_backward, &OpTable::batched_product>;
static_assert(sizeof(OpTable) == sizeof(OpTable::name) + sizeof(OpTable::device) +
                                     Operations::kCount * sizeof(OpTable::fill),
              "an operation of OpTable is not in the list");

// y = activation(x), and its adjoint; dx may be dy without a gate, and x with one.
void activate(const OpTable& ops, Stream& stream, const Forms& y, Tensor x, const ActivationForm& form);
void activate_backward(const OpTable& ops, Stream& stream, const Forms& dx, Tensor dy, Tensor x,
                       const ActivationForm& form);

// The table for the best instruction set of this processor (x86-64-v4, -v3, or the compiler's baseline).
const OpTable& cpu_ops();

// All tables that this processor can run, best first; for tests and benchmarks.
std::span<const OpTable* const> all_cpu_ops();

}  // namespace trifold
