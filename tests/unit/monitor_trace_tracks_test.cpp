#include "monitor/report/trace_tracks.h"

#include <gtest/gtest.h>

namespace trifold {
namespace {

FlightEvent event_of(FlightEvent::Kind kind, std::string_view name, int64_t begin_ns, int64_t end_ns) {
  FlightEvent event;
  event.kind = kind;
  event.set_name(name);
  event.begin_ns = begin_ns;
  event.end_ns = end_ns;
  return event;
}

// Two ranks, the first with these events. Clocks show 1000 in 1970.
FlightFiles files_of(std::vector<FlightEvent> events) {
  FlightFiles files;
  files.logs.resize(2);
  for (int rank = 0; rank < 2; ++rank) {
    files.logs[rank].rank = rank;
    files.logs[rank].wall_ns = 1000;
    files.logs[rank].beat_ns = 90;
  }
  files.logs[0].events = std::move(events);
  files.logs[1].events = {event_of(FlightEvent::Kind::Part, "step", 5, 50)};
  return files;
}

int64_t begin_of_plan(const FlightFiles& files) {
  Simulation simulation;
  simulation.timeline.push_back({0, Action{}, 0, 1e-9, false});
  const std::vector<TraceTrack> tracks = planned_tracks(simulation, files);
  EXPECT_EQ(tracks.size(), 1U);
  EXPECT_EQ(tracks[0].process, 2);
  return tracks[0].slices[0].begin_ns;
}

TEST(PlannedTracks, BeginWithTheLastWholeStepOfTheFirstRank) {
  EXPECT_EQ(begin_of_plan(files_of({event_of(FlightEvent::Kind::Part, "load", 10, 20),
                                    event_of(FlightEvent::Kind::Part, "step", 20, 30),
                                    event_of(FlightEvent::Kind::Part, "step", 30, 40),
                                    event_of(FlightEvent::Kind::Part, "step", 40, 0)})),
            1030);
}

// Never in 1970: a trace would span half a century.
TEST(PlannedTracks, OfARunKilledInItsFirstStepBeginWithItsFirstEvent) {
  EXPECT_EQ(begin_of_plan(files_of({event_of(FlightEvent::Kind::Collective, "all_reduce", 12, 15),
                                    event_of(FlightEvent::Kind::Part, "step", 11, 0)})),
            1011);
  EXPECT_EQ(begin_of_plan(files_of({})), 1090);
}

TEST(MeasuredTracks, HaveATrackForEachKind) {
  const std::vector<TraceTrack> tracks =
      measured_tracks(files_of({event_of(FlightEvent::Kind::Receive, "receive", 1, 2),
                                event_of(FlightEvent::Kind::Copy, "offload", 1, 3)}));
  ASSERT_EQ(tracks.size(), 3U);
  EXPECT_EQ(tracks[0].name, "receives");
  EXPECT_EQ(tracks[1].name, "copies");
  EXPECT_EQ(tracks[1].slices.at(0).category, "copy");
  EXPECT_EQ(tracks[2].name, "run");
}

TEST(PlannedTracks, NeedARank) {
  Simulation simulation;
  simulation.timeline.push_back({0, Action{}, 0, 1, false});
  EXPECT_TRUE(planned_tracks(simulation, {}).empty());
}

}  // namespace
}  // namespace trifold
