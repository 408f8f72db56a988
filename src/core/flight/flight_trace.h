// FlightTrace keeps all events of a few steps, in memory that grows: about 150 bytes an event.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "core/flight/flight_event.h"

namespace trifold {

// Any thread may call any function.
class FlightTrace {
 public:
  // An event that begins, with its ticket, step and begin.
  void add(const FlightEvent& event) {
    const std::lock_guard lock(mutex_);
    events_.emplace(event.ticket, event);
  }
  // Sets the times that are given. No effect on an event that began before the trace.
  void set_times(uint64_t ticket, std::optional<int64_t> begin_ns, std::optional<int64_t> end_ns) {
    const std::lock_guard lock(mutex_);
    const auto event = events_.find(ticket);
    if (event == events_.end()) return;
    if (begin_ns) event->second.begin_ns = *begin_ns;
    if (end_ns) event->second.end_ns = *end_ns;
  }
  // Removes the events and returns them, in the order of their tickets.
  std::vector<FlightEvent> take() {
    const std::lock_guard lock(mutex_);
    std::vector<FlightEvent> events;
    events.reserve(events_.size());
    for (const auto& [ticket, event] : events_) events.push_back(event);
    events_.clear();
    return events;
  }

 private:
  std::mutex mutex_;
  std::map<uint64_t, FlightEvent> events_;  // by ticket
};

}  // namespace trifold
