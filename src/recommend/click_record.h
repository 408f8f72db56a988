// What a checkpoint says of the clicks that its model was trained on, so that no other clicks are taken for
// the same: the dense transform, and how values became the ids of each table (clicks/compare_clicks.h). Rows
// and names of the tables are among the fields of its model.
//
// A checkpoint that is older than this record says nothing of either: its tables' rows and names are
// compared, its transform and mappings are taken to be those of the data.
#pragma once

#include <nlohmann/json.hpp>

#include "checkpoint/reader.h"
#include "clicks/click_batch.h"

namespace trifold {

// The value of "clicks" in the state of a checkpoint.
nlohmann::json click_record(const ClickSchema& schema);

// BadInput that lists the differences, table by table, where `schema`, of the clicks called `data`, means
// something else than what the checkpoint was trained on.
void compare_with_record(const CheckpointReader& reader, const std::string& data, const ClickSchema& schema);

}  // namespace trifold
