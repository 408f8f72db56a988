#include "graph/pt2/archive.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "core/error.h"
#include "core/printable.h"
#include "core/read_json.h"
#include "files/crc32.h"

namespace trifold::graph {

namespace {

constexpr int64_t kMostList = int64_t{64} << 20;    // bytes of a list of tensors
constexpr int64_t kMostModel = int64_t{256} << 20;  // bytes of a graph
constexpr int64_t kMostMark = 64;                   // bytes of a member that is a word
constexpr size_t kMostStoredDims = 32;
constexpr int64_t kMostExtent = int64_t{1} << 48;
constexpr int64_t kMostRepeated = int64_t{1}
                                  << 26;  // elements of a tensor with strides of 0, which takes little memory
constexpr int64_t kStrided = 7;           // PyTorch's number of the only layout that is read

struct NumberedType {
  int64_t number;
  ElementType type;
};
// The codes of types in such files, which differ from the codes in PyTorch's C++ library.
constexpr std::array kNumberedTypes{NumberedType{1, ElementType::U8},    NumberedType{2, ElementType::I8},
                                    NumberedType{3, ElementType::I16},   NumberedType{4, ElementType::I32},
                                    NumberedType{5, ElementType::I64},   NumberedType{6, ElementType::F16},
                                    NumberedType{7, ElementType::F32},   NumberedType{8, ElementType::F64},
                                    NumberedType{12, ElementType::Bool}, NumberedType{13, ElementType::BF16},
                                    NumberedType{28, ElementType::U16}};

// The folder of the archive, by the member that every such file has.
std::string folder_of(const ZipFile& zip) {
  constexpr std::string_view kMark = "/archive_format", kOlder = "serialized_exported_program.json",
                             kPickle = "/data.pkl";
  for (const ZipMember& member : zip.members()) {
    if (!member.name.ends_with(kMark)) continue;
    std::string folder = member.name.substr(0, member.name.size() - kMark.size() + 1);
    if (folder.find('/') + 1 == folder.size()) return folder;
  }
  for (const ZipMember& member : zip.members()) {
    if (member.name.ends_with(kOlder))
      bad_input("{} was written by a PyTorch older than 2.8: export the model again with a newer one",
                zip.path());
    if (member.name.ends_with(kPickle))
      bad_input(
          "{} is a file of torch.save or TorchScript: save the result of torch.export.export with "
          "torch.export.save",
          zip.path());
  }
  bad_input("{} is a zip archive, but not one of torch.export.save: it has no member 'archive_format'",
            zip.path());
}

std::string word(const ZipFile& zip, const std::string& name) {
  std::string text = zip.read(zip.at(name), kMostMark);
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

void expect_word(const ZipFile& zip, const std::string& name, std::string_view wanted) {
  const std::string found = word(zip, name);
  if (found != wanted)
    bad_input("{}: {} is '{}'; '{}' is needed", zip.path(), printable(name), printable(found), wanted);
}

std::string model_of(const ZipFile& zip, const std::string& folder) {
  const std::string begin = folder + "models/";
  constexpr std::string_view kEnd = ".json";
  std::vector<std::string> models;
  for (const ZipMember& member : zip.members())
    if (member.name.starts_with(begin) && member.name.ends_with(kEnd) &&
        member.name.size() > begin.size() + kEnd.size())
      models.push_back(member.name.substr(begin.size(), member.name.size() - begin.size() - kEnd.size()));
  if (models.empty()) bad_input("{} has no model: there is no member 'models/model.json'", zip.path());
  if (models.size() > 1 && std::find(models.begin(), models.end(), "model") == models.end())
    bad_input("{} has {} models, and none is named 'model': save one", zip.path(), models.size());
  return models.size() == 1 ? models.front() : "model";
}

// A list of sizes or strides: objects with one key, as_int.
std::vector<int64_t> constants(const JsonView& list, int64_t least) {
  std::vector<int64_t> values;
  if (list.size() > kMostStoredDims) list.refuse(fmt::format("a list of at most {} dims", kMostStoredDims));
  list.each([&](const JsonView& item) { values.push_back(item.at("as_int").integer(least, kMostExtent)); });
  return values;
}

// The elements from the first to one after the last, both as they lie in memory.
int64_t span_of(const StoredTensor& tensor) {
  int64_t last = 0;
  for (size_t dim = 0; dim < tensor.sizes.size(); ++dim) {
    int64_t step = 0;
    if (tensor.sizes[dim] == 0) return 0;
    if (__builtin_mul_overflow(tensor.sizes[dim] - 1, tensor.strides[dim], &step) ||
        __builtin_add_overflow(last, step, &last))
      bad_input("its strides are too large");
  }
  return last + 1;
}

// Checks that the elements are within a member of `member_bytes` bytes.
void check_within(const StoredTensor& tensor, int64_t member_bytes) {
  int64_t count = 1;
  for (const int64_t size : tensor.sizes)
    if (__builtin_mul_overflow(count, size, &count)) bad_input("its shape has too many elements");
  const int64_t stored = member_bytes / size_of(tensor.type);
  if (count > std::max(stored, kMostRepeated))
    bad_input("its shape has {} elements, but '{}' has {}", count, printable(tensor.member), stored);
  const int64_t span = span_of(tensor);
  if (span > stored || tensor.offset > stored - span)
    bad_input("its elements {} to {} are outside the {} of '{}'", tensor.offset, tensor.offset + span, stored,
              printable(tensor.member));
}

// Copies the elements of dims from `dim` on, the first of which is element `at` of `from`, to `to`, which is moved
// beyond them.
void gather(const StoredTensor& tensor, size_t dim, const std::byte* from, int64_t at, std::byte*& to) {
  const auto size = static_cast<size_t>(size_of(tensor.type));
  if (dim == tensor.sizes.size()) {
    std::memcpy(to, from + static_cast<size_t>(at) * size, size);
    to += size;
    return;
  }
  for (int64_t i = 0; i < tensor.sizes[dim]; ++i)
    gather(tensor, dim + 1, from, at + i * tensor.strides[dim], to);
}

bool is_contiguous(const StoredTensor& tensor) {
  int64_t stride = 1;
  for (size_t dim = tensor.sizes.size(); dim-- > 0;) {
    if (tensor.sizes[dim] != 1 && tensor.strides[dim] != stride) return false;
    stride *= tensor.sizes[dim];
  }
  return true;
}

}  // namespace

ElementType element_type(int64_t number, std::string_view what) {
  const auto* const row = std::find_if(kNumberedTypes.begin(), kNumberedTypes.end(),
                                       [&](const NumberedType& r) { return r.number == number; });
  if (row == kNumberedTypes.end())
    bad_input("{}: PyTorch's element type number {} (complex or 8-bit numbers, for example) is not supported",
              what, number);
  return row->type;
}

int64_t StoredTensor::elements() const {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

bool StoredTensor::same_memory(const StoredTensor& other) const {
  return member == other.member && offset == other.offset && type == other.type && sizes == other.sizes &&
         strides == other.strides;
}

Archive::Archive(const std::string& path) : zip_(path), folder_(folder_of(zip_)) {
  expect_word(zip_, folder_ + "archive_format", "pt2");
  expect_word(zip_, folder_ + "archive_version", "0");
  expect_word(zip_, folder_ + "byteorder", "little");
  model_ = model_of(zip_, folder_);
}

std::string Archive::model_where() const {
  return fmt::format("{}: models/{}.json", path(), printable(model_));
}

std::string Archive::digest() const {
  uint32_t crc = 0;
  for (const ZipMember& member : zip_.members()) {
    const std::string text =
        fmt::format("{} {} {:08x}\n", member.name.substr(folder_.size()), member.bytes, member.crc);
    crc = crc32_of(crc, text.data(), text.size());
  }
  return fmt::format("{:08x}", crc);
}

std::string Archive::model_text() const {
  return zip_.read(zip_.at(folder_ + "models/" + model_ + ".json"), kMostModel);
}

std::vector<StoredTensor> Archive::tensors() const {
  std::vector<StoredTensor> tensors;
  for (const std::string_view list : {"weights", "constants"}) add_tensors(list, tensors);
  std::sort(tensors.begin(), tensors.end(),
            [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
  for (size_t i = 1; i < tensors.size(); ++i)
    if (tensors[i - 1].name == tensors[i].name)
      bad_input("{} has two tensors '{}'", path(), printable(tensors[i].name));
  return tensors;
}

void Archive::add_tensors(std::string_view list, std::vector<StoredTensor>& tensors) const {
  const std::string name = fmt::format("{}data/{}/{}_{}_config.json", folder_, list, model_, list);
  const std::string where = fmt::format("{}: {}", path(), printable(name));
  const nlohmann::json whole = parse_json(zip_.read(zip_.at(name), kMostList), where);
  JsonView(whole, where).at("config").members([&](const std::string& tensor, const JsonView& entry) {
    try {
      tensors.push_back(parse_tensor(tensor, entry.value(), list));
      tensors.back().in_state_dict = list == "weights";
    } catch (Error& error) {
      error.add_context(fmt::format("{}: tensor '{}'", where, printable(tensor)));
      throw;
    }
  });
}

StoredTensor Archive::parse_tensor(const std::string& name, const nlohmann::json& entry,
                                   std::string_view list) const {
  const JsonView view(entry);
  const std::string file = view.at("path_name").text();
  if (view.flag("use_pickle", false))
    bad_input("it is stored as a pickle, which is not read: only plain tensors are");
  if (!view.has("tensor_meta"))
    bad_input("'{}' is not a tensor: models with objects of own classes are not supported", printable(file));
  const JsonView meta = view.at("tensor_meta");
  StoredTensor tensor;
  tensor.name = name;
  tensor.member = fmt::format("{}data/{}/{}", folder_, list, file);
  tensor.type = element_type(meta.at("dtype").integer(), "its type");
  if (const int64_t layout = meta.at("layout").integer(); layout != kStrided)
    bad_input("its layout has PyTorch's number {}: only dense tensors ({}) are supported", layout, kStrided);
  tensor.sizes = constants(meta.at("sizes"), 0);
  tensor.strides = constants(meta.at("strides"), 0);
  if (tensor.sizes.size() != tensor.strides.size())
    bad_input("it has {} sizes and {} strides", tensor.sizes.size(), tensor.strides.size());
  tensor.offset = meta.at("storage_offset").at("as_int").integer(0, kMostExtent);
  tensor.requires_grad = meta.flag("requires_grad", false);
  const ZipMember& member = zip_.at(tensor.member);
  if (member.deflated) bad_input("'{}' is compressed; tensors must be stored", printable(member.name));
  check_within(tensor, member.bytes);
  return tensor;
}

void Archive::read(const StoredTensor& tensor, std::span<std::byte> to) const {
  check(std::ssize(to) == tensor.bytes(), "{} bytes for a tensor of {}", to.size(), tensor.bytes());
  if (to.empty()) return;
  const ZipMember& member = zip_.at(tensor.member);
  const int64_t size = size_of(tensor.type);
  if (is_contiguous(tensor)) return zip_.read_stored(member, tensor.offset * size, to);
  std::vector<std::byte> memory(static_cast<size_t>(span_of(tensor) * size));
  zip_.read_stored(member, tensor.offset * size, memory);
  std::byte* at = to.data();
  gather(tensor, 0, memory.data(), 0, at);
}

void Archive::verify() const {
  for (const ZipMember& member : zip_.members())
    if (member.deflated)
      zip_.read(member, kMostModel);
    else
      zip_.verify(member);
}

}  // namespace trifold::graph
