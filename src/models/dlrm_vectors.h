// The vectors that meet in a DLRM (models/dlrm.h), where a sample has several bags in a table: they are gathered from
// what was looked up, and some bags are pooled here, by attention (nn/bag_attention.h).
#pragma once

#include <vector>

#include "models/dlrm.h"
#include "nn/bag_attention.h"

namespace trifold {

// From DlrmBatch::looked_up to the tables' columns of DlrmBatch::features, and the gradients back. First-order weights
// of a bag that is pooled by attention are added up.
class DlrmVectors {
 public:
  DlrmVectors(BlockBuilder& builder, const DlrmShape& shape);
  void forward(Run& run, const DlrmBatch& batch, Saved& saved) const;
  void backward_input(Run& run, const DlrmBatch& batch, Saved& saved) const;
  void backward_weight(Run& run, Saved& saved) const;

 private:
  struct Group {
    size_t index = 0;
    std::vector<ColumnCopy> take, give;  // pooled vectors, and their gradients back
  };
  struct Bag {
    size_t group = 0;
    std::vector<ColumnCopy> candidate, take, pooled;  // to the attention's input, and from its output
    std::vector<ColumnCopy> weights;
    // Back: the gradient of the pooled vector, those of the attention's input, those of first-order weights.
    std::vector<ColumnCopy> back, candidate_back, give, weights_back;
    BagAttention attention;
  };

  void add_pooled(const DlrmShape& shape);
  void add_bag(BlockBuilder& builder, const DlrmShape& shape, const AttendedBag& bag);

  int64_t width_;
  std::vector<Group> groups_;
  std::vector<Bag> bags_;
};

}  // namespace trifold
