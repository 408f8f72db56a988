// ShardedOptimizer: optimizer state and update of the slices that this rank owns (ZeRO stages 1 to 3), or of everything
// that it holds (stage 0). Weights in f32 or f64 are their own masters; for 16-bit weights the owner keeps f32 masters,
// of which the weights are a rounded copy.
//
// With ParamStore::Options::offload, masters and state are in a file, which an update streams through a window of
// memory (Rajbhandari et al., "ZeRO-Infinity", SC 2021). With Options::state_on_host they are in pinned host memory,
// which the device's update accesses directly, 16 bytes per lane, at the speed of the link and without a copy (Ren et
// al., "ZeRO-Offload", USENIX ATC 2021, updates on the CPU instead).
#pragma once

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include "config/fields/config.h"
#include "core/function_ref.h"
#include "data_parallel/gradient_buffer.h"
#include "data_parallel/shared_sums.h"
#include "optim/step_numbers.h"
#include "optim/update_rule.h"
#include "zero/param_store.h"

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

  // A piece of a parameter that this rank owns, with its values: for checkpoints.
  struct Piece {
    std::string_view kind;  // "param", "adam_m", ...
    FlatLayout::Segment segment;
    Tensor values;  // [segment.count]
  };
  // Weights (or their masters) and state.
  std::vector<Piece> pieces() const;
  // Calls use(values) for all weights, or masters, that this rank counts (counted_segments), in pieces whose sizes are
  // multiples of kNormChunk, except for the last piece of a parameter. State in a file is visited in windows,
  // which are released after `use` and the work that it enqueued on `stream`.
  void visit_counted(FunctionRef<void(Tensor values)> use, Stream& stream) const;
  // Called after the pieces were overwritten: updates the weights on all ranks to match.
  void refresh_weights(Stream& stream);
  // Bytes in the memory of the computing device: masters and state, or the window if they are in a file.
  size_t bytes() const {
    if (weights_.state_on_host()) return 0;
    return file_.bytes() > 0 ? window_bytes(parts_, elements_, dtype_) : buffer_.bytes();
  }
  // Bytes off-loaded: to a file, or to host memory if a device computes.
  size_t offloaded_bytes() const { return weights_.state_on_host() ? buffer_.bytes() : file_.bytes(); }
  // Releases the memory of state in a file, after other code has read or written it.
  void release() const;
  // Bytes of the window of state in a file.
  static size_t window_bytes(size_t parts, int64_t elements, DType dtype) {
    return parts * static_cast<size_t>(std::min(elements, kOffloadWindow)) * size_of(dtype);
  }
  // Bytes of masters and state for each element that a rank owns.
  static size_t bytes_per_element(const OptimizerConfig& config, DType dtype);

 private:
  Tensor part(size_t index, const FlatLayout::Segment& segment) const;
  // Calls use(segment) for all owned segments of a unit. State in a file is visited in windows: the next window is
  // prefetched while one is used, and the previous window is released.
  template <class Use>
  void stream_through(size_t unit, Use&& use) const;
  void expect(const FlatLayout::Segment& segment) const;
  void release(const FlatLayout::Segment& segment) const;
  void update_unit(size_t unit, int version, StepValues& values, Stream& stream);
  Slice slice_of(const FlatLayout::Segment& segment, int version) const;
  double decay_of(ParamId id) const { return layout_.params()[id].decay ? weight_decay_ : 0; }
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
  DType dtype_;  // type of masters and state
  bool masters_;
  size_t parts_;                                            // masters, if any, and states
  int64_t elements_;                                        // elements owned, with padding
  std::vector<std::vector<FlatLayout::Segment>> segments_;  // by unit
  // The segments joined (FlatLayout::joined), so that each is updated with one call; empty if each parameter has its
  // own trust ratio, or if state streams through a window.
  std::vector<std::vector<FlatLayout::Segment>> runs_;
  Buffer buffer_;    // masters, if any; then each state
  FileMemory file_;  // holds these if they are off-loaded
  // For rules that need norms, by parameter: sums of squares of weights and directions, and the trust ratios.
  Buffer squares_;  // f64 [2, chunks of the largest segment]
  std::vector<ExactSum> sums_;
  SharedSums shared_;
  std::vector<double> ratios_;
  StepNumbers numbers_;  // a row for each parameter
};

}  // namespace trifold
