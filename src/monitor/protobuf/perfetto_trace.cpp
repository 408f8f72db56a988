#include "monitor/perfetto_trace.h"

#include <map>
#include <protozero/pbf_builder.hpp>

#include "core/printable.h"
#include "monitor/protobuf/perfetto_messages.h"

namespace trifold {

namespace {

namespace pf = perfetto;
using protozero::pbf_builder;

class Encoder {
 public:
  std::string trace(const std::vector<TraceTrack>& tracks) {
    describe(next_uuid_++, [](pbf_builder<pf::TrackDescriptor>& mark) {
      mark.add_string(pf::TrackDescriptor::name, "made by trifold");  // viewers leave out empty tracks
    });
    for (const TraceTrack& track : tracks) {
      const uint64_t process = process_uuid(track);
      const uint64_t uuid = next_uuid_++;
      describe(uuid, [&](pbf_builder<pf::TrackDescriptor>& descriptor) {
        descriptor.add_string(pf::TrackDescriptor::name, printable(track.name));
        descriptor.add_uint64(pf::TrackDescriptor::parent_uuid, process);
      });
      for (const TraceSlice& slice : track.slices) add(uuid, slice);
    }
    return std::move(data_);
  }

 private:
  template <class Fill>
  void packet(Fill&& fill) {
    pbf_builder<pf::Trace> trace(data_);
    pbf_builder<pf::TracePacket> packet(trace, pf::Trace::packet);
    packet.add_uint32(pf::TracePacket::trusted_packet_sequence_id, 1);
    fill(packet);
  }
  template <class Fill>
  void describe(uint64_t uuid, Fill&& fill) {
    packet([&](pbf_builder<pf::TracePacket>& packet) {
      pbf_builder<pf::TrackDescriptor> descriptor(packet, pf::TracePacket::track_descriptor);
      descriptor.add_uint64(pf::TrackDescriptor::uuid, uuid);
      fill(descriptor);
    });
  }

  uint64_t process_uuid(const TraceTrack& track) {
    const auto [found, is_new] = processes_.try_emplace(track.process, next_uuid_);
    if (!is_new) return found->second;
    describe(next_uuid_++, [&](pbf_builder<pf::TrackDescriptor>& descriptor) {
      pbf_builder<pf::ProcessDescriptor> process(descriptor, pf::TrackDescriptor::process);
      process.add_int32(pf::ProcessDescriptor::pid, track.process + 1);  // 0 is the idle process
      process.add_string(pf::ProcessDescriptor::process_name, printable(track.process_name));
    });
    return found->second;
  }

  template <class Fill>
  void event(uint64_t track, int64_t when, int type, Fill&& fill) {
    packet([&](pbf_builder<pf::TracePacket>& packet) {
      packet.add_uint64(pf::TracePacket::timestamp, static_cast<uint64_t>(when));
      pbf_builder<pf::TrackEvent> event(packet, pf::TracePacket::track_event);
      event.add_enum(pf::TrackEvent::type, type);
      event.add_uint64(pf::TrackEvent::track_uuid, track);
      fill(event);
    });
  }

  void add(uint64_t track, const TraceSlice& slice) {
    event(track, slice.begin_ns, pf::kSliceBegin, [&](pbf_builder<pf::TrackEvent>& event) {
      event.add_string(pf::TrackEvent::categories, slice.category);
      event.add_string(pf::TrackEvent::name, printable(slice.name));
      for (const auto& [name, value] : slice.notes) {
        pbf_builder<pf::DebugAnnotation> note(event, pf::TrackEvent::debug_annotations);
        note.add_int64(pf::DebugAnnotation::int_value, value);
        note.add_string(pf::DebugAnnotation::name, name);
      }
    });
    event(track, slice.end_ns, pf::kSliceEnd, [](pbf_builder<pf::TrackEvent>&) {});
  }

  std::string data_;
  std::map<int, uint64_t> processes_;  // uuid by process
  uint64_t next_uuid_ = 1;
};

}  // namespace

std::string perfetto_trace(const std::vector<TraceTrack>& tracks) { return Encoder().trace(tracks); }

}  // namespace trifold
