// `preprocess --split` divides the rows of its inputs into data sets for training, validation and test, in the folders
// train, valid and test of the output.
//
// Without --split-by a row's part is drawn at random, by the seed, its file and its position in the file. With a column
// of dates, times or numbers, the parts follow each other in time, and rows of the same time are in the same part.
//
// No information leaks from validation and test into training: dictionaries, frequencies and the minimum of logmin come
// from the part train alone, and values that do not occur in it have id 1. Negatives (drop_negatives) are dropped from
// the part train alone.
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

// The ranges of rows of two or three parts with these shares, which need not add up to 1. With times, it reads the
// inputs once to find them. BadInput if too many equal times leave a part without rows.
std::vector<SplitPart> split_parts(const PreprocessOptions& options, const std::vector<double>& shares,
                                   ThreadPool& pool);

// Preprocesses the parts, one after the other, into folders of options.output, which must not exist and appears once
// all are complete. BadInput as preprocess().
void preprocess_parts(const PreprocessOptions& options, std::vector<SplitPart>& parts, ThreadPool& pool,
                      FunctionRef<void(const PreprocessProgress&)> progress);

}  // namespace trifold
