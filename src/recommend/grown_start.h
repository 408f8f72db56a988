// Where a run with --finetune starts: from weights and optimizer state of a checkpoint, on data whose tables may have
// more rows than the checkpoint's. Rows below its count are taken from it; rows behind keep the initial values of a new
// run, which follow from seed, table, row and column alone, and an optimizer state of zero, so they are the same on
// every mesh and in every placement.
//
// A table may grow if its first rows mean the same: its dictionary was grown from that of the checkpoint
// (ClickTable::grown_from), or its ids are the numbers of the file.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/reader.h"
#include "checkpoint/writer.h"
#include "clicks/click_batch.h"
#include "run/start.h"

namespace trifold {

// The model of a checkpoint's metadata, for comparison with that of a run on the clicks called `data`, whose schema is
// `schema`: with LoadPart::State grown tables have its rows. BadInput, with the differences table by table, if the
// checkpoint was trained on other clicks.
nlohmann::json model_to_go_on(const CheckpointReader& reader, LoadPart part, const std::string& data,
                              const ClickSchema& schema);

// A line for people for each table that has grown.
std::vector<std::string> growth_notes(const CheckpointReader& reader, const ClickSchema& schema);

// The parts of `boxes`, which a model for `schema` loads, that the checkpoint has: those of grown tables end at its
// last row. After model_to_go_on.
std::vector<NamedTensor> stored_parts(std::vector<NamedTensor> boxes, const CheckpointReader& reader,
                                      const ClickSchema& schema);

}  // namespace trifold
