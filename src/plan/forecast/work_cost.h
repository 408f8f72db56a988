// Seconds of a list of work (core/work_log.h) on one rank, at given prices.
//
// The streams of a rank run side by side where nothing makes them wait: what is sent over the context axis is hidden
// behind the attention that it was enqueued beside. Other collectives are waited for, but for the shares that a price
// list leaves to computation.
#pragma once

#include <span>

#include "core/work_log.h"

namespace trifold {

// Prices of single pieces of work.
class WorkPrices {
 public:
  virtual ~WorkPrices() = default;
  virtual double seconds(const Work& work) const = 0;
  // The share of a collective over the tensor or the expert axes that is waited for.
  virtual double exposed(const Work& work) const = 0;
  // The share of the shorter of two overlapping activities that is lost: of what is sent over the context axis.
  virtual double contention() const = 0;
};

// Seconds of one list. `compute` is without collectives; `tensor` are those over the tensor and the expert axes, and
// `context` those over the context axis, as far as they do not overlap with computation; `context_hidden` is the part of
// the latter that does. `rows` is the part of `tensor` that rows of experts take.
struct ListSeconds {
  double compute = 0, tensor = 0, context = 0, context_hidden = 0, rows = 0;
  double all() const { return compute + tensor + context; }
};

ListSeconds seconds_of(std::span<const Work> list, const WorkPrices& prices);

}  // namespace trifold
