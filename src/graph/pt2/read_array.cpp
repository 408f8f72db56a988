#include "graph/pt2/read_array.h"

#include <algorithm>

#include "core/error.h"
#include "core/printable.h"

namespace trifold::graph {

Array read_array(const Archive& archive, const StoredTensor& tensor) {
  Array array = make_array(tensor.type, tensor.sizes);
  archive.read(tensor, array.bytes);
  if (tensor.type == ElementType::Bool)
    for (std::byte& byte : array.bytes) byte = byte == std::byte{0} ? byte : std::byte{1};
  return array;
}

Array read_array(const Archive& archive, const std::vector<StoredTensor>& tensors, const std::string& name) {
  const auto at =
      std::lower_bound(tensors.begin(), tensors.end(), name,
                       [](const StoredTensor& tensor, const std::string& n) { return tensor.name < n; });
  if (at == tensors.end() || at->name != name)
    bad_input("{}: the file has no tensor '{}'", archive.path(), printable(name));
  return read_array(archive, *at);
}

}  // namespace trifold::graph
