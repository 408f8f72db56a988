// ExpertLoads counts, over all ranks, how evenly the tokens of a step chose their experts, and moves the routers'
// biases that balance the choices without a loss (Wang et al., "Auxiliary-loss-free load balancing", arXiv 2408.15664).
// After each step, for every expert of a block,
//   bias += rate * sign(mean of the block's counts - count of the expert).
// Counts are whole numbers, summed exactly in f64, so the biases are the same on every mesh. A step whose update is
// skipped moves none.
//
// It also keeps the choices of the last global batch for routers whose balance loss uses them
// (RouterBalance::GlobalAuxLoss); they are part of a run's state.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "config/fields/config.h"
#include "core/read_json.h"
#include "nn/reports.h"
#include "train/replica.h"
#include "zero/sharded_optimizer.h"

namespace trifold {

class ExpertLoads {
 public:
  // References must outlive it.
  ExpertLoads(Replica& replica, const ShardedOptimizer& optimizer, const ModelConfig& model);
  // Reads the counters of a plan (Executor::counters) and sums them over all ranks. Collective.
  void sum(Tensor counters);
  // For each layer with experts, in order: the count of its most chosen expert over the mean; 1 is even. Valid until
  // the next call of `sum`.
  std::span<const double> of_blocks() const { return loads_; }
  // For each layer with experts: the choices that were dropped (nn/expert_capacity.h); empty if the model has no
  // capacity.
  std::span<const double> dropped() const { return dropped_; }
  // The largest number of rounds in which a layer exchanged its experts' rows.
  int64_t rounds() const { return rounds_; }
  // Moves this rank's biases, including the optimizer's slices of them. Call it before the optimizer's step, which
  // sends the slices to the other ranks.
  void move_biases();
  // Makes all ranks read the biases of the optimizer's slices; call it after these were loaded. Collective.
  void take_biases();
  // Whether choices of the last global batch are kept.
  bool keeps_choices() const { return !last_.empty(); }
  // Keeps the choices summed last for the next global batch's routers. Throws if a count exceeds the range of i32.
  void keep_choices();
  // Copies the kept choices to `to`, the blocks' host values (Executor::host_values); does nothing if none are kept.
  void write_choices(Tensor to) const;
  // The kept choices as a checkpoint stores them: a list of counts for each layer with experts. `restore` throws if the
  // layers or experts differ.
  nlohmann::json state() const;
  void restore(const JsonView& state);
  void forget();  // returns to the state before the first step

 private:
  // The experts of a layer and the values they report (ExpertReports). A block may have several layers.
  struct ExpertBlock {
    int block;
    int index;  // in the block
    CounterId choices, rounds;
    std::optional<CounterId> dropped, preferred;
    std::optional<HostValueId> last_choices;
  };
  // Elements [first, first + n) of a bias, where n is the number of `values`.
  struct Part {
    size_t layer;  // index in blocks_
    int64_t first;
    Tensor values;
    bool counts;  // whether this rank counts the elements, which other ranks may have too
  };
  std::span<double> row(std::vector<double>& table, size_t layer) const {
    return std::span(table).subspan(layer * static_cast<size_t>(experts_), static_cast<size_t>(experts_));
  }
  // The layer of blocks_ whose bias this is.
  static size_t layer_of(const ParamList& params, int bias, std::span<const ExpertBlock> blocks);
  void sum_over_ranks(std::span<double> table);
  // Calls body(i, element) with a reference to each element of a tensor in f32 or f64, which may be on a device.
  template <class Body>
  void change_each(const Tensor& values, Body body);

  Replica& replica_;
  int64_t experts_;
  double rate_;
  bool in_rounds_;  // rows may take more than one round
  std::vector<ExpertBlock> blocks_;
  std::vector<double> counts_;     // [layers with experts, experts]
  std::vector<double> preferred_;  // choices without bias and groups; only with keeps_choices():
  std::vector<int32_t> last_;
  std::vector<double> rounds_of_blocks_;
  std::vector<double> loads_;
  std::vector<double> dropped_;
  std::vector<double> copy_;  // host copy of a bias on a device
  int64_t rounds_ = 1;
  std::vector<Part> masters_;  // slices in the optimizer
  std::vector<Part> exact_;    // parts in ParamStore::exact, if it has memory of its own:
  bool shares_exact_ = false;
};

}  // namespace trifold
