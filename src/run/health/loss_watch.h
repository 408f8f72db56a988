// LossWatch notices spikes of the loss, and knows the steps whose samples are skipped.
//
// A loss is a spike if it exceeds the median of the last losses (up to kWindow, at least kFewest) by more than
// --loss-spike-factor times their spread. The spread is the median absolute deviation from that median, times 1.4826,
// which is the standard deviation of normally distributed values; at least 0.1 % of the median. A spike does not count
// among the last losses.
//
// After a spike the run may return to its last checkpoint and skip the samples up to the spike
// (--on-loss-spike rollback), as PaLM's authors did by hand (arXiv 2204.02311, section 5.1). A skipped step consumes
// its samples, and leaves the weights and the learning rate as they are.
//
// The last losses and the skipped steps are part of a checkpoint, so that a resumed run decides like an uninterrupted
// one. All ranks have the same losses, and so the same state.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "config/fields/config.h"
#include "core/read_json.h"

namespace trifold {

struct LossSpike {
  int64_t step = 0;
  double loss = 0;
  double usual = 0;   // the median of the losses before
  double spread = 0;  // the spread of the losses before
};

class LossWatch {
 public:
  static constexpr size_t kWindow = 64;
  static constexpr size_t kFewest = 16;

  explicit LossWatch(const WatchConfig& config) : config_(config) {}

  // Adds the loss of a step; NaN is ignored.
  void add(int64_t step, double loss);
  // The spike among the losses that were added since the last call, if there was one.
  std::optional<LossSpike> take_spike() { return std::exchange(spike_, std::nullopt); }

  // Whether the samples of this step are skipped, because of --iterations-to-skip or after a spike.
  bool skips(int64_t step) const;
  // Skips the steps [first, last] from now on.
  void skip(int64_t first, int64_t last) { skipped_.push_back({first, last}); }
  // Adds the steps that `earlier` skips and this one does not know of: a rollback does not forget them.
  void keep_skipped(const LossWatch& earlier);
  // How often steps after `step` were skipped because of spikes.
  int64_t times_skipped_after(int64_t step) const;
  // Whether the run may return to an earlier step.
  bool may_roll_back() const { return config_.on_loss_spike == OnLossSpike::Rollback; }

  nlohmann::json state() const;
  // Restores a value of state(); BadInput for anything else.
  void restore(const JsonView& state);

 private:
  struct Steps {
    int64_t first = 0, last = 0;
    bool operator==(const Steps&) const = default;
  };

  WatchConfig config_;
  std::vector<double> losses_;  // the oldest first
  std::vector<Steps> skipped_;
  std::optional<LossSpike> spike_;
};

}  // namespace trifold
