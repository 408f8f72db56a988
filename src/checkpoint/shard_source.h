// ShardSource reads the elements of a checkpoint's tensors from its HDF5 files. Internal to CheckpointReader.
#pragma once

#include <filesystem>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/reader.h"
#include "files/file.h"

namespace trifold {

class ShardSource final : public TensorSource {
 public:
  ShardSource(std::filesystem::path directory, std::shared_ptr<const Manifest> manifest)
      : directory_(std::move(directory)), manifest_(std::move(manifest)) {}

  void read(std::span<const NamedTensor> wanted) override;

 private:
  File open_shard(int number);
  std::vector<KnownRegion> regions_of(int file) const;

  std::filesystem::path directory_;
  std::shared_ptr<const Manifest> manifest_;
  std::set<int> checked_;  // files whose size and frame are correct
};

// The tensor of that name; null if there is none.
const TensorInfo* stored_tensor(const Manifest& manifest, const std::string& name);
// The tensors in a file, for messages: "tensor param/a and 3 more".
std::string tensors_in(const Manifest& manifest, int file);

}  // namespace trifold
