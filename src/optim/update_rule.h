// UpdateRule updates weights from their gradient. A rule treats each element of a slice separately, so it works on any
// flat slice of a parameter; the owner of the slices (zero/sharded_optimizer.h) calls it for each slice. What a rule
// needs of a whole parameter, norms or the matrix, the owner computes between two calls.
//
// One step, for each slice:
//   without norms (adam, sgd, adagrad)   update(slice, values)
//   with norms (lamb, lars)              measure(slice, values, squares)       all slices of a parameter
//                                        sum the squares of all slices, over the ranks, with ExactSum
//                                        values.trust_ratio = trust_ratio(their sums, weight_decay, values)
//                                        update(slice, values)
//   with matrices (muon), of matrices    direct(slice, values)                 all slices of a matrix
//                                        gather the gradients, which are then directions, orthogonalise, send back
//                                        update(slice, values)
//                 of other parameters    update(slice, values)
// Slices begin at multiples of kNormChunk elements of their parameter, so the sums, and with them the update,
// have the same bits however parameters are cut. Each call is one pass over the slice's memory, enqueued on
// the stream. A rule is immutable: all state is in the slices.
//
//   adam     AdamW (Loshchilov & Hutter, ICLR 2019): decay is decoupled from the gradient
//   lamb     You et al., arXiv 1904.00962, algorithm 2, as large runs use it: bias correction; weight decay
//            is part of the direction; the ratio is not clipped, and is 1 where a norm is 0 and for
//            parameters without decay (biases, norms)
//   lars     You et al., arXiv 1708.03888, with the rate inside the momentum and decay in the norm, as MLPerf has it:
//            ratio = eta |w| / (|g| + decay |w| + eps);  v = momentum v + lr ratio (g + decay w);  w -= v.
//            The ratio is 1 where a norm is 0 and for parameters without decay (biases, norms)
//   sgd      b = momentum b + (g + decay w);  w -= lr b
//   muon     optim/muon.h for matrices, adam for the others
//   adagrad  s += d^2, d = g + decay w;  w -= lr d / (sqrt(s) + eps)  (Duchi et al., JMLR 2011)
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "config/fields/config.h"
#include "core/small_list.h"
#include "core/stream.h"
#include "core/tensor.h"
#include "ops/ops.h"

namespace trifold {

// A contiguous slice of one parameter, flat, of n elements. Views only.
struct Slice {
  Tensor master;               // [n] f32 or f64: the weights that are updated
  Tensor weight;               // [n] the layers' copy, rounded to its dtype; no memory: it is `master`
  Tensor grad;                 // [n] like master
  SmallList<Tensor, 2> state;  // [n] like master each: the states that the slice has; all zero before step 1
  double weight_decay = 0;     // 0 for parameters that are exempt
  bool matrix = false;         // part of a matrix, for rules that take matrices; false for other rules
  // f64 [kRuleNumbers], the step's UpdateRule::numbers, which kernels read at run time instead of the values passed
  // with the call (optim/step_numbers.h); no memory: they use the passed values.
  Tensor numbers = {};
};

// Values common to all slices of a step, except the trust ratio, which belongs to a parameter.
struct StepValues {
  double lr = 0;
  int64_t step = 1;        // counts updates from 1
  double grad_scale = 1;   // gradients are multiplied by this first (averaging, loss scale, clipping)
  double trust_ratio = 1;  // used only by rules with norms
};

// Sums of squares of a slice by chunk: f64 [ceil(n / kNormChunk)] each.
struct SliceSquares {
  Tensor weight;
  Tensor direction;  // lamb: its direction; lars: the gradient before grad_scale
};

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;

  // The names of the state tensors of a slice, in the order of Slice::state; prefixes of their names in checkpoints
  // ("adam_m/..."). None for sgd without momentum.
  virtual std::span<const std::string_view> state_names() const = 0;

  // Whether a slice has the state of that index in state_names().
  virtual bool has_state(size_t /*index*/, bool /*matrix*/) const { return true; }
  // The type in which a state is stored between steps, if its slices are computed in `wide`.
  virtual DType stored_type(size_t /*index*/, DType wide) const { return wide; }
  // The format of a state that is stored in 8 bits.
  virtual SmallFloat stored_format(size_t /*index*/) const { return SmallFloat::Signed; }

  // The scalars of a step with these values for a slice with this weight decay.
  virtual RuleNumbers numbers(double weight_decay, const StepValues& values) const = 0;
  // Scalars for parts of matrices, if the rule takes matrices.
  virtual RuleNumbers matrix_numbers(double weight_decay, const StepValues& values) const {
    return numbers(weight_decay, values);
  }

  // Whether `measure` must precede every `update`.
  virtual bool needs_norms() const { return false; }
  // Writes the squares; lamb also updates the state from the gradient. An Error for rules that need no norms.
  virtual void measure(const Slice& slice, const StepValues& values, const SliceSquares& squares,
                       const OpTable& ops, Stream& stream) const;
  // The factor of the learning rate of a parameter whose slices' squares have these sums. Uses grad_scale of `values`
  // only. An Error for rules that need no norms.
  virtual double trust_ratio(double weight_squares, double direction_squares, double weight_decay,
                             const StepValues& values) const;

  // Whether matrices are updated by directions of whole matrices: `direct` and `orthogonalise` must precede `update` of
  // their slices.
  virtual bool takes_matrices() const { return false; }
  // Updates the state of a part of a matrix and overwrites its gradient with the direction. An Error for rules that take
  // no matrices.
  virtual void direct(const Slice& slice, const StepValues& values, const OpTable& ops, Stream& stream) const;
  // Iterations of orthogonalise (optim/muon.h), and the factor of its result for a matrix of this shape. An Error for
  // rules that take no matrices.
  virtual int64_t newton_schulz_steps() const;
  virtual double direction_scale(int64_t rows, int64_t columns) const;

  // Updates master and its copy, and the state unless `measure` has updated it.
  virtual void update(const Slice& slice, const StepValues& values, const OpTable& ops,
                      Stream& stream) const = 0;
};

// The rule that the configuration names, with its constants; weight decay belongs to the slices.
std::unique_ptr<UpdateRule> make_update_rule(const OptimizerConfig& config);

}  // namespace trifold
