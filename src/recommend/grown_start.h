// Starts a run with --finetune from the weights and the optimizer state of a checkpoint, on data whose tables may have
// grown, that is, have more rows than in the checkpoint. Rows that the checkpoint has are loaded. The other rows keep
// the initial values of a new run, which depend on seed, table, row and column alone, and an optimizer state of zero;
// so they are the same on every mesh and in every placement.
//
// A table may grow if its first rows keep their meaning: if its dictionary was grown from the checkpoint's
// (ClickTable::grown_from), or if its ids are the integers of the file.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/reader.h"
#include "checkpoint/writer.h"
#include "clicks/click_batch.h"
#include "run/start.h"

namespace trifold {

// The model in the checkpoint's metadata, to be compared with the model of a run on the clicks called `data`, which
// have this schema. With LoadPart::State its grown tables get the rows of `schema`. BadInput, with the differences
// table by table, if the checkpoint was trained on incompatible clicks.
nlohmann::json model_to_go_on(const CheckpointReader& reader, LoadPart part, const std::string& data,
                              const ClickSchema& schema);

// A message for the user about each table that has grown.
std::vector<std::string> growth_notes(const CheckpointReader& reader, const ClickSchema& schema);

// Cuts the tensors `boxes`, into which a model for `schema` loads, to the parts that the checkpoint has: tensors of
// grown tables end at its last row. To be called after model_to_go_on.
std::vector<NamedTensor> stored_parts(std::vector<NamedTensor> boxes, const CheckpointReader& reader,
                                      const ClickSchema& schema);

}  // namespace trifold
