// Archive: the members of a file that torch.export.save wrote, and the tensors in them.
//
// The file is a zip archive with one folder of any name, in it models/model.json (graph/pt2/read_pt2.h), and two lists
// of tensors, data/weights/model_weights_config.json and data/constants/model_constants_config.json, each next to
// members with the tensors' memory. Example inputs, a pickle, are never opened. An archive may hold several models; one
// named "model", or the only one, is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/zip_file.h"
#include "graph/graph.h"

namespace trifold::graph {

// A tensor of the file: elements of a member, by strides. All its elements are within the member.
struct StoredTensor {
  std::string name;    // in the state dictionary
  std::string member;  // its member of the archive; tensors of one member share memory
  ElementType type = ElementType::F32;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;  // elements
  int64_t offset = 0;            // elements before the first one
  bool requires_grad = false;
  bool in_state_dict = true;  // else a constant, or a buffer that is not persistent

  int64_t elements() const;
  int64_t bytes() const { return elements() * size_of(type); }
  bool same_memory(const StoredTensor& other) const;
};

class Archive {
 public:
  // BadInput, naming the file, if it is not one that torch.export.save of PyTorch 2.9 or later wrote; it says so if it
  // is another kind of file of PyTorch.
  explicit Archive(const std::string& path);

  const std::string& path() const { return zip_.path(); }
  int64_t bytes() const { return zip_.bytes(); }
  // A checksum of the names and contents of all members, as the archive's directory states them: eight hexadecimal digits.
  std::string digest() const;
  // The text of models/MODEL.json, and where it is, for messages.
  std::string model_text() const;
  std::string model_where() const;
  // The tensors of both lists, ordered by name. BadInput for pickled tensors, other layouts, elements outside the
  // member, and two tensors of one name.
  std::vector<StoredTensor> tensors() const;
  // The elements in row-major order; `to` has tensor.bytes() bytes. Reads only the bytes between the tensor's first and
  // last element.
  void read(const StoredTensor& tensor, std::span<std::byte> to) const;
  // Compares all members with their checksums, and reads them for that. BadInput at the first difference.
  void verify() const;

 private:
  void add_tensors(std::string_view list, std::vector<StoredTensor>& tensors) const;
  StoredTensor parse_tensor(const std::string& name, const nlohmann::json& entry,
                            std::string_view list) const;

  ZipFile zip_;
  std::string folder_;  // with a slash at its end
  std::string model_;   // "model"
};

// The element type of PyTorch's number for it; BadInput, beginning with `what`, if it is none that a graph may have.
ElementType element_type(int64_t number, std::string_view what);

}  // namespace trifold::graph
