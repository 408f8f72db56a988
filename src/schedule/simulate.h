// Simulates a plan: the time and the memory that it needs on every rank, without running it.
//
// Assumptions about time:
// - Each rank computes one action after the other in the order of its row. F, I and W take the stage's f, i
//   and w seconds, B takes its b, which may be less than i + w; an action on one of n blocks takes an n-th of
//   that. Messages and reductions do not slow computation down.
// - A batch of messages (batches.h) is posted when the rank reaches it in its row, that is when all earlier
//   computation is done; the rank continues at once. Each direction has its queue: a batch begins when it is
//   posted and the previous batch of that direction is done. A message is in flight from the moment both of its
//   batches have begun (rendezvous), for message_seconds + bytes / bytes_per_second; links are not shared. A
//   batch is done when all its messages have arrived.
// - An overlapped pair begins when the inputs of both halves are available. It takes the sum of both times; or, if its
//   halves alternate, that sum less the part of each half's exchanges that the other half's computation hides; or, if
//   the device computes both at once, the longer of the two times.
// - Computation waits for the batch that brings its input or gradient, and for nothing else. Memory is always
//   available: a slot is reused only after the gradient of its micro-batch has arrived, when its output was sent
//   long before.
// - Reductions over the data axis (REDUCE_GRAD) run in a separate queue; each takes its blocks' share of the stage's
//   `reduce` seconds. STEP waits for earlier reductions, then takes `step` seconds. REDUCE_TIED waits for the other
//   ranks that have one and takes tied_seconds on all. UNSHARD and RESHARD take no time.
// - OFFLOAD and FETCH run in another queue, for the block's offloaded_bytes / offload_bytes_per_second each. A
//   backward waits for the FETCHes of its block and of the block before, a pair for the FETCHes of both halves. The
//   rank waits at an OFFLOAD until the previous one is done, if no FETCH is between them.
//
// Assumptions about memory: a stage always has its state_bytes, and as many copies of parameter_bytes as
// there are weight versions in use at once. A micro-batch costs kept_bytes from the beginning of its F to the
// end of its last backward on the stage (forward only, or without a backward: to the end of F). If the next stage is on the same rank, its W
// reads that stage's input here, so the cost lasts to the end of the last backward there. A micro-batch also costs
// held_bytes from the beginning of its I to the end of its W; a B needs none. A block has an n-th of the kept_bytes,
// from its F on, and does not cost it from its OFFLOAD to its FETCH.
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
  double b = 0;                // a whole backward; 0: i + w
  // The parts of f, i and b in which only exchanges with other ranks are in progress, which the computation of a pair's
  // other half can hide.
  double f_exchanges = 0, i_exchanges = 0, b_exchanges = 0;
  size_t kept_bytes = 0;       // per micro-batch from F to the last backward, including its input
  size_t held_bytes = 0;       // per micro-batch between I and W
  size_t message_bytes = 0;    // the stage's output, and also its gradient
  size_t parameter_bytes = 0;  // one version of the weights
  size_t state_bytes = 0;      // gradients, optimizer
  double reduce = 0;           // seconds to sum all gradients of the stage over the data axis, once
  double step = 0;             // seconds of the stage's update
      // [block] Bytes that an OFFLOAD or a FETCH moves; empty: an n-th of kept_bytes.
  std::vector<size_t> offloaded_bytes = {};

  double whole_backward() const { return b > 0 ? b : i + w; }
};

// How a rank runs the two halves of a pair.
enum class PairExecution : uint8_t {
  Sequential,   // one after the other
  Alternating,  // one half computes while the other half's exchanges are in progress
  Concurrent,   // the device computes both at once
};

struct CostModel {
  std::vector<StageCost> stages;
  double message_seconds = 0;  // latency of a message
  double bytes_per_second = std::numeric_limits<double>::infinity();
  double tied_seconds = 0;
  double offload_bytes_per_second = std::numeric_limits<double>::infinity();
  std::optional<size_t> memory_limit;  // bytes per rank
  bool timeline = true;                // false leaves Simulation::timeline empty
  PairExecution pairs = PairExecution::Sequential;
};

// One simulated action; a message has an entry on both ranks, with the same times.
struct TimelineEntry {
  int rank;
  Action action;
  double begin, end;
  bool communication;  // a message or a reduction
  uint8_t half = 0;    // 1 or 2: half of a pair that runs as one; both halves have the pair's times
};

struct SimulatedRank {
  double busy = 0;           // time in F, I, W, B
  double idle = 0;           // makespan - busy
  double own_span_idle = 0;  // idle time between its first and its last computation
  int peak_in_flight = 0;    // most chunk inputs kept, from F to the last backward; without lookups
  int versions = 1;          // most weight versions of a stage at once
  size_t peak_bytes = 0;
  size_t sent_bytes = 0;
  size_t offloaded_bytes = 0;  // bytes moved by all OFFLOADs
  size_t fetched_bytes = 0;    // bytes moved by all FETCHes
  double fetch_wait = 0;       // seconds in which computation waits for nothing but a FETCH or an OFFLOAD
};

struct Simulation {
  double makespan = 0;  // until every rank is done
  double bubble = 0;    // idle time of all ranks / (ranks * makespan)
  std::vector<SimulatedRank> ranks;
  std::vector<TimelineEntry> timeline;  // by rank, then by begin
};

// Throws as check_plan does, and Error(BadInput) if a rank needs more than the memory limit; the message names the
// rank, the action, the time, the amounts, and remedies.
Simulation simulate(const Plan& plan, const PlanShape& shape, const CostModel& cost);

}  // namespace trifold
