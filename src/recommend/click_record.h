// The record in a checkpoint of the clicks that its model was trained on, by which incompatible clicks are detected:
// the dense transform, and the mapping from values to ids of each table (clicks/compare_clicks.h) with the older ones
// that it was grown from. Rows and names of the tables are among the model's fields.
//
// Older checkpoints lack this record: their tables' rows and names are compared, their transform and mappings are
// assumed to match the data.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/reader.h"
#include "clicks/click_batch.h"

namespace trifold {

// The names of the labels of a model in a checkpoint's metadata; empty where it has one.
std::vector<std::string> labels_in(const nlohmann::json& model);

// The value of "clicks" in the state of a checkpoint.
nlohmann::json click_record(const ClickSchema& schema);

// The schema of the clicks that the checkpoint was trained on; what it does not say is as in `schema`, mappings are
// unknown. Without tables if the checkpoint has none.
ClickSchema recorded_schema(const CheckpointReader& reader, const ClickSchema& schema);

// What clicks are compared for: to predict them, ids of an older dictionary are sufficient.
enum class ClickUse { Train, Predict };

// BadInput that lists the differences, table by table, if `schema`, that of the clicks called `data`, is not compatible
// with the clicks that the checkpoint was trained on.
void compare_with_record(const CheckpointReader& reader, const std::string& data, const ClickSchema& schema,
                         ClickUse use);

}  // namespace trifold
