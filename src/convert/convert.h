// Converting between checkpoints and the folders that Hugging Face's transformers library reads and writes:
// config.json and safetensors files (models/hugging_face.h says which models). Weights only; neither holds
// another's optimizer state.
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
  DataConfig data;                     // the tokenizer that is in `to` or named there
  bool has_tokenizer_files = false;    // in `to`
  std::string tokenizer_problem = {};  // why the tokenizer.json that was kept cannot be used here
};

// True where `folder` is what transformers writes: it holds a config.json.
bool is_hugging_face_folder(const std::filesystem::path& folder);

// Writes the weights of a checkpoint to the folder config.save, which must not exist or be empty:
// config.json, model.safetensors, or several files and their index where there are more than
// config.max_file_size bytes. The folder gets its name when all is on the disk. The files of the tokenizer
// are written too (convert/tokenizer_files.h). BadInput for a checkpoint of a model that the library lacks.
Converted export_model(CheckpointReader& from, const ConvertConfig& config);

// Writes the checkpoint of step 0, weights only, under config.save. The files of the tokenizer and
// the ids of its special tokens are kept in it. Every number is that of the files,
// converted where config.dtype says so. BadInput that lists what is missing, not known or of another shape,
// and where config.save holds checkpoints of a run. `warn` gets what the user should know besides.
//
// Both take config.max_memory MiB beyond tables and the file cache.
Converted import_model(const ConvertConfig& config, const std::function<void(std::string)>& warn = {});

// What is added to config.json for a model of ours, so that it comes back as it was: "trifold": {...}.
inline constexpr const char* kOwnFields = "trifold";

// Fields of config.json that say nothing about the weights: kept in the checkpoint's state as kKeptFields.
inline constexpr std::array<const char*, 3> kTokenFields{"bos_token_id", "eos_token_id", "pad_token_id"};
inline constexpr const char* kKeptFields = "hugging_face";

}  // namespace trifold
