#include "comm/call.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <vector>

namespace trifold {

namespace {

std::string_view text_of(CallProblem problem) {
  switch (problem) {
    case CallProblem::None:
      return "nothing";
    case CallProblem::Dtypes:
      return "its tensors `in` and `out` must have one dtype";
    case CallProblem::Parts:
      return "its larger tensor must hold exactly one part per rank, each as long as the smaller";
    case CallProblem::Rows:
      return "its row counts must be one per rank, not negative, "
             "and add up to the first dims of `in` and `out`";
    case CallProblem::RowShape:
      return "the rows of its `in` and `out` must have one length";
    case CallProblem::Root:
      return "its root is not a rank of this communicator";
    case CallProblem::NotSummed:
      return "only floats, i64 and i32 can be reduced";
  }
  return "?";
}

bool reducible(DType dtype) { return dtype != DType::U8 && dtype != DType::U16; }

int64_t row_elements(const Tensor& tensor) {
  int64_t count = 1;
  for (int i = 1; i < tensor.rank(); ++i) count *= tensor.dim(i);
  return count;
}

bool rows_fit(const Tensor& tensor, std::span<const int64_t> rows, int size) {
  if (tensor.rank() == 0 || rows.size() != static_cast<size_t>(size)) return false;
  if (std::any_of(rows.begin(), rows.end(), [](int64_t count) { return count < 0; })) return false;
  return std::accumulate(rows.begin(), rows.end(), int64_t{0}) == tensor.dim(0);
}

Call make_call(CallKind kind, DType dtype, int64_t count, CallProblem problem = CallProblem::None) {
  Call call;
  call.kind = kind;
  call.dtype = dtype;
  call.count = count;
  call.problem = problem;
  return call;
}

}  // namespace

std::string_view name_of(CallKind kind) {
  switch (kind) {
    case CallKind::AllReduce:
      return "all_reduce";
    case CallKind::ReduceScatter:
      return "reduce_scatter";
    case CallKind::AllGather:
      return "all_gather";
    case CallKind::AllToAll:
      return "all_to_all";
    case CallKind::Broadcast:
      return "broadcast";
    case CallKind::Split:
      return "split";
    case CallKind::Barrier:
      return "barrier";
  }
  return "?";
}

Call all_reduce_call(const Tensor& inout, Reduce reduction) {
  Call call = make_call(CallKind::AllReduce, inout.dtype, inout.elements());
  call.reduction = reduction;
  if (!reducible(inout.dtype)) call.problem = CallProblem::NotSummed;
  return call;
}

Call reduce_scatter_call(const Tensor& out, const Tensor& in, Reduce reduction, int size) {
  Call call = make_call(CallKind::ReduceScatter, out.dtype, out.elements());
  call.reduction = reduction;
  if (!reducible(out.dtype)) call.problem = CallProblem::NotSummed;
  if (in.elements() != out.elements() * size) call.problem = CallProblem::Parts;
  if (in.dtype != out.dtype) call.problem = CallProblem::Dtypes;
  return call;
}

Call all_gather_call(const Tensor& out, const Tensor& in, int size) {
  CallProblem problem = CallProblem::None;
  if (out.elements() != in.elements() * size) problem = CallProblem::Parts;
  if (in.dtype != out.dtype) problem = CallProblem::Dtypes;
  return make_call(CallKind::AllGather, in.dtype, in.elements(), problem);
}

Call all_to_all_call(const Tensor& out, const Tensor& in, std::span<const int64_t> out_rows,
                     std::span<const int64_t> in_rows, int size) {
  CallProblem problem = CallProblem::None;
  if (row_elements(in) != row_elements(out)) problem = CallProblem::RowShape;
  if (!rows_fit(in, in_rows, size) || !rows_fit(out, out_rows, size)) problem = CallProblem::Rows;
  if (in.dtype != out.dtype) problem = CallProblem::Dtypes;
  return make_call(CallKind::AllToAll, in.dtype, row_elements(in), problem);
}

Call broadcast_call(const Tensor& inout, int root, int size) {
  Call call = make_call(CallKind::Broadcast, inout.dtype, inout.elements());
  call.root = root;
  if (root < 0 || root >= size) call.problem = CallProblem::Root;
  return call;
}

std::string to_string(const Call& call) {
  std::string text{name_of(call.kind)};
  const bool reduces = call.kind == CallKind::AllReduce || call.kind == CallKind::ReduceScatter;
  if (reduces) text += call.reduction == Reduce::Sum ? "(sum)" : "(max)";
  if (call.kind == CallKind::Broadcast) text += fmt::format("(root {})", call.root);
  if (call.kind == CallKind::AllToAll)
    text += fmt::format(" of rows of {} {}", call.count, trifold::name_of(call.dtype));
  else if (call.kind != CallKind::Split && call.kind != CallKind::Barrier)
    text += fmt::format(" of {} {}", call.count, trifold::name_of(call.dtype));
  return text + fmt::format(", call {}", call.number);
}

bool agree(const Call& a, const Call& b) {
  return a.kind == b.kind && a.dtype == b.dtype && a.reduction == b.reduction && a.root == b.root &&
         a.count == b.count && a.number == b.number;
}

std::string name_ranks(std::span<const int> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

std::string name_group(std::span<const int> world_ranks, int world_size) {
  if (world_ranks.size() == static_cast<size_t>(world_size))
    return fmt::format("the world of {} rank{}", world_size, world_size == 1 ? "" : "s");
  return fmt::format("the group of world {}", name_ranks(world_ranks));
}

std::optional<std::string> disagreement(std::span<const Call> calls, const std::string& group,
                                        std::span<const int> world_ranks) {
  for (size_t rank = 0; rank < calls.size(); ++rank)
    if (calls[rank].problem != CallProblem::None)
      return fmt::format("in {}, rank {} calls {} with wrong arguments: {}", group, world_ranks[rank],
                         to_string(calls[rank]), text_of(calls[rank].problem));
  if (std::all_of(calls.begin(), calls.end(), [&](const Call& call) { return agree(call, calls[0]); }))
    return std::nullopt;

  // Ranks with the same call are named together.
  std::string text = fmt::format("the ranks of {} do not make the same call:", group);
  std::vector<bool> named(calls.size(), false);
  for (size_t rank = 0; rank < calls.size(); ++rank) {
    if (named[rank]) continue;
    std::vector<int> alike;
    for (size_t other = rank; other < calls.size(); ++other) {
      if (!agree(calls[rank], calls[other])) continue;
      named[other] = true;
      alike.push_back(world_ranks[other]);
    }
    text += fmt::format("{} {} call{} {}", rank == 0 ? "" : ";", name_ranks(alike),
                        alike.size() == 1 ? "s" : "", to_string(calls[rank]));
  }
  return text + "; all must make the same calls in the same order, with equal counts and types";
}

std::string row_disagreement(const std::string& group, int sender, int64_t sent, int receiver,
                             int64_t expected) {
  return fmt::format("all_to_all in {}: rank {} sends {} row{} to rank {}, which expects {}", group, sender,
                     sent, sent == 1 ? "" : "s", receiver, expected);
}

std::string transfer_disagreement(const std::string& group, int sender, const Tensor& sent, int receiver,
                                  const Tensor& expected) {
  return fmt::format("exchange in {}: rank {} sends {} {} to rank {}, which expects {} {}", group, sender,
                     sent.elements(), name_of(sent.dtype), receiver, expected.elements(),
                     name_of(expected.dtype));
}

std::string to_string(std::chrono::milliseconds time) {
  if (time.count() % 60'000 == 0) return fmt::format("{} min", time.count() / 60'000);
  if (time.count() % 1000 == 0) return fmt::format("{} s", time.count() / 1000);
  return fmt::format("{} ms", time.count());
}

Part part_of(int64_t count, int rank, int size) {
  constexpr int64_t kGrain = 64;  // elements: at least a cache line for the smallest dtype
  const int64_t grains = (count + kGrain - 1) / kGrain;
  const int64_t length = (grains + size - 1) / size * kGrain;
  return {std::min(count, rank * length), std::min(count, (rank + 1) * length)};
}

}  // namespace trifold
