// A RunRecord is one report of a run: named values that belong to a step, such as the loss and the rate of a training
// step, or the AUC of an evaluation. Sinks write records to the JSON log, to TensorBoard's event files and to a metrics
// page. A sink treats all values alike, so a new value appears everywhere once its report has it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "core/function_ref.h"

namespace trifold {

struct RunRecord {
  int64_t step = 0;
  // What happened besides a step and an evaluation: "start", "saved", "warning", ...; empty: a step or an evaluation.
  std::string event = {};
  // The part of the data that an evaluation used, such as "valid"; empty: no evaluation.
  std::string part = {};
  // Numbers, texts, lists and objects by name; null for a number that is not finite or not defined.
  nlohmann::ordered_json values = nlohmann::ordered_json::object();
};

// A JSON number, or null for NaN and infinity, which JSON lacks.
nlohmann::json finite_number(double value);

// The record as one object: {"step": 5, "event": "saved", "path": "run/step_5"}.
nlohmann::ordered_json object_of(const RunRecord& record);

// The step after which the run continues, in a record that begins it ("start") or takes it back to a checkpoint
// ("loss_spike"): what records before this one say about later steps no longer counts. Empty in other records.
std::optional<int64_t> continues_after(const RunRecord& record);

// Calls `take` for every number of the record, with its path: {"loss": 2, "loads": [1, 3]} has "loss", "loads/0" and
// "loads/1". Members of a list of named objects are called by their "name". Booleans are 0 or 1, null is NaN. Paths differ between
// kinds of records: an evaluation's paths begin with its part ("valid_tokens", "valid_loss"), and an event has only the
// numbers of its own members, below the name of the event ("slow_rank/times").
void for_each_number(const RunRecord& record, FunctionRef<void(const std::string& path, double value)> take);

// The destination of a run's records. All calls come from one thread.
class RecordSink {
 public:
  virtual ~RecordSink() = default;
  RecordSink(const RecordSink&) = delete;
  RecordSink& operator=(const RecordSink&) = delete;
  // Throws Error if the record cannot be written.
  virtual void write(const RunRecord& record) = 0;

 protected:
  RecordSink() = default;
};

}  // namespace trifold
