#include "rehearse/call_prices.h"

#include "mesh/mesh.h"
#include "plan/costs.h"
#include "plan/forecast/device_prices.h"

namespace trifold {

CallPrices::CallPrices(const PlannedMachine& machine, const RunSpec& run)
    : machine_(machine),
      prices_(machine_.hardware ? device_prices(*machine_.hardware, machine_.software, run)
                                : rate_prices(machine_)) {}

double CallPrices::seconds(Work call) const {
  const AxisSet axes = AxisSet::of_bits(call.group);
  call.group = axes.empty() ? (kStageAxes | AxisSet{Axis::Pp}).bits() : axes.bits();
  return call.ranks < 2 ? 0 : prices_->seconds(call);
}

}  // namespace trifold
