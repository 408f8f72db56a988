// CheckpointReader loads any boxes of the tensors of a checkpoint, independently of the boxes in which they were
// stored.
//
// Everything is checked before it is used: the manifest by its own CRC, each shard file by its size and the CRC of the
// bytes that HDF5 wrote around the tensors, and every block of elements (kCrcBlock bytes) by its own CRC. Only the
// needed blocks are read, by their offsets, without HDF5; the view (view.h5) is never read. Reading is not collective;
// every rank may have its own reader.
//
// The elements come from a TensorSource. Folders of other formats with one of their own are read as checkpoints too
// (models/hugging_face/folder/open_model.h).
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/writer.h"

namespace trifold {

enum class FloatConversion { Refuse, Allow };

// Which checkpoint of a folder a reader opens.
enum class Newest {
  OrError,  // the newest; BadInput if it is damaged or missing
  Usable,   // the newest with a valid manifest, for callers that report the newer ones
};

// The result of verifying every byte of a checkpoint.
struct VerifyReport {
  int64_t files = 0;
  int64_t tensors = 0;
  int64_t bytes = 0;
  std::vector<std::string> problems;  // one sentence each
  bool ok() const { return problems.empty(); }
};

// Reads elements of tensors from files of one format.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  // Fills the data of every wanted box. The caller has checked that the tensor exists, that its shape is that of the
  // box, and that both types are equal or floating-point types. BadInput for a damaged file.
  virtual void read(std::span<const NamedTensor> wanted) = 0;

 protected:
  TensorSource() = default;
  TensorSource(const TensorSource&) = default;
  TensorSource& operator=(const TensorSource&) = default;
};

class CheckpointReader {
 public:
  // `named` is the directory of one checkpoint, a directory of checkpoints, or its file BEST, which names a checkpoint
  // (kBestName). In a directory of checkpoints `newest` decides which one is read. BadInput if there is none, or if the
  // directory's name is that of another step.
  explicit CheckpointReader(const std::filesystem::path& named, Newest newest = Newest::OrError);
  // Reads a folder of another format: `manifest` describes its tensors, without pieces, and its attachments, which lie in
  // the folder `attachments`, if it is not the same; `source` has the elements.
  CheckpointReader(std::filesystem::path directory, Manifest manifest, std::shared_ptr<TensorSource> source,
                   std::filesystem::path attachments = {});

  const std::filesystem::path& directory() const { return directory_; }
  // The folder of the attachments, and of all files that the state names without a folder.
  const std::filesystem::path& attachments() const {
    return attachments_.empty() ? directory_ : attachments_;
  }
  const CheckpointMeta& meta() const { return manifest_->meta; }
  const Manifest& manifest() const { return *manifest_; }
  const std::vector<TensorInfo>& tensors() const { return manifest_->tensors; }
  const TensorInfo* find(const std::string& name) const;  // null if there is none

  // Fills the data of every wanted box. The dtype must be that of the stored tensor or, if conversion is allowed, both
  // must be floating-point types (rounded to nearest). Throws one Error(BadInput) with everything that is missing or
  // does not fit before anything is read. A damaged file is also an Error(BadInput), which names file and tensor; the
  // data are then unspecified.
  void load(std::span<const NamedTensor> wanted, FloatConversion conversion = FloatConversion::Refuse);

  // A reader whose weights are the exponential averages of the weights (kAverageKind). BadInput if there are none.
  CheckpointReader with_averages() const;

  // Whether every file exists with its full size; reads none of them.
  bool files_are_complete() const;

  // Reads every byte of every file, the view included, and checks sizes and checksums.
  VerifyReport verify() const;

 private:
  void open_directory(const std::filesystem::path& directory);
  void open_newest(const std::filesystem::path& root, Newest newest);
  std::vector<std::string> problems_of(int file) const;

  std::filesystem::path directory_;
  std::filesystem::path attachments_;  // empty: directory_
  std::shared_ptr<const Manifest> manifest_;
  std::shared_ptr<TensorSource> source_;
};

// BadInput that lists the fields in which the models differ: "hidden_size: checkpoint 128, requested 256".
void compare_models(const nlohmann::json& stored, const nlohmann::json& wanted);

// The fields in which two JSON values differ, as "a.b: <left> 1, <right> 2".
std::vector<std::string> differing_fields(const nlohmann::json& left, const nlohmann::json& right,
                                          const std::string& left_name, const std::string& right_name);

}  // namespace trifold
