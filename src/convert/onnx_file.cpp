#include "convert/onnx_file.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/error.h"

namespace trifold {

namespace {

static_assert(std::endian::native == std::endian::little, "numbers of tensors are stored in that order");

// Wire types: the encoding of a field's value, after its key.
constexpr uint64_t kVarint = 0;
constexpr uint64_t kLengthAndBytes = 2;

void add_varint(std::string& text, uint64_t value) {
  constexpr uint64_t kMore = 0x80;
  for (; value >= kMore; value >>= 7) text.push_back(static_cast<char>(value | kMore));
  text.push_back(static_cast<char>(value));
}

// Types of elements, and of attributes.
constexpr uint64_t kFloat = 1, kInt64 = 7;
constexpr uint64_t kIntAttribute = 2, kIntsAttribute = 7;

// A TensorProto up to its elements.
ProtoMessage tensor_head(const std::string& name, uint64_t type, const Shape& shape) {
  ProtoMessage head;
  for (int d = 0; d < shape.rank(); ++d) head.number(1, static_cast<uint64_t>(shape[d]));
  head.number(2, type).bytes(8, name);
  return head;
}
constexpr int kRawData = 9;

// ValueInfoProto of [batch] or, with a width other than 0, of [batch, width]; a negative width has the name `like`.
ProtoMessage value_info(const std::string& name, uint64_t type, int64_t width, const std::string& like) {
  ProtoMessage shape;
  shape.bytes(1, ProtoMessage().bytes(2, "batch").text());
  if (width > 0) shape.bytes(1, ProtoMessage().number(1, static_cast<uint64_t>(width)).text());
  if (width < 0) shape.bytes(1, ProtoMessage().bytes(2, "width of " + like).text());
  ProtoMessage tensor;
  tensor.number(1, type).bytes(2, shape.text());
  ProtoMessage info;
  info.bytes(1, name).bytes(2, ProtoMessage().bytes(1, tensor.text()).text());
  return info;
}

constexpr std::string_view kLookupDomain = "ai.onnx.ml";

constexpr int64_t kPieceNumbers = int64_t{4} << 20;

}  // namespace

ProtoMessage& ProtoMessage::number(int field, uint64_t value) {
  add_varint(text_, static_cast<uint64_t>(field) << 3 | kVarint);
  add_varint(text_, value);
  return *this;
}

ProtoMessage& ProtoMessage::begin_bytes(int field, size_t count) {
  add_varint(text_, static_cast<uint64_t>(field) << 3 | kLengthAndBytes);
  add_varint(text_, count);
  return *this;
}

ProtoMessage& ProtoMessage::bytes(int field, std::string_view value) {
  begin_bytes(field, value.size());
  text_ += value;
  return *this;
}

void OnnxFile::input(const std::string& name, bool is_ids, int64_t width, const std::string& like) {
  const uint64_t type = is_ids ? kInt64 : kFloat;
  graph_.bytes(11, value_info(name, type, width, like.empty() ? name : like).text());
}

void OnnxFile::output(const std::string& name) { graph_.bytes(12, value_info(name, kFloat, 0, name).text()); }

void OnnxFile::note(const std::string& key, const std::string& value) { notes_.emplace_back(key, value); }

std::string OnnxFile::weight(const std::string& name, const Shape& shape, ReadRows read) {
  ProtoMessage head = tensor_head(name, kFloat, shape);
  head.begin_bytes(kRawData, static_cast<size_t>(shape.elements()) * sizeof(float));
  weights_.push_back({std::move(head), shape, std::move(read)});
  return name;
}

std::string OnnxFile::integers(const std::vector<int64_t>& values) {
  std::string name = fmt::format("constant.{}", next_++);
  ProtoMessage tensor = tensor_head(name, kInt64, {std::ssize(values)});
  std::string raw(values.size() * sizeof(int64_t), '\0');
  std::memcpy(raw.data(), values.data(), raw.size());
  graph_.bytes(5, tensor.bytes(kRawData, raw).text());
  return name;
}

std::string OnnxFile::number(float value) {
  std::string name = fmt::format("constant.{}", next_++);
  ProtoMessage tensor = tensor_head(name, kFloat, {1});
  std::string raw(sizeof value, '\0');
  std::memcpy(raw.data(), &value, raw.size());
  graph_.bytes(5, tensor.bytes(kRawData, raw).text());
  return name;
}

std::string OnnxFile::add(const char* operation, const std::vector<std::string>& inputs,
                          std::initializer_list<Number> numbers, const std::vector<List>& lists) {
  return add_node(operation, "", inputs, numbers, lists);
}

std::string OnnxFile::lookup(const std::string& x, const std::vector<int64_t>& keys,
                             const std::vector<int64_t>& values, int64_t absent) {
  looks_up_ = true;
  return add_node("LabelEncoder", kLookupDomain, {x}, {{"default_int64", absent}},
                  {{"keys_int64s", keys}, {"values_int64s", values}});
}

std::string OnnxFile::add_node(const char* operation, std::string_view domain,
                               const std::vector<std::string>& inputs, std::initializer_list<Number> numbers,
                               const std::vector<List>& lists) {
  std::string made = fmt::format("{}.{}", operation, next_++);
  ProtoMessage node;
  for (const std::string& name : inputs) node.bytes(1, name);
  node.bytes(2, made).bytes(3, made).bytes(4, operation);
  for (const auto& [key, value] : numbers)
    node.bytes(5, ProtoMessage()
                      .bytes(1, key)
                      .number(3, static_cast<uint64_t>(value))
                      .number(20, kIntAttribute)
                      .text());
  for (const auto& [key, values] : lists) {
    ProtoMessage attribute;
    attribute.bytes(1, key);
    for (const int64_t value : values) attribute.number(8, static_cast<uint64_t>(value));
    node.bytes(5, attribute.number(20, kIntsAttribute).text());
  }
  if (!domain.empty()) node.bytes(7, domain);
  graph_.bytes(1, node.text());
  return made;
}

void OnnxFile::name_as(const std::string& output, const std::string& tensor) {
  graph_.bytes(1,
               ProtoMessage().bytes(1, tensor).bytes(2, output).bytes(3, output).bytes(4, "Identity").text());
}

void OnnxFile::write(const Write& write) const {
  ProtoMessage graph = graph_;
  graph.bytes(2, "recommender");
  size_t bytes = graph.text().size();
  std::vector<ProtoMessage> heads;  // the bytes before each weight's elements
  for (const Weight& weight : weights_) {
    const size_t numbers = static_cast<size_t>(weight.shape.elements()) * sizeof(float);
    ProtoMessage field;
    field.begin_bytes(5, weight.head.text().size() + numbers);
    heads.push_back(field);
    bytes += field.text().size() + weight.head.text().size() + numbers;
  }
  ProtoMessage model;
  model.number(1, 7).bytes(2, "trifold").bytes(8, ProtoMessage().number(2, 13).text());
  if (looks_up_) model.bytes(8, ProtoMessage().bytes(1, kLookupDomain).number(2, 2).text());
  for (const auto& [key, value] : notes_)
    model.bytes(14, ProtoMessage().bytes(1, key).bytes(2, value).text());
  model.begin_bytes(7, bytes);
  constexpr size_t kMost = (size_t{1} << 31) - 1;
  if (model.text().size() + bytes > kMost)
    bad_input("a file in the ONNX format has less than 2 GiB, but this model would take {:.2f} GiB",
              static_cast<double>(bytes) / (1 << 30));
  write(model.text());
  write(graph.text());
  std::vector<float> piece;
  for (size_t i = 0; i < weights_.size(); ++i) {
    const Weight& weight = weights_[i];
    write(heads[i].text());
    write(weight.head.text());
    const int64_t rows = weight.shape[0];
    const int64_t width = rows == 0 ? 0 : weight.shape.elements() / rows;
    const int64_t most = std::max<int64_t>(1, kPieceNumbers / std::max<int64_t>(1, width));
    for (int64_t first = 0; first < rows; first += most) {
      const int64_t count = std::min(most, rows - first);
      piece.resize(static_cast<size_t>(count * width));
      weight.read(first, count, piece.data());
      write({reinterpret_cast<const char*>(piece.data()), piece.size() * sizeof(float)});
    }
  }
}

}  // namespace trifold
