// TableCopies: the update of replicated tables. Gradients of all their rows are summed over the ranks; then
// every rank updates the rows that any rank has touched.
#pragma once

#include <vector>

#include "comm/communicator.h"
#include "embedding/lookup_batch.h"
#include "embedding/table_part.h"

namespace trifold {

class TableCopies {
 public:
  // `parts` are the replicated tables in order, of type `dtype`. References, and the parts' memory, must
  // outlive the object; streams are on the device of `ops`. The owner must wait for `comm_stream` before
  // destroying it.
  TableCopies(const Placement& placement, std::span<const TablePart> parts, Communicator& comm,
              const OpTable& ops, DType dtype, Stream& compute, Stream& comm_stream);
  TableCopies(const TableCopies&) = delete;
  TableCopies& operator=(const TableCopies&) = delete;

  // `orders`: this rank's lookups in these tables, sorted by row. `dfeatures` [b, (F + 1) D].
  void update(std::span<const LookupOrder> orders, Tensor dfeatures, const SparseRule& rule);

  // Bytes of memory in addition to the tables; the second form needs no instance.
  size_t bytes() const;
  static size_t bytes(const Placement& placement, DType dtype);

 private:
  void make_orders(std::span<const TablePart> parts);

  Communicator& comm_;
  const OpTable& ops_;
  Stream& compute_;
  Stream& comm_stream_;
  Buffer memory_;
  Tensor all_;  // gradients of all rows, then for each row whether it was touched; summed over the ranks
  std::vector<Tensor> gradients_;
  std::vector<Buffer> order_memory_;
  std::vector<LookupOrder> orders_;  // all rows; RowUpdate::touched selects the touched ones
  std::vector<RowUpdate> stores_, updates_;
};

}  // namespace trifold
