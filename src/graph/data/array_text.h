// ArrayText: the arrays of --arrays as the data of a run, split into training, validation and test by --split. Each split
// is a range of samples in the order of the files.
#pragma once

#include <memory>

#include "config/fields/config.h"
#include "graph/model_file.h"
#include "text/training_text.h"

namespace trifold::graph {

// Opens the arrays for a model; `sums` as in ModelFile::preparation. BadInput for every mistake in the files, and if
// they are not what the model reads.
std::unique_ptr<TrainingText> open_arrays(const std::shared_ptr<const ModelFile>& model,
                                          const DataConfig& data, DType sums);

}  // namespace trifold::graph
