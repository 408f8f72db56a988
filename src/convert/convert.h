// Converts between checkpoints and the folders of Hugging Face's transformers library: config.json and safetensors
// files (models/hugging_face/hugging_face.h lists the models). Weights only, no optimizer state.
#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <string>

#include "checkpoint/reader.h"
#include "config/fields/config.h"

namespace trifold {

struct Converted {
  std::string from, to;  // folders
  int64_t tensors = 0;   // of theirs
  int64_t files = 0;     // safetensors files
  int64_t bytes = 0;     // of elements, in `to`
  ModelConfig model;
  DataConfig data;                     // the tokenizer stored or named in `to`
  bool has_tokenizer_files = false;    // in `to`
  std::string tokenizer_problem = {};  // why the tokenizer.json that was kept is not usable here
};

// True if `folder` is one of transformers: it holds a config.json.
bool is_hugging_face_folder(const std::filesystem::path& folder);

// Writes the weights of a checkpoint to the folder config.save, which must not exist or be empty:
// config.json, and model.safetensors or, above config.max_file_size bytes, several files and their index. The folder
// gets its name once everything is on the disk. The files of the tokenizer are written too (convert/tokenizer_files.h).
// BadInput for a model that the library does not have.
Converted export_model(CheckpointReader& from, const ConvertConfig& config);

// Writes the checkpoint of step 0, weights only, under config.save. The files of the tokenizer and
// the ids of its special tokens are kept in it. Numbers are those of the files, converted if config.dtype is given.
// BadInput that lists everything missing, unknown or of another shape, or if config.save holds checkpoints of a run.
// `warn` gets further notes for the user.
//
// Both take config.max_memory MiB beyond tables and the file cache.
Converted import_model(const ConvertConfig& config, const std::function<void(std::string)>& warn = {});

// Added to config.json on export so that importing restores the same configuration: "trifold": {...}.
inline constexpr const char* kOwnFields = "trifold";

// Fields of config.json that do not concern the weights; kept in the checkpoint's state under kKeptFields.
inline constexpr std::array<const char*, 3> kTokenFields{"bos_token_id", "eos_token_id", "pad_token_id"};
inline constexpr const char* kKeptFields = "hugging_face";

}  // namespace trifold
