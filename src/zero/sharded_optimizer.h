// ShardedOptimizer: state and update of the slices this rank owns (ZeRO stages 1 to 3), or of everything it
// holds (stage 0). Weights in f32 or f64 are their own masters; for weights in 16 bits the owner keeps f32
// masters, and the weights are their rounded copy. With ParamStore::How::offload masters and state lie in a
// file, through which an update streams (Rajbhandari et al., "ZeRO-Infinity", SC 2021); with
// How::state_on_host in pinned memory of the host, which the device's update reads and writes straight, 16
// bytes a lane: as fast as the link between them, without a copy of its own (Ren et al., "ZeRO-Offload",
// USENIX ATC 2021, has the processor update it instead).
#pragma once

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include "config/fields/config.h"
#include "core/exact_sum.h"
#include "data_parallel/gradient_buffer.h"
#include "optim/step_numbers.h"
#include "optim/update_rule.h"
#include "zero/param_store.h"

namespace trifold {

class ShardedOptimizer {
 public:
  // References must outlive the optimizer. State starts at zero, the weights and their masters at their
  // initial values for `seed`. Owns what `grads` sums here. Collective over the data axis.
  ShardedOptimizer(const FlatLayout& layout, const Mesh& mesh, ParamStore& weights,
                   const GradientBuffer& grads, const OpTable& ops, const OptimizerConfig& config,
                   DType dtype, uint64_t seed, Stream& stream);

  // One update of version `version` of the weights, in place; then all ranks that hold them whole have them.
  // `values` but for the trust ratio. Collective over the data axes, with LAMB over all of the stage.
  void step(int version, StepValues values, Stream& stream);

  // A piece of a parameter that this rank owns, with its values: for checkpoints.
  struct Piece {
    std::string_view kind;  // "param", "adam_m", ...
    FlatLayout::Segment segment;
    Tensor values;  // [segment.count]
  };
  // Weights (their masters) and state.
  std::vector<Piece> pieces() const;
  // After the pieces were written: brings the weights in line with them, on all ranks.
  void refresh_weights(Stream& stream);
  // In the memory of whoever computes: all, or with state in a file what is streamed through.
  size_t bytes() const {
    if (weights_.state_on_host()) return 0;
    return file_.bytes() > 0 ? window_bytes(parts_, elements_, dtype_) : buffer_.bytes();
  }
  // Elsewhere: in a file, or in the memory of the host where a device computes.
  size_t offloaded_bytes() const { return weights_.state_on_host() ? buffer_.bytes() : file_.bytes(); }
  // Gives up the memory of what lies in a file, after others have read or written it.
  void release() const;
  // Bytes of a window of state in a file.
  static size_t window_bytes(size_t parts, int64_t elements, DType dtype) {
    return parts * static_cast<size_t>(std::min(elements, kOffloadWindow)) * size_of(dtype);
  }
  // Bytes it will need for each element it owns.
  static size_t bytes_per_element(const OptimizerConfig& config, DType dtype);

 private:
  Tensor part(size_t index, const FlatLayout::Segment& segment) const;
  // Calls use(segment) with all that is owned of a unit: with state in a file in windows, of which the next
  // is read while one is used, and the last is given up.
  template <class Use>
  void stream_through(size_t unit, Use&& use) const;
  void expect(const FlatLayout::Segment& segment) const;
  void release(const FlatLayout::Segment& segment) const;
  void update_unit(size_t unit, int version, StepValues& values, Stream& stream);
  Slice slice_of(const FlatLayout::Segment& segment, int version) const;
  double decay_of(ParamId id) const { return layout_.params()[id].decay ? weight_decay_ : 0; }
  // Fills numbers_ with those of each parameter: the ratios are known where ratios_ has them.
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
  DType dtype_;  // of masters and state
  bool masters_;
  size_t parts_;                                            // masters, where there are any, and states
  int64_t elements_;                                        // owned, padding included
  std::vector<std::vector<FlatLayout::Segment>> segments_;  // of each unit
  // The same as few runs, which one call updates each; none where each parameter has a ratio of its own, or
  // state is streamed through.
  std::vector<std::vector<FlatLayout::Segment>> runs_;
  Buffer buffer_;    // masters, where there are any; then each state
  FileMemory file_;  // that, instead
  // For rules that need norms, by parameter: of weights, then of directions, and what follows from them.
  Buffer squares_;  // f64, for the largest segment, twice
  std::vector<ExactSum> sums_;
  std::vector<int64_t> limbs_;
  std::vector<double> ratios_;
  StepNumbers numbers_;  // a row for each parameter
};

}  // namespace trifold
