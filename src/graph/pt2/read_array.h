// Elements of a file's tensors as arrays of the host, for buffers and constants.
#pragma once

#include "graph/host/array.h"
#include "graph/pt2/archive.h"

namespace trifold::graph {

// A bool of the file is true if its byte is not zero.
Array read_array(const Archive& archive, const StoredTensor& tensor);
// The tensor of this name of a list ordered by name (Archive::tensors). BadInput if there is none.
Array read_array(const Archive& archive, const std::vector<StoredTensor>& tensors, const std::string& name);

}  // namespace trifold::graph
