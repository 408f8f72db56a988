#include "monitor/report/trace_tracks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>

namespace trifold {

namespace {

struct EventKind {
  const char* category;
  const char* track;
};
EventKind kind_of(FlightEvent::Kind kind) {
  switch (kind) {
    case FlightEvent::Kind::Part:
      return {"part", "run"};
    case FlightEvent::Kind::Action:
      return {"action", "actions"};
    case FlightEvent::Kind::Collective:
      return {"collective", "collectives"};
    case FlightEvent::Kind::Send:
      return {"send", "sends"};
    case FlightEvent::Kind::Copy:
      return {"copy", "copies"};
    default:
      return {"receive", "receives"};
  }
}

// Distributes slices over tracks: each goes to the first one whose last slice has ended.
std::vector<TraceTrack> laid_out(const TraceTrack& like, std::vector<TraceSlice> slices) {
  std::stable_sort(slices.begin(), slices.end(),
                   [](const TraceSlice& a, const TraceSlice& b) { return a.begin_ns < b.begin_ns; });
  std::vector<TraceTrack> tracks;
  for (TraceSlice& slice : slices) {
    auto track = std::find_if(tracks.begin(), tracks.end(), [&](const TraceTrack& one) {
      return one.slices.back().end_ns <= slice.begin_ns;
    });
    if (track == tracks.end()) track = tracks.insert(track, like);
    track->slices.push_back(std::move(slice));
  }
  return tracks;
}

void append(std::vector<TraceTrack>& tracks, std::vector<TraceTrack> more) {
  std::move(more.begin(), more.end(), std::back_inserter(tracks));
}

int64_t last_sign_of(const FlightLog& log) {
  int64_t last = log.beat_ns;
  for (const FlightEvent& event : log.events) last = std::max({last, event.begin_ns, event.end_ns});
  return last;
}

TraceSlice slice_of(const FlightEvent& event, const FlightLog& log, int64_t last) {
  const bool ended = event.end_ns > 0;
  const int64_t end = std::max(event.begin_ns, ended ? event.end_ns : last);
  TraceSlice slice{std::string(event.name()),
                   kind_of(event.kind).category,
                   event.begin_ns + log.wall_ns,
                   end + log.wall_ns,
                   {{"step", event.step}}};
  if (event.kind == FlightEvent::Kind::Collective) slice.notes.emplace_back("call", event.number);
  if (event.kind == FlightEvent::Kind::Send || event.kind == FlightEvent::Kind::Receive) {
    slice.notes.emplace_back("message", event.number);
    slice.notes.emplace_back("peer", event.peer);
  }
  if (event.group >= 0) slice.notes.emplace_back("communicator", event.group);
  if (event.bytes > 0) slice.notes.emplace_back("bytes", event.bytes);
  if (!ended) slice.notes.emplace_back("unfinished", 1);
  return slice;
}

// Where the planned step begins: with the last whole step of the rank, or, if it ended none, with the first event that
// its file still has. Nanoseconds since 1970.
int64_t begin_of_plan(const FlightLog& log) {
  int64_t begin = last_sign_of(log);
  for (const FlightEvent& event : log.events) begin = std::min(begin, event.begin_ns);
  for (const FlightEvent& event : log.events)
    if (event.kind == FlightEvent::Kind::Part && event.name() == "step" && event.end_ns > 0)
      begin = event.begin_ns;
  return begin + log.wall_ns;
}

}  // namespace

std::vector<TraceTrack> measured_tracks(const FlightFiles& files) {
  std::vector<TraceTrack> tracks;
  for (const FlightLog& log : files.logs) {
    std::map<FlightEvent::Kind, std::vector<TraceSlice>> slices;
    const int64_t last = last_sign_of(log);
    for (const FlightEvent& event : log.events) slices[event.kind].push_back(slice_of(event, log, last));
    for (auto& [kind, of_kind] : slices)
      append(
          tracks,
          laid_out({log.rank, fmt::format("rank {} on host {}", log.rank, log.host), kind_of(kind).track, {}},
                   std::move(of_kind)));
  }
  return tracks;
}

std::vector<TraceTrack> planned_tracks(const Simulation& simulation, const FlightFiles& files) {
  if (files.logs.empty()) return {};
  const int64_t begin = begin_of_plan(files.logs.front());
  const int most = files.logs.back().rank;
  std::map<std::pair<int, bool>, std::vector<TraceSlice>> slices;  // by pipeline rank, computation first
  for (const TimelineEntry& entry : simulation.timeline)
    slices[{entry.rank, entry.communication}].push_back({to_string(entry.action), "planned",
                                                         begin + std::llround(1e9 * entry.begin),
                                                         begin + std::llround(1e9 * entry.end)});
  std::vector<TraceTrack> tracks;
  for (auto& [key, of_rank] : slices)
    append(tracks, laid_out({most + 1 + key.first,
                             fmt::format("planned, pipeline rank {}", key.first),
                             key.second ? "messages and reductions" : "actions",
                             {}},
                            std::move(of_rank)));
  return tracks;
}

std::vector<TraceTrack> all_tracks(const FlightFiles& files, const Planned& planned) {
  std::vector<TraceTrack> tracks = measured_tracks(files);
  if (planned.picture) append(tracks, planned_tracks(planned.picture->timeline.simulation, files));
  return tracks;
}

}  // namespace trifold
