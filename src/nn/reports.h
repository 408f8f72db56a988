// ReportList: items that the blocks of a model report in a training step in addition to activations and gradients, and
// items that they read. A block declares each item by name in its constructor, through a BlockBuilder. The executor
// provides memory for all items, and `Run` gives a block access to its own. Readers and writers of an item, such as the
// trainer, find it by the same name; the code in between does not know its meaning.
//
//   loss term   A loss reported in addition to the model's: f64 [1], to which blocks add the loss of each token times
//               the token's loss weight. All blocks that declare a name add to one term.
//   counter     f64 [n] of one block, zero when a plan begins, that the block changes in training steps, or in
//               evaluations (nn/class_reports.h).
//   host value  i32 [n] of one block, zero at first, that the trainer may write between plans and the block reads.
//   batch value A factor that the trainer may set for each micro-batch, by default 1 (Batch::values). All blocks that
//               declare a name read one value.
//
// Every rank constructs all blocks, so an item has the same id on all of them. Counters and host values of blocks on
// other ranks have memory too, and stay zero.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/batch.h"

namespace trifold {

// The largest number of loss terms of a model. Memory and messages have room for all, so their size does not depend on
// the model.
constexpr int kMostLossTerms = 2 + kMostLaterLabels;

struct LossTermId {
  int index = -1;  // below kMostLossTerms
};

struct BatchValueId {
  int index = -1;  // below kMostBatchValues
};

// Items of one kind that blocks share, at most Most.
template <class Id, int Most>
class SharedReports {
 public:
  // Returns the item of that name; adds it if no block has declared it yet. Throws if there are more than Most.
  Id declare(const std::string& name);
  std::optional<Id> find(std::string_view name) const;

 private:
  std::vector<std::string> names_;
};
using LossTerms = SharedReports<LossTermId, kMostLossTerms>;

// Elements [first, first + count) of the memory that holds all items of a kind one after the other.
struct ReportRange {
  int64_t first = 0;
  int64_t count = 0;
};
struct CounterId : ReportRange {};
struct HostValueId : ReportRange {};

// Items of one kind, each of which belongs to one block.
template <class Id>
class BlockReports {
 public:
  struct Item {
    int block;
    std::string name;
    Id id;
  };
  Id declare(int block, const std::string& name, int64_t count);
  // The item of that name; of several, which layers of one block have declared, the one that was declared as `index`.
  std::optional<Id> find(int block, std::string_view name, int index = 0) const;
  // The number of elements of all items.
  int64_t elements() const { return elements_; }
  // All items, in the order in which they were declared.
  const std::vector<Item>& items() const { return items_; }

 private:
  std::vector<Item> items_;
  int64_t elements_ = 0;
};

struct ReportList {
  LossTerms loss_terms;
  // The loss terms that reports of steps and evaluations show under their names, as means over the weights of the loss.
  std::vector<std::string> shown_terms;
  // Declares a loss term that is shown.
  LossTermId declare_shown(const std::string& name);
  BlockReports<CounterId> counters;
  BlockReports<HostValueId> host_values;
  SharedReports<BatchValueId, kMostBatchValues> batch_values;
};

}  // namespace trifold
