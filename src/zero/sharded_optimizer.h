// ShardedOptimizer: optimizer state and update of the slices that this rank owns (ZeRO stages 1 to 3), or of everything
// that it holds (stage 0). Weights in f32 or f64 are their own masters; for 16-bit weights the owner keeps f32 masters,
// of which the weights are a rounded copy.
//
// With ParamStore::Options::offload, masters and state are in a file, which an update streams through a window of
// memory (Rajbhandari et al., "ZeRO-Infinity", SC 2021). With Options::state_on_host they are in pinned host memory,
// which the device's update accesses directly, 16 bytes per lane, at the speed of the link and without a copy (Ren et
// al., "ZeRO-Offload", USENIX ATC 2021, updates on the CPU instead).
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "config/fields/config.h"
#include "core/function_ref.h"
#include "data_parallel/gradient_buffer.h"
#include "data_parallel/shared_sums.h"
#include "optim/step_numbers.h"
#include "optim/update_rule.h"
#include "zero/param_store.h"
#include "zero/state_layout.h"
#include "zero/whole_matrices.h"

namespace trifold {

class ShardedOptimizer {
 public:
  // References must outlive the optimizer. State starts at zero; weights and masters start at the initial values for
  // `seed`. The optimizer owns the segments whose sums `grads` has on this rank. Collective over the data axes.
  ShardedOptimizer(const FlatLayout& layout, const Mesh& mesh, ParamStore& weights,
                   const GradientBuffer& grads, const OpTable& ops, const OptimizerConfig& config,
                   DType dtype, uint64_t seed, Stream& stream);

  // Updates version `version` of the weights in place and starts sending it to all ranks that hold whole weights. The
  // trust ratio in `values` is ignored. Collective over the data axes, and with LAMB and LARS over the whole stage.
  void step(int version, StepValues values, Stream& stream);

  // Sets the weight decay of the next steps, if it changes during a run.
  void set_weight_decay(double decay) { weight_decay_ = decay; }

  // A piece of a parameter that this rank owns, with its values: for checkpoints.
  struct Piece {
    std::string_view kind;  // "param", "adam_m", ...
    FlatLayout::Segment segment;
    Tensor values;  // [segment.count]
  };
  // Weights (or their masters) and state. Frozen weights have the run's type, and no state. Quantized weights are not
  // among them: they are no elements.
  std::vector<Piece> pieces() const;
  // The segments of quantized weights that this rank owns.
  const std::vector<FlatLayout::Segment>& quantized() const { return quantized_; }
  // Calls use(values) for all weights, or masters, that this rank counts (counted_segments), in pieces whose sizes are
  // multiples of kNormChunk, except for the last piece of a parameter. State in a file is visited in windows,
  // which are released after `use` and the work that it enqueued on `stream`.
  void visit_counted(FunctionRef<void(Tensor values)> use, Stream& stream) const;
  // Called after the pieces were overwritten: updates the weights on all ranks to match.
  void refresh_weights(Stream& stream);
  // Sets the average of the weights (OptimizerConfig::ema) to the weights; no effect without one.
  void restart_average(Stream& stream);
  // Bytes in the memory of the computing device: masters and state, or the window if they are in a file; and memory for
  // whole matrices and for state that is stored in 16 or 8 bits.
  size_t bytes() const {
    const size_t work = wide_.bytes() + (matrices_ ? matrices_->bytes() : 0);
    if (weights_.state_on_host()) return work;
    return work + (file_.bytes() > 0 ? state_.window_bytes(kOffloadWindow) : buffer_.bytes());
  }
  // Bytes off-loaded: to a file, or to host memory if a device computes.
  size_t offloaded_bytes() const { return weights_.state_on_host() ? buffer_.bytes() : file_.bytes(); }
  // Releases the memory of state in a file, after other code has read or written it.
  void release() const;
  // Bytes of masters and state for each element that a rank owns: the most and the least of all parameters.
  static size_t bytes_per_element(const OptimizerConfig& config, DType dtype);
  static size_t least_bytes_per_element(const OptimizerConfig& config, DType dtype);
  // Bytes of memory for whole matrices and for state that is stored in 16 or 8 bits, of the rank at `coords`; `sharded`: it
  // owns slices.
  static size_t work_bytes(const FlatLayout& layout, const MeshSizes& sizes, const MeshCoords& coords,
                           bool sharded, const OptimizerConfig& config, DType dtype);

 private:
  Tensor part(size_t index, const FlatLayout::Segment& segment) const;
  // Calls use(segment) for all owned segments of a unit. State in a file is visited in windows: the next window is
  // prefetched while one is used, and the previous window is released.
  template <class Use>
  void stream_through(size_t unit, Use&& use) const;
  void expect(const FlatLayout::Segment& segment) const;
  void release(const FlatLayout::Segment& segment) const;
  // Replaces the gradients of a unit's matrices by orthogonal directions, if the rule takes matrices.
  void direct_unit(size_t unit, int version, const StepValues& values, Stream& stream);
  void update_unit(size_t unit, int version, const StepValues& values, Stream& stream);
  // The update of a segment some of whose state is stored in 16 or 8 bits.
  void update_narrow(const FlatLayout::Segment& segment, int version, const StepValues& values,
                     Stream& stream);
  Tensor average(const FlatLayout::Segment& segment) const;
  void update_average(const FlatLayout::Segment& segment, int version, Stream& stream);
  Slice slice_of(const FlatLayout::Segment& segment, int version) const;
  // What differs between parameters: factors of the rate and of the weight decay, and whether the rule takes it for a
  // matrix.
  struct Factors {
    double lr = 1, decay = 0;
    bool matrix = false;
    bool operator==(const Factors&) const = default;
  };
  const Factors& factors_of(ParamId id) const { return factors_[static_cast<size_t>(id.index)]; }
  double decay_of(ParamId id) const { return weight_decay_ * factors_of(id).decay; }
  void find_factors(const OptimizerConfig& config);
  void find_rounding(uint64_t seed);
  // The values of a step for a parameter, with its rate and, once it is known, its trust ratio.
  StepValues values_of(ParamId id, StepValues values) const;
  // Fills numbers_ with the scalars of each parameter, including trust ratios if ratios_ is filled.
  void send_numbers(StepValues values, Stream& stream);
  // Fills ratios_.
  void find_trust_ratios(int version, const StepValues& values, Stream& stream);

  const FlatLayout& layout_;
  const Mesh& mesh_;
  ParamStore& weights_;
  const GradientBuffer& grads_;
  const OpTable& ops_;
  std::unique_ptr<UpdateRule> rule_;
  double weight_decay_;
  std::optional<double> average_;  // decay of the average of the weights
  DType dtype_;                    // type of masters, and of state while it is computed
  bool masters_;
  StateLayout state_;
  int64_t elements_;                                        // trained elements owned, with padding
  std::vector<std::vector<FlatLayout::Segment>> segments_;  // by unit; none of a frozen unit
  std::vector<FlatLayout::Segment> frozen_, quantized_;     // owned
  // The segments joined (FlatLayout::joined), so that each is updated with one call; empty if each parameter has its
  // own trust ratio, or if state streams through a window.
  std::vector<std::vector<FlatLayout::Segment>> runs_;
  std::vector<Factors> factors_;  // by parameter
  Buffer buffer_;                 // memory of state_
  FileMemory file_;               // holds these if they are off-loaded
  Buffer wide_;                   // a window of state that is stored in 16 or 8 bits
  std::vector<RandomRounding>
      rounding_;  // by tensor of the state and parameter, without the step; empty without wide_
  std::unique_ptr<WholeMatrices> matrices_;
  // For rules that need norms, by parameter: sums of squares of weights and directions, and the trust ratios.
  Buffer squares_;  // f64 [2, chunks of the largest segment]
  std::vector<ExactSum> sums_;
  SharedSums shared_;
  std::vector<double> ratios_;
  StepNumbers numbers_;  // a row for each parameter
};

}  // namespace trifold
