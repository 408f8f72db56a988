// OnnxFile builds a model in the ONNX format (ONNX 1.8: operator set 13, IR version 7), which onnxruntime and other
// programs compute. Operations are added in the order of computation; each makes one tensor, known by its name. Weights
// are read only while the file is written, a piece at a time.
//
// The format is protocol buffers: numbered fields, each an integer of variable length, or bytes preceded by their
// length. A message, and therefore a file, has less than 2 GiB.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace trifold {

// Builds a message of protocol buffers.
class ProtoMessage {
 public:
  ProtoMessage& number(int field, uint64_t value);
  ProtoMessage& bytes(int field, std::string_view value);  // a text, or another message
  // Begins a field of `count` bytes, which the caller writes after the text.
  ProtoMessage& begin_bytes(int field, size_t count);
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

class OnnxFile {
 public:
  using Write = std::function<void(std::string_view bytes)>;
  // Reads rows [first, first + count) of a weight as f32, contiguously; a vector's rows are its elements.
  using ReadRows = std::function<void(int64_t first, int64_t count, float* into)>;

  // Inputs and outputs have any number of rows, "batch". Width -1 may change from call to call; it equals the width of
  // the input `like`, if one is named.
  void input(const std::string& name, bool is_ids, int64_t width, const std::string& like = {});
  void output(const std::string& name);  // f32 [batch]
  void note(const std::string& key, const std::string& value);

  std::string weight(const std::string& name, const Shape& shape, ReadRows read);
  std::string integers(const std::vector<int64_t>& values);  // a constant, i64 [n]
  std::string number(float value);                           // a constant, [1]

  // Adds an operation and returns the name of its output. `numbers` and `lists` are attributes.
  using Number = std::pair<const char*, int64_t>;
  using List = std::pair<const char*, std::vector<int64_t>>;
  std::string add(const char* operation, const std::vector<std::string>& inputs,
                  std::initializer_list<Number> numbers = {}, const std::vector<List>& lists = {});
  // For each element of `x`, i64, the element of `values` at the index of the equal key in `keys` (all different), or
  // `absent`. LabelEncoder of the operator set ai.onnx.ml 2.
  std::string lookup(const std::string& x, const std::vector<int64_t>& keys,
                     const std::vector<int64_t>& values, int64_t absent);
  // Names a tensor as an output.
  void name_as(const std::string& output, const std::string& tensor);

  // BadInput if the file would be too long.
  void write(const Write& write) const;

 private:
  std::string add_node(const char* operation, std::string_view domain, const std::vector<std::string>& inputs,
                       std::initializer_list<Number> numbers, const std::vector<List>& lists);
  struct Weight {
    ProtoMessage head;  // everything except the elements
    Shape shape;
    ReadRows read;
  };

  ProtoMessage graph_;  // nodes, inputs, outputs, constants
  std::vector<Weight> weights_;
  std::vector<std::pair<std::string, std::string>> notes_;
  int64_t next_ = 0;
  bool looks_up_ = false;  // lookup() was called
};

}  // namespace trifold
