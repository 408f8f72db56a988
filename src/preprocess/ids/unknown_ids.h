// Counts the values of a numbered column that its dictionary lacks.
#pragma once

#include <cstdint>
#include <string>

#include "preprocess/ids/number_ids.h"

namespace trifold {

struct UnknownIds {
  int64_t values = 0;   // values that are not missing
  int64_t unknown = 0;  // values with id 1
  int64_t added = 0;    // values with an id from `known_rows` on
};

// Reads the keys and ids of `job`, which number_ids has written in `id_bytes` each. If `hashes` is not empty, the
// hashes of the unknown values are written to that file, in their order, in 8 bytes each.
UnknownIds count_unknown_ids(const IdColumnJob& job, int id_bytes, int64_t known_rows,
                             const std::string& hashes);

}  // namespace trifold
