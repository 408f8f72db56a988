// A checkpoint records how the clicks that its model was trained on were encoded, so that incompatible clicks are
// detected: the dense transform, and for each table the mapping from values to ids (clicks/compare_clicks.h) with the
// older mappings that it was grown from. Rows and names of the tables are among the model's fields.
//
// Older checkpoints lack this record. For them only rows and names of the tables are compared; transform and mappings
// are assumed to match the data.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/reader.h"
#include "clicks/click_batch.h"

namespace trifold {

// The names of the labels of `model`, from a checkpoint's metadata; empty for a model with one label.
std::vector<std::string> labels_in(const nlohmann::json& model);

// The value of "clicks" in the state of a checkpoint.
nlohmann::json click_record(const ClickSchema& schema);

// The schema of the clicks that the checkpoint was trained on. What it does not record is taken from `schema`, except
// mappings, which are then unknown. Without tables if the checkpoint has none.
ClickSchema recorded_schema(const CheckpointReader& reader, const ClickSchema& schema);

// The purpose of a comparison. For predictions, clicks encoded with an older version of the dictionary are acceptable.
enum class ClickUse { Train, Predict };

// Throws BadInput, listing the differences table by table, if the clicks called `data`, which have this schema, are not
// compatible with the clicks that the checkpoint was trained on.
void compare_with_record(const CheckpointReader& reader, const std::string& data, const ClickSchema& schema,
                         ClickUse use);

}  // namespace trifold
