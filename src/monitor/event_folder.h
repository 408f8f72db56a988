// Event files of TensorBoard as a sink of records. Every number of a record becomes a scalar, named by its path
// (for_each_number), or as Megatron-LM names it where --log-params-norm or --log-num-zeros-in-grad asked for it, and every event a text, named by the event. A run writes one new file in the folder; a resumed run
// adds a file, whose beginning tells TensorBoard to drop what the interrupted run wrote for the steps that come again.
//
// A file is a sequence of TFRecords, each a message `Event` of TensorFlow's event.proto, encoded with protozero. A build
// without protozero has no such sink.
#pragma once

#include <memory>
#include <string>

#include "monitor/record.h"

namespace trifold {

// Creates the folder and a file in it. BadInput if that fails, or if this program was built without protozero.
std::unique_ptr<RecordSink> open_event_folder(const std::string& folder);

}  // namespace trifold
