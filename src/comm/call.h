// Call: one rank's call on a communicator, in a form that all ranks can compare before any data move.
//
// A back end first sends each rank's Call to all ranks of the communicator. Unless all calls agree, every rank throws
// the text of `disagreement`, which is equal on all ranks. Arguments that are wrong on only one rank are sent too, as
// `problem`, so that the other ranks do not wait for a rank that has already failed.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "comm/communicator.h"

namespace trifold {

// The first mistake in the arguments on the calling rank.
enum class CallProblem : uint8_t {
  None,
  Dtypes,     // `in` and `out` have different dtypes
  Parts,      // the large tensor is not size() times the small one
  Rows,       // the row counts do not add up to the first dim, are negative, or are not one per rank
  RowShape,   // rows of `in` and `out` differ in length
  Root,       // there is no such rank
  NotSummed,  // this dtype cannot be reduced
};

struct Call {
  CallKind kind = CallKind::Barrier;
  DType dtype = DType::U8;
  Reduce reduction = Reduce::Sum;
  CallProblem problem = CallProblem::None;
  int32_t root = 0;
  int64_t count = 0;    // elements of inout, of the smaller tensor, or of one row (all_to_all)
  uint64_t number = 0;  // earlier collective calls of this rank on this communicator
};

// The Call for these arguments, with `problem` set. `size` is the size of the communicator.
Call all_reduce_call(const Tensor& inout, Reduce reduction);
Call reduce_scatter_call(const Tensor& out, const Tensor& in, Reduce reduction, int size);
Call all_gather_call(const Tensor& out, const Tensor& in, int size);
Call all_to_all_call(const Tensor& out, const Tensor& in, std::span<const int64_t> out_rows,
                     std::span<const int64_t> in_rows, int size);
Call broadcast_call(const Tensor& inout, int root, int size);

// "all_reduce(sum) of 1024 f32, call 17"
std::string to_string(const Call& call);

// "rank 2", "ranks 0, 3 and 4"
std::string name_ranks(std::span<const int> ranks);

// The ranks of one communicator as messages name them: "the world of 4 ranks" or "the group of world ranks 0
// and 2".
std::string name_group(std::span<const int> world_ranks, int world_size);

// Whether two ranks make the same call.
bool agree(const Call& a, const Call& b);

// Empty if the calls (one per rank, in rank order) agree and have no problem, otherwise the text of the
// Error. Messages name world ranks; `world_ranks` has the world rank of each rank of the group.
std::optional<std::string> disagreement(std::span<const Call> calls, const std::string& group,
                                        std::span<const int> world_ranks);

// The text of the Error for rank `sender` of the world, in `group`, sending `sent` rows to `receiver`, which
// expects `expected`.
std::string row_disagreement(const std::string& group, int sender, int64_t sent, int receiver,
                             int64_t expected);

// The text of the Error for a send whose receive has another dtype or count.
std::string transfer_disagreement(const std::string& group, int sender, const Tensor& sent, int receiver,
                                  const Tensor& expected);

// "200 ms", "10 min"
std::string to_string(std::chrono::milliseconds time);

// The part of a reduction over `count` elements that rank `rank` of `size` computes. Parts start on cache
// lines.
struct Part {
  int64_t begin;
  int64_t end;
};
Part part_of(int64_t count, int rank, int size);

}  // namespace trifold
