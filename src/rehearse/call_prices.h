// CallPrices: the planned seconds of a rank's collectives and messages.
#pragma once

#include <memory>

#include "core/work_log.h"
#include "layout/run_spec.h"
#include "plan/forecast/planned_machine.h"
#include "plan/forecast/work_cost.h"

namespace trifold {

// Prices a call as `trifold plan` does: with the figures of a device and its network, or at plain rates.
class CallPrices {
 public:
  CallPrices(const PlannedMachine& machine, const RunSpec& run);
  CallPrices(const CallPrices&) = delete;
  CallPrices& operator=(const CallPrices&) = delete;

  // Seconds of a collective or an exchange, as absent ranks describe it (AbsentPeers::seconds).
  double seconds(Work call) const;

 private:
  PlannedMachine machine_;
  std::unique_ptr<WorkPrices> prices_;
};

}  // namespace trifold
