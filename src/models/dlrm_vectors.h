// DlrmVectors: gathers the vectors that a DLRM (models/dlrm.h) interacts from the vectors that were looked up, if a
// sample has several bags in a table, and pools bags by attention (nn/clicks/bag_attention.h).
#pragma once

#include <vector>

#include "models/dlrm.h"
#include "nn/clicks/bag_attention.h"

namespace trifold {

// Writes the tables' columns of DlrmBatch::features from DlrmBatch::looked_up, and the looked-up gradients from the
// features'. First-order weights of a bag that is pooled by attention are summed.
class DlrmVectors {
 public:
  DlrmVectors(BlockBuilder& builder, const DlrmShape& shape);
  void forward(Run& run, const DlrmBatch& batch, Saved& saved) const;
  void backward_input(Run& run, const DlrmBatch& batch, Saved& saved) const;
  void backward_weight(Run& run, Saved& saved) const;

 private:
  struct Group {
    size_t index = 0;
    std::vector<ColumnCopy> take, give;  // columns to copy of pooled vectors, and of their gradients
  };
  struct Bag {
    size_t group = 0;
    // Columns to copy in forward: into the attention's input, out of its output, and first-order weights.
    std::vector<ColumnCopy> candidate, take, pooled;
    std::vector<ColumnCopy> weights;
    // Columns to copy in backward: gradients of the pooled vector, of the attention's input, and of first-order
    // weights.
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
