#include "convert/tensor_files.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <system_error>

#include "checkpoint/safetensors.h"
#include "core/error.h"
#include "core/read_json.h"
#include "files/scratch_folder.h"

namespace trifold {

namespace fs = std::filesystem;

TensorFiles::TensorFiles(std::span<const WrittenTensor> tensors, double gigabytes) : files_(1) {
  constexpr double kGigabyte = 1e9;
  const auto most = static_cast<int64_t>(gigabytes * kGigabyte);
  int64_t bytes = 0;  // the size of the last file
  for (const WrittenTensor& tensor : tensors) {
    if (!files_.back().empty() && bytes + tensor.bytes > most) {
      files_.emplace_back();
      bytes = 0;
    }
    files_.back().push_back(names_.size());
    names_.push_back(tensor.name);
    bytes += tensor.bytes;
    bytes_ += tensor.bytes;
  }
}

std::string TensorFiles::name(size_t file) const {
  if (files_.size() == 1) return std::string(kSafetensorsName);
  return fmt::format("model-{:05}-of-{:05}.safetensors", file + 1, files_.size());
}

void TensorFiles::write_index(const fs::path& folder) const {
  if (files_.size() == 1) return;
  nlohmann::ordered_json index;
  index["metadata"]["total_size"] = bytes_;
  for (size_t file = 0; file < files_.size(); ++file)
    for (const size_t tensor : files_[file]) index["weight_map"][names_[tensor]] = name(file);
  write_text(folder / kSafetensorsIndexName, json_text(index, 2) + "\n");
}

fs::path new_folder(const std::string& path) {
  const fs::path place = fs::path(path).has_filename() ? fs::path(path) : fs::path(path).parent_path();
  std::error_code ignored;
  if (fs::exists(place, ignored) && !(fs::is_directory(place, ignored) && fs::is_empty(place, ignored)))
    bad_input("{} already exists and is not empty: name a new folder", place.string());
  fs::create_directories(fs::absolute(end_of_links(place)).parent_path());
  return end_of_links(place);
}

}  // namespace trifold
