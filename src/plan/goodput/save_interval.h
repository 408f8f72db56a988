// The save interval of a run whose machine fails, in closed form. Failures are a Poisson process with a mean time
// between them (`mtbf`, in seconds, of the whole machine), and each costs the work since the last complete checkpoint
// and a restart. All times are seconds; an infinite mtbf means that nothing fails.
//
// Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974. Daly, "A higher order
// estimate of the optimum checkpoint interval for restart dumps", Future Generation Computer Systems 22(3), 2006.
#pragma once

#include <cstdint>

namespace trifold {

// What saves and failures cost a run. A save stops training for `stall`; its checkpoint is complete `tail` later, while
// training continues. A save that blocks has no tail. Only one save is outstanding: the next one waits for the tail.
struct SaveCosts {
  double step = 0;     // a step on the whole mesh
  double stall = 0;    // training stops for a save
  double tail = 0;     // from then until the checkpoint is complete
  double detect = 0;   // from a failure until it is noticed
  double restart = 0;  // from then to the next step; may itself be interrupted by a failure

  // Seconds of training from a start to the end of the first stall, and from each stall's end to the next one's, with a
  // save every `interval` steps.
  double first_period(int64_t interval) const;
  double period(int64_t interval) const;
};

// Seconds of work between saves that block for `save`: Young's first order, and Daly's higher order, which is mtbf if
// a save takes twice as long.
double young_interval(double save, double mtbf);
double daly_interval(double save, double mtbf);

// The share of the time that goes into steps which count, of an endless run with a save every `interval` steps. Between
// two failures of mean distance M the run completes checkpoint j if none follows within R + P1 + (j - 1) P + w: so many
// of them are expected, each worth `interval` steps, in M and the time d until the failure is noticed:
//   interval step / (M + d) exp(-(R + P1 + w) / M) / (1 - exp(-P / M))
// with restart R, periods P1 and P, and tail w. For saves that block and d = 0 this is Daly's total time, inverted.
double steady_goodput(const SaveCosts& costs, int64_t interval, double mtbf);

// The interval, from 1 to `most` steps, with the highest steady_goodput.
int64_t best_interval(const SaveCosts& costs, double mtbf, int64_t most);

}  // namespace trifold
