// Seconds of a list of work (core/work_log.h) on one rank, at given prices.
//
// A rank's streams run concurrently where nothing makes them wait: exchanges over the context axis overlap with the
// attention enqueued at the same time. The rank waits for other collectives, except for the share that the prices
// declare overlapped.
#pragma once

#include <span>

#include "core/work_log.h"

namespace trifold {

// Prices of single pieces of work.
class WorkPrices {
 public:
  virtual ~WorkPrices() = default;
  virtual double seconds(const Work& work) const = 0;
  // The share of a collective over the tensor or expert axes that does not overlap with computation.
  virtual double exposed(const Work& work) const = 0;
  // The share of the shorter of two overlapping activities, an exchange over the context axis and attention, that is
  // lost.
  virtual double contention() const = 0;
};

// Seconds of one list. `compute` excludes collectives. `tensor` (tensor and expert axes) and `context` are the parts of
// collectives that do not overlap with computation; `context_hidden` is the part over the context axis that does.
// `rows` is the part of `tensor` spent on rows of experts.
struct ListSeconds {
  double compute = 0, tensor = 0, context = 0, context_hidden = 0, rows = 0;
  double all() const { return compute + tensor + context; }
};

ListSeconds seconds_of(std::span<const Work> list, const WorkPrices& prices);

}  // namespace trifold
