#include "schedule/schedules.h"

#include <algorithm>

#include "core/error.h"
#include "schedule/automatic.h"
#include "schedule/rows.h"

namespace trifold {

namespace {

// All forwards, then all backwards, in the same order.
RankPlan gpipe_row(const Row& row) {
  RowWriter out(row);
  for (int micro = 0; micro < row.micros; ++micro) out.add(ActionKind::F, 0, micro);
  for (int micro = 0; micro < row.micros; ++micro) out.add(ActionKind::B, 0, micro);
  return out.take();
}

// A forward of one micro-batch on one chunk, or its backward.
struct Visit {
  int chunk;
  int micro;
};

// The number of micro-batches that visit a chunk before the next chunk's turn: p if that divides m. Otherwise
// the smallest number from p on that leaves no remainder or a remainder of at least p, because a shorter
// group would stall the loop; Megatron requires the same. Fewer than p micro-batches form one group.
int group_size(int ranks, int micros) {
  if (micros <= ranks) return micros;
  int size = ranks;
  while (micros % size != 0 && micros % size < ranks) ++size;
  return size;
}

// The order in which micro-batches visit the chunks of a rank: group by group, within a group chunk by chunk.
std::vector<Visit> visits(int chunks, int micros, int group) {
  std::vector<Visit> order;
  order.reserve(static_cast<size_t>(chunks) * static_cast<size_t>(micros));
  for (int begin = 0; begin < micros; begin += group)
    for (int chunk = 0; chunk < chunks; ++chunk)
      for (int micro = begin; micro < std::min(begin + group, micros); ++micro)
        order.push_back({chunk, micro});
  return order;
}

// 1F1B over chunks: warm-up forwards, then forward and backward in turn, then the remaining backwards.
// Backwards visit in the order of forwards, with the chunks reversed. With one chunk this is 1F1B: p - r - 1
// warm-up forwards, so that the first gradient arrives just in time. With several chunks there are twice as
// many, plus the first group's forwards on all chunks but the last.
RankPlan interleaved_row(const Row& row, int chunks) {
  const int group = chunks == 1 ? row.ranks : group_size(row.ranks, row.micros);
  const int to_last = row.ranks - row.rank - 1;
  const std::vector<Visit> order = visits(chunks, row.micros, std::max(group, 1));
  const size_t wanted = static_cast<size_t>(chunks == 1 ? to_last : 2 * to_last + (chunks - 1) * group);
  const size_t warm_up = std::min(wanted, order.size());
  RowWriter out(row);
  const auto backward = [&](size_t k) {
    out.add(ActionKind::B, chunks - 1 - order[k].chunk, order[k].micro);
  };
  for (size_t k = 0; k < order.size(); ++k) {
    out.add(ActionKind::F, order[k].chunk, order[k].micro);
    if (k >= warm_up) backward(k - warm_up);
  }
  for (size_t k = order.size() - warm_up; k < order.size(); ++k) backward(k);
  return out.take();
}

void check_possible(Schedule schedule, int ranks, int chunks, int micros) {
  const std::string problem = schedule_problem(schedule, ranks, chunks, micros);
  if (!problem.empty()) bad_input("{}", problem);
}

// `auto` for stages of equal cost.
Plan make_automatic_evenly(int ranks, int chunks, int micros) {
  CostModel even;
  even.stages.resize(static_cast<size_t>(ranks) * static_cast<size_t>(chunks));
  return make_automatic({ranks, chunks, micros, default_max_in_flight(ranks)}, even).plan;
}

RankPlan make_row(const Row& row, int chunks) {
  switch (row.schedule) {
    case Schedule::Gpipe:
      return gpipe_row(row);
    case Schedule::OneFOneB:
    case Schedule::Interleaved:
      return interleaved_row(row, chunks);
    case Schedule::ZbH1:
      return zero_bubble_row(row, row.ranks - row.rank - 1, row.rank);
    case Schedule::ZbH2:
      return zero_bubble_row(row, 2 * (row.ranks - row.rank - 1), 2 * row.rank);
    case Schedule::ZbV:
      return zb_v_row(row);
    case Schedule::DualPipeV:
      return dualpipe_v_row(row);
    case Schedule::PipeDream:
    case Schedule::PipeDream2BW:
    case Schedule::Auto:
      break;
  }
  fail("{} has no plan of one global batch; make_async makes its window", schedule_name(row.schedule));
}

}  // namespace

int stage_of(Schedule schedule, int ranks, int chunk, int rank) {
  if (needs_two_chunks(schedule) && chunk == 1) return 2 * ranks - 1 - rank;
  return chunk * ranks + rank;
}

Plan make_schedule(Schedule schedule, int ranks, int chunks, int micros) {
  check_possible(schedule, ranks, chunks, micros);
  if (schedule == Schedule::Auto) return make_automatic_evenly(ranks, chunks, micros);
  Plan plan;
  for (int rank = 0; rank < ranks; ++rank) plan.push_back(make_row({schedule, ranks, rank, micros}, chunks));
  return plan;
}

Plan make_async(Schedule schedule, int ranks, int micros_per_batch, int batches) {
  check(is_async(schedule), "{} has no window of batches; make_schedule makes its plan",
        schedule_name(schedule));
  check_possible(schedule, ranks, 1, micros_per_batch);
  check(batches > 0, "a window has at least one global batch, not {}", batches);
  const int micros = micros_per_batch * batches;
  Plan plan;
  for (int rank = 0; rank < ranks; ++rank) {
    const Row row{schedule, ranks, rank, micros};
    const int in_flight = ranks - rank;
    RowWriter out(row);
    std::vector<int> versions;  // [micro] weight version of its forward
    int steps = 0;
    const auto backward = [&](int micro) {
      out.add(ActionKind::B, 0, micro, versions[static_cast<size_t>(micro)]);
      if ((micro + 1) % micros_per_batch != 0) return;
      out.add(ActionKind::Step, 0, Action::kAll);
      ++steps;
    };
    for (int micro = 0; micro < micros; ++micro) {
      const int batch = micro / micros_per_batch;
      versions.push_back(schedule == Schedule::PipeDream ? steps : std::max(0, batch - 1));
      out.add(ActionKind::F, 0, micro, versions.back());
      if (micro + 1 >= in_flight) backward(micro + 1 - in_flight);
    }
    for (int micro = std::max(0, micros - in_flight + 1); micro < micros; ++micro) backward(micro);
    plan.push_back(out.take());
  }
  return plan;
}

Plan forward_only(Schedule schedule, int ranks, int chunks, int micros) {
  check(ranks > 0 && chunks > 0 && micros > 0, "a forward pass of {} micro-batches on {} ranks x {} chunks",
        micros, ranks, chunks);
  Plan plan;
  for (int rank = 0; rank < ranks; ++rank) {
    RowWriter out({schedule, ranks, rank, micros});
    for (const Visit& visit : visits(chunks, micros, ranks)) out.add(ActionKind::F, visit.chunk, visit.micro);
    plan.push_back(out.take());
  }
  return plan;
}

Plan one_stage(int micros) {
  RowWriter out({Schedule::OneFOneB, 1, 0, micros});
  for (int micro = 0; micro < micros; ++micro) {
    out.add(ActionKind::F, 0, micro);
    out.add(ActionKind::B, 0, micro);
  }
  return {out.take()};
}

}  // namespace trifold
