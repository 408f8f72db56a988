// Safetensors, the file format in which Hugging Face's libraries store weights:
//
//   offset   bytes  content
//   0        8      u64 N, little-endian
//   8        N      JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...},
//                   optionally with "__metadata__": {"key": "text"}, and with spaces at the end
//   8 + N           the elements: row-major, little-endian; offsets count from here
//
// The tensors cover every byte after the header exactly once. A model is one file, model.safetensors, or
// several, listed in model.safetensors.index.json: {"metadata": ..., "weight_map": {"name": "file", ...}}.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "files/file.h"

namespace trifold {

inline constexpr std::string_view kSafetensorsName = "model.safetensors";
inline constexpr std::string_view kSafetensorsIndexName = "model.safetensors.index.json";

struct SafeTensor {
  std::string name;
  std::string dtype;  // the format's name: "F32", "BF16", "BOOL" ...
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // bytes after the header

  int64_t bytes() const { return end - begin; }
};

// The format's name of a type, and the type of a name; empty if there is no counterpart.
std::string_view safetensors_name(DType dtype);
std::optional<DType> dtype_of_safetensors(std::string_view name);

// Parses the header of a file with `data_bytes` bytes after it. Tensors are in the order of their bytes.
// Every mistake (a name twice, an unknown type, sizes that do not fit, gaps, overlaps) is a BadInput that
// starts with `where`.
std::vector<SafeTensor> parse_safetensors_header(std::string_view json, int64_t data_bytes,
                                                 const std::string& where);

// Reads an index: the file of each tensor. BadInput if it is not an index, or names a file outside its
// folder.
std::map<std::string, std::string> parse_safetensors_index(std::string_view json, const std::string& where);

// One file, open for reading.
class SafetensorsFile {
 public:
  // Throws BadInput, naming the file, if it is missing or damaged. Reads the header only.
  explicit SafetensorsFile(const std::filesystem::path& path);
  const std::filesystem::path& path() const { return file_.path(); }
  const std::vector<SafeTensor>& tensors() const { return tensors_; }
  // Reads bytes [offset, offset + bytes) of a tensor of this file.
  void read(const SafeTensor& tensor, int64_t offset, void* to, size_t bytes) const;
  // The checksum of the file's size and of about `blocks` blocks of 4 KiB.
  uint32_t digest(int64_t blocks) const;

 private:
  File file_;
  int64_t data_ = 0;  // offset of the elements
  std::vector<SafeTensor> tensors_;
};

// All tensors of a model, in one file or several.
class SafetensorsModel {
 public:
  struct Entry {
    const SafetensorsFile* file;
    const SafeTensor* tensor;
  };

  // `folder` must contain model.safetensors or an index. If it has both, model.safetensors is read: transformers leaves
  // the index of an earlier model in place. BadInput if it has neither, or if files and index disagree.
  explicit SafetensorsModel(const std::filesystem::path& folder);
  const std::map<std::string, Entry>& tensors() const { return tensors_; }
  size_t files() const { return files_.size(); }
  // The checksum of the files' sizes and of blocks of their bytes, which differs for models with other weights. Reads
  // at most 1 MiB, or four blocks of 4 KiB a file if that is more.
  uint32_t digest() const;
  bool ignores_index() const { return ignores_index_; }  // whether an index exists next to model.safetensors

 private:
  void add_file(const std::filesystem::path& path);

  bool ignores_index_ = false;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Entry> tensors_;
};

// Writes one file, whose tensors are known in advance; their elements may be written in any order.
class SafetensorsWriter {
 public:
  // Creates the file, which must not exist, and writes its header, with `made_by` in its metadata unless it is empty.
  // Sets the offsets of `tensors`.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<SafeTensor> tensors,
                    const std::string& made_by = {});
  // Writes bytes of tensor `index`, starting at byte `offset` of it.
  void write(size_t index, int64_t offset, const void* from, size_t bytes) const;
  // Call after the last byte: waits until everything is on the disk.
  void finish();

 private:
  File file_;
  int64_t data_ = 0;
  std::vector<SafeTensor> tensors_;
};

}  // namespace trifold
