#include "core/flight/flight_event.h"

#include <algorithm>
#include <cstring>

namespace trifold {

std::string_view FlightEvent::name() const {
  const auto* end = static_cast<const char*>(std::memchr(name_bytes.data(), 0, name_bytes.size()));
  return {name_bytes.data(),
          end == nullptr ? name_bytes.size() : static_cast<size_t>(end - name_bytes.data())};
}

void FlightEvent::set_name(std::string_view text) {
  name_bytes = {};
  std::memcpy(name_bytes.data(), text.data(), std::min(text.size(), name_bytes.size()));
}

}  // namespace trifold
