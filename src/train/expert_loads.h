// ExpertLoads: how evenly the tokens of a step chose their experts, counted over all ranks, and the biases of routers
// that even this out without a loss (Wang et al., "Auxiliary-loss-free load balancing", arXiv 2408.15664): after each
// step, for every expert of a block,
//   bias += rate * sign(mean of the block's counts - count of the expert).
// Counts are whole numbers, summed exactly in f64, so every mesh moves the biases alike. A step whose update is skipped
// moves none. It also keeps the choices of the last global batch, for routers whose balance loss counts these
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
  // Takes the counters of a plan (Executor::counters), and adds up those of all ranks. Collective.
  void sum(Tensor counters);
  // For each block with experts, in order: the count of the expert that was chosen most over the mean; 1 is even. Valid
  // until the next call of `sum`.
  std::span<const double> of_blocks() const { return loads_; }
  // For each of these blocks, the number of choices that were dropped (nn/expert_capacity.h); empty if the model has no
  // capacity.
  std::span<const double> dropped() const { return dropped_; }
  // The most rounds in which rows of experts came.
  int64_t rounds() const { return rounds_; }
  // Moves the biases this rank has, those of the optimizer's part included; to be called before the optimizer's step,
  // which hands them to the other ranks.
  void move_biases();
  // To be called after the optimizer's part was loaded: all ranks read its biases. Collective.
  void take_biases();
  // Whether choices of the last global batch are kept.
  bool keeps_choices() const { return !last_.empty(); }
  // Makes the choices that were summed last those of the last global batch. Throws if they are more than i32 holds.
  void keep_choices();
  // Copies these to the blocks' host values, `to` (Executor::host_values); does nothing if none are kept.
  void write_choices(Tensor to) const;
  // The same as a checkpoint has them: of each block with experts, a list of counts. `restore` throws if there are others.
  nlohmann::json state() const;
  void restore(const JsonView& state);
  void forget();  // as before the first step

 private:
  // A block with experts, and what it reports (ExpertReports).
  struct ExpertBlock {
    int block;
    CounterId choices, rounds;
    std::optional<CounterId> dropped, preferred;
    std::optional<HostValueId> last_choices;
  };
  // Elements [first, first + values) of the bias of a block.
  struct Part {
    int block;
    int64_t first;
    Tensor values;
    bool counts;  // no other rank with the same elements counts them
  };
  std::span<double> row(std::vector<double>& table, int block) const {
    return std::span(table).subspan(static_cast<size_t>(block) * static_cast<size_t>(experts_),
                                    static_cast<size_t>(experts_));
  }
  void sum_over_ranks(std::span<double> table);
  // Calls body(i, element) for a reference to each element of a tensor in f32 or f64, also of one on a device.
  template <class Body>
  void change_each(const Tensor& values, Body body);

  Replica& replica_;
  int64_t experts_;
  double rate_;
  bool in_rounds_;  // rows may come in more than one
  std::vector<ExpertBlock> blocks_;
  std::vector<double> counts_;     // [blocks of the model, experts]
  std::vector<double> preferred_;  // the same without bias and groups, if they are kept:
  std::vector<int32_t> last_;
  std::vector<double> rounds_of_blocks_;
  std::vector<double> loads_;
  std::vector<double> dropped_;
  std::vector<double> copy_;  // of a bias on a device
  int64_t rounds_ = 1;
  std::vector<Part> masters_;  // of the optimizer
  std::vector<Part> exact_;    // of ParamStore::exact, where that is other memory:
  bool shares_exact_ = false;
};

}  // namespace trifold
