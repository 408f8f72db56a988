// The manifest: the table of contents of a checkpoint. A directory without a valid manifest is not a
// checkpoint. docs/checkpoint_format.md describes the file; this header is its form in memory.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "mesh/rect.h"

namespace trifold {

inline constexpr int kCheckpointVersion = 2;
inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr std::string_view kViewName = "view.h5";
inline constexpr std::string_view kLatestName = "LATEST";
inline constexpr std::string_view kBestName =  // names the best checkpoint (--save-best)
    "BEST";  // names the best checkpoint, as LATEST names the latest (--save-best)

// The state, other than tensors, that a run needs to continue. The JSON values are stored unchanged and not interpreted
// here.
struct CheckpointMeta {
  int64_t step = 0;              // training steps done
  int64_t consumed_samples = 0;  // the position in the data, the same on every mesh
  nlohmann::json model;          // the parts that must agree for the tensors to fit; see compare_models
  nlohmann::json mesh;           // the mesh that wrote it; any other mesh can read it
  nlohmann::json config;         // the options of the run
  nlohmann::json state;          // anything else a run keeps (loss scale, tokenizer, ...)
};

constexpr int64_t kCrcBlock = int64_t{1} << 20;  // bytes

struct FileInfo {
  enum class Role { Shard, View, Attachment };  // Attachment: a file of the model, such as a tokenizer.json
  std::string name;                             // path within the directory of the checkpoint
  Role role = Role::Shard;
  int64_t bytes = 0;
  uint32_t crc = 0;        // CRC of the whole file
  uint32_t frame_crc = 0;  // CRC of the bytes, in order, that HDF5 wrote around the elements of tensors
};

// One box of a tensor: one contiguous dataset of one shard file.
struct PieceInfo {
  Rect rect;
  int file = 0;             // index into Manifest::files
  int64_t byte_offset = 0;  // offset of its first element in the file
  uint32_t crc = 0;         // CRC of its elements, little-endian, row-major
  // CRC of each kCrcBlock bytes of the elements, so that a part can be read and checked without the rest; empty if
  // there is only one block.
  std::vector<uint32_t> blocks;
};

struct TensorInfo {
  std::string name;
  DType dtype = DType::F32;
  Shape global;
  std::vector<PieceInfo> pieces;  // together contain every element exactly once

  int64_t bytes() const { return global.elements() * static_cast<int64_t>(size_of(dtype)); }
};

struct Manifest {
  std::string save_id;  // random, unique to this save
  std::string run_id;   // identity of its run (checkpoint/run_identity.h); empty in older checkpoints
  CheckpointMeta meta;
  std::vector<FileInfo> files;
  std::vector<TensorInfo> tensors;  // ordered by name
};

// The text of manifest.json; its last field is the CRC32 of all text before that number.
std::string to_text(const Manifest& manifest);

// Parses and checks the whole text: its CRC, every field, that offsets and sizes fit, and that every tensor is covered
// exactly. Every mistake is an Error(BadInput) that starts with `where`.
Manifest parse_manifest(std::string_view text, const std::string& where);

// "/param/norm.weight/at_0_128": the path of the dataset of one box in its shard file.
std::string dataset_path(const std::string& tensor, const Rect& rect);

// Throws unless `name` can be a path in HDF5 files: parts of letters, digits, '.', '_' and '-', separated by
// '/'.
void check_tensor_name(const std::string& name);

// Throws if two names are equal or one is a folder of another ("a" and "a/b"), which HDF5 could not
// represent.
void check_distinct_names(const std::vector<TensorInfo>& tensors_by_name);

// The dtype named `name`; an Error(BadInput) if it is unknown.
DType dtype_named(std::string_view name);

}  // namespace trifold
