// Traces in the format of Perfetto (ui.perfetto.dev): a sequence of TracePackets with track descriptors and the begins
// and ends of slices, encoded with protozero.
#pragma once

#include <string>
#include <vector>

#include "monitor/report/trace_tracks.h"

namespace trifold {

// The file for these tracks. BadInput if this program was built without protozero.
std::string perfetto_trace(const std::vector<TraceTrack>& tracks);

}  // namespace trifold
