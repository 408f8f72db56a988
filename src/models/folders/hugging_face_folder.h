// HuggingFaceFolder is a model in a folder of Hugging Face's transformers library: config.json and safetensors files
// (models/hugging_face/families.inc lists the models), checked against each other. It holds the files open; their
// elements are read by FolderSource (models/folders/open_model.h).
#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "config/fields/config.h"
#include "models/folders/tensor_rows.h"
#include "models/hugging_face/hugging_face.h"

namespace trifold {

// The key of the fields that export adds to config.json so that import restores the same configuration: "trifold":
// {...}.
inline constexpr const char* kOwnFields = "trifold";

// Fields of config.json that do not concern the weights; stored in the checkpoint's state under kKeptFields.
inline constexpr std::array<const char*, 3> kTokenFields{"bos_token_id", "eos_token_id", "pad_token_id"};
inline constexpr const char* kKeptFields = "hugging_face";
// The field of both that names the family.
inline constexpr const char* kFamilyField = "model_type";

// Whether `folder` is one of transformers': it has a config.json and is neither a checkpoint nor a folder of them.
// BadInput if it is both, with safetensors files too, or if it has a model.safetensors alone.
bool is_hugging_face_folder(const std::filesystem::path& folder);

class HuggingFaceFolder {
 public:
  // Reads config.json and the headers of the safetensors files; compares tensors that transformers ties. BadInput that
  // lists everything missing, unknown, of another shape or unsupported. `warn` receives notes for the user.
  explicit HuggingFaceFolder(const std::filesystem::path& folder,
                             const std::function<void(std::string)>& warn = {});
  HuggingFaceFolder(const HuggingFaceFolder&) = delete;
  HuggingFaceFolder& operator=(const HuggingFaceFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const ModelConfig& model() const { return model_; }
  const HuggingFaceFamily& family() const { return *family_; }
  // The tokenizer that our own export recorded, by its name in the folder; unset in other folders.
  const DataConfig& data() const { return data_; }
  // What a checkpoint keeps under kKeptFields.
  const nlohmann::json& kept() const { return kept_; }

  // The parameters, and for each part of a parameter the tensor with its rows.
  const std::vector<WeightMap>& maps() const { return maps_; }
  const std::vector<std::vector<FolderTensor>>& parts() const { return parts_; }
  // The types of the weights that may have 16 bits: at least one.
  const std::set<std::string>& types() const { return types_; }
  int64_t tensors() const { return tensors_; }  // tensors that the model uses
  size_t files() const { return files_->files(); }
  uint32_t digest_of_files() const { return files_->digest(); }

 private:
  void find_weights();

  std::filesystem::path path_;
  ModelConfig model_;
  const HuggingFaceFamily* family_;
  DataConfig data_;
  nlohmann::json kept_;
  std::unique_ptr<SafetensorsModel> files_;
  std::map<std::string, std::string> stand_ins_;  // for a missing tensor, the tensor that replaces it
  std::vector<WeightMap> maps_;
  std::vector<std::vector<FolderTensor>> parts_;
  std::set<std::string> types_;
  int64_t tensors_ = 0;
  int64_t skipped_ = 0;  // tensors of layers that are left out
};

}  // namespace trifold
