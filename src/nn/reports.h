// ReportList: what the blocks of a model report in a training step besides activations and gradients. A block declares each
// item by name in its constructor, through a BlockBuilder. The executor provides memory for the items of the list, and `Run`
// gives a block access to its own. Code that reads a report, such as the trainer's, finds the item by the same name;
// nothing in between knows what it means.
//
//   loss term   A further loss, reported beside the model's: f64 [1], to which blocks add the loss of each token times the
//               token's loss weight. All blocks that declare a name add to one term.
//
// Every rank constructs all blocks, so an item has the same id on all of them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trifold {

// The loss terms that a model can have. Memory and messages have room for all of them, so that their size does not depend on
// the model.
constexpr int kMostLossTerms = 2;

struct LossTermId {
  int index = -1;  // below kMostLossTerms
};

class LossTerms {
 public:
  // The term of that name, which is added if no block has declared it yet. Throws if there are too many.
  LossTermId declare(const std::string& name);
  std::optional<LossTermId> find(std::string_view name) const;

 private:
  std::vector<std::string> names_;
};

struct ReportList {
  LossTerms loss_terms;
};

}  // namespace trifold
