// The tags of the fields of TensorBoard's messages that this room writes. Names and tags come from TensorFlow's
// event.proto, summary.proto and tensor.proto.
#pragma once

#include <protozero/types.hpp>

// NOLINTBEGIN(readability-identifier-naming): the names of the format
namespace trifold::tensorboard {

enum class Event : protozero::pbf_tag_type {
  wall_time = 1,     // double, seconds since 1970
  step = 2,          // int64
  file_version = 3,  // string
  summary = 5,       // Summary
  session_log = 7    // SessionLog
};

enum class SessionLog : protozero::pbf_tag_type {
  status = 1  // enum; kStart
};
// SessionLog.status: readers drop everything at or after the event's step that stands before it.
inline constexpr int kStart = 1;

enum class Summary : protozero::pbf_tag_type {
  value = 1  // repeated SummaryValue
};

enum class SummaryValue : protozero::pbf_tag_type {
  tag = 1,           // string
  simple_value = 2,  // float
  tensor = 8,        // TensorProto
  metadata = 9       // SummaryMetadata
};

enum class SummaryMetadata : protozero::pbf_tag_type {
  plugin_data = 1  // PluginData
};

enum class PluginData : protozero::pbf_tag_type {
  plugin_name = 1  // string
};

enum class TensorProto : protozero::pbf_tag_type {
  dtype = 1,         // enum; kString
  tensor_shape = 2,  // TensorShapeProto; empty: a scalar
  string_val = 8     // repeated bytes
};
inline constexpr int kString = 7;  // TensorProto.dtype

}  // namespace trifold::tensorboard
// NOLINTEND(readability-identifier-naming)
