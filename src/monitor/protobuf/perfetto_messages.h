// The tags of the fields of Perfetto's messages that this room writes. Names and tags come from perfetto_trace.proto.
#pragma once

#include <protozero/types.hpp>

// NOLINTBEGIN(readability-identifier-naming): the names of the format
namespace trifold::perfetto {

enum class Trace : protozero::pbf_tag_type {
  packet = 1  // repeated TracePacket
};

enum class TracePacket : protozero::pbf_tag_type {
  timestamp = 8,                    // uint64, nanoseconds
  trusted_packet_sequence_id = 10,  // uint32
  track_event = 11,                 // TrackEvent
  track_descriptor = 60             // TrackDescriptor
};

enum class TrackDescriptor : protozero::pbf_tag_type {
  uuid = 1,        // uint64
  name = 2,        // string
  process = 3,     // ProcessDescriptor
  parent_uuid = 5  // uint64
};

enum class ProcessDescriptor : protozero::pbf_tag_type {
  pid = 1,          // int32
  process_name = 6  // string
};

enum class TrackEvent : protozero::pbf_tag_type {
  debug_annotations = 4,  // repeated DebugAnnotation
  type = 9,               // enum; kSliceBegin, kSliceEnd
  track_uuid = 11,        // uint64
  categories = 22,        // repeated string
  name = 23               // string
};
inline constexpr int kSliceBegin = 1, kSliceEnd = 2;  // TrackEvent.type

enum class DebugAnnotation : protozero::pbf_tag_type {
  int_value = 4,  // int64
  name = 10       // string
};

}  // namespace trifold::perfetto
// NOLINTEND(readability-identifier-naming)
