// Applies the encoding of an existing folder of clicks (--dictionaries-of) to other inputs, so that ids and dense
// values have the same meaning in both.
#pragma once

#include "clicks/click_format.h"
#include "preprocess/preprocess.h"

namespace trifold {

// Sets the options for ids, bags and dense values with which `given` was made.
void take_options(const ClickFolder& given, PreprocessOptions& options);

// Compares `folder`, which describes the inputs and has as many tables, with `given`, the folder of
// options.dictionaries_of, and gives its tables the names that they have in `given`. `named`: options name the columns,
// so the names must agree. BadInput for the first difference.
void expect_encoding(const ClickFolder& given, const PreprocessOptions& options, bool named,
                     ClickFolder& folder);

}  // namespace trifold
