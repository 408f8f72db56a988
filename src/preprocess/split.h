// `preprocess --split`: the rows of one input become data sets for training, validation and test, in the folders train,
// valid and test of the output.
//
// Without a column, each row is drawn at random, from the seed, its file and its position there. With a column of dates,
// times or numbers, the parts follow each other in time, and rows of the same time are in the same part.
//
// Nothing of the other parts is known in training: dictionaries, frequencies and the minimum of logmin are those of the
// part train, and values that do not occur there have id 1. Samples are dropped (drop_negatives) from the part train alone.
#pragma once

#include <string>
#include <vector>

#include "core/function_ref.h"
#include "core/thread_pool.h"
#include "preprocess/preprocess.h"

namespace trifold {

struct SplitPart {
  std::string name;  // train, valid or test
  RowRange rows;
  PreprocessResult result = {};
};

// The rows of the parts with these shares, two or three, which need not add up to 1; the input is read once for times.
// BadInput if the times leave a part without rows.
std::vector<SplitPart> split_parts(const PreprocessOptions& options, const std::vector<double>& shares,
                                   ThreadPool& pool);

// Makes the folders, one after the other; they appear as options.output, which must not exist, once all are complete.
// BadInput as preprocess().
void preprocess_parts(const PreprocessOptions& options, std::vector<SplitPart>& parts, ThreadPool& pool,
                      FunctionRef<void(const PreprocessProgress&)> progress);

}  // namespace trifold
