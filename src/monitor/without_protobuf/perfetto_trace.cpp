#include "monitor/perfetto_trace.h"

#include "core/error.h"

namespace trifold {

std::string perfetto_trace(const std::vector<TraceTrack>&) {
  bad_input(
      "--trace: this program was built without protozero, which encodes traces: install libprotozero-dev (Debian's "
      "name) and build again");
}

}  // namespace trifold
