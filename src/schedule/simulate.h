// Simulation: the time and the memory that a plan needs on every rank, without running it.
//
// Assumptions about time:
// - Each rank computes one action after the other in the order of its row. F, I and W take the stage's f, i
//   and w seconds, B takes its b, which may be less than i + w; an action on one of n blocks takes an n-th of
//   that. Computing is never slowed by messages or reductions.
// - A batch of messages (batches.h) is posted when the rank reaches it in its row, that is when all earlier
//   computation is done; the rank continues at once. Each direction has its queue: a batch begins when it is
//   posted and the previous batch of that direction is done. A message travels from the moment both of its
//   batches have begun (rendezvous), for message_seconds + bytes / bytes_per_second; links are not shared. A
//   batch is done when all its messages have arrived.
// - An overlapped pair begins when the inputs of both are available. It takes the sum of both times; or, if its halves
//   take turns, that less the exchanges of each as far as they fit behind what the other one computes; or, if the
//   device computes both at once, the longer of the two.
// - Computation waits for the batch that brings its input or gradient, and for nothing else. Memory is always
//   available: a slot is reused only after the gradient of its micro-batch has come back, when its output has
//   been sent long ago.
// - Reductions over the data axis (REDUCE_GRAD) run in a queue of their own; each takes its blocks' share of
//   the stage's `reduce` seconds. STEP waits for earlier reductions, then takes `step` seconds. REDUCE_TIED
//   waits for the other ranks that have one and takes tied_seconds on all. UNSHARD and RESHARD take no time.
// - OFFLOAD and FETCH run in another queue, for the block's offloaded_bytes / offload_bytes_per_second each; a
//   backward waits for the FETCHes of its block and the block before, a pair for those of both, and the rank waits at
//   an OFFLOAD until the one before it is done, if no FETCH is between them.
//
// Assumptions about memory: a stage always has its state_bytes, and as many copies of parameter_bytes as
// there are weight versions in use at once. A micro-batch costs kept_bytes from the beginning of its F to the
// end of its last backward on the stage, and on the next stage if that is on the same rank, because that stage's W
// reads its input here (forward only: to the end of F), and held_bytes from the beginning of its I to the end of its
// W; a B needs no held_bytes. A block has an n-th of the kept_bytes, from its F on, and does not cost it from its
// OFFLOAD to its FETCH.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "schedule/action.h"
#include "schedule/check.h"

namespace trifold {

struct StageCost {
  double f = 1, i = 1, w = 1;  // seconds for one micro-batch
  double b = 0;                // for a whole backward; 0: i + w
  // The parts of f, i and b in which only exchanges with other ranks are under way, behind which the other half of a
  // pair can compute.
  double f_exchanges = 0, i_exchanges = 0, b_exchanges = 0;
  size_t kept_bytes = 0;       // for one micro-batch, including its input
  size_t held_bytes = 0;       // between I and W
  size_t message_bytes = 0;    // the stage's output, and also its gradient
  size_t parameter_bytes = 0;  // one version of the weights
  size_t state_bytes = 0;      // gradients, optimizer
  double reduce = 0;           // seconds to sum all gradients of the stage over the data axis, once
  double step = 0;             // seconds of its update
  std::vector<size_t> offloaded_bytes =
      {};  // [block] that an OFFLOAD or a FETCH moves; empty: an n-th of kept_bytes

  double whole_backward() const { return b > 0 ? b : i + w; }
};

// How the halves of a pair share a rank.
enum class Together : uint8_t {
  No,      // one after the other
  Turns,   // each computes while the other one's exchanges are under way
  AtOnce,  // the device computes both
};

struct CostModel {
  std::vector<StageCost> stages;
  double message_seconds = 0;  // latency of a message
  double bytes_per_second = std::numeric_limits<double>::infinity();
  double tied_seconds = 0;
  double offload_bytes_per_second = std::numeric_limits<double>::infinity();
  std::optional<size_t> memory_limit;  // bytes per rank
  bool timeline = true;                // false leaves Simulation::timeline empty
  Together pairs = Together::No;
};

// One action as simulated; a message has an entry on both ranks, with the same times.
struct TimelineEntry {
  int rank;
  Action action;
  double begin, end;
  bool communication;  // a message or a reduction
  uint8_t half = 0;    // 1 or 2: the first or the second of a pair that runs as one, both for its whole time
};

struct SimulatedRank {
  double busy = 0;           // time in F, I, W, B
  double idle = 0;           // makespan - busy
  double own_span_idle = 0;  // the same from its first to its last computation
  int peak_in_flight = 0;    // inputs of chunks kept, from F to the last backward; not of lookups
  int versions = 1;          // of a stage's weights, at once
  size_t peak_bytes = 0;
  size_t sent_bytes = 0;
  size_t offloaded_bytes = 0;  // by all OFFLOADs
  size_t fetched_bytes = 0;
  double fetch_wait = 0;  // seconds in which computation waits for a FETCH or an OFFLOAD alone
};

struct Simulation {
  double makespan = 0;  // until every rank is done
  double bubble = 0;    // idle time of all ranks / (ranks * makespan)
  std::vector<SimulatedRank> ranks;
  std::vector<TimelineEntry> timeline;  // by rank, then by begin
};

// Throws as check_plan does, and Error(BadInput) if a rank needs more than the memory limit, with the rank,
// the action, the time, the amounts, and what would help.
Simulation simulate(const Plan& plan, const PlanShape& shape, const CostModel& cost);

}  // namespace trifold
