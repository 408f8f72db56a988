// Converts between checkpoints and the folders of Hugging Face's transformers library: config.json and safetensors
// files (models/hugging_face/families.inc lists the models). Weights only, no optimizer state.
#pragma once

#include <functional>
#include <string>

#include "checkpoint/reader.h"
#include "config/fields/config.h"
#include "models/folders/hugging_face_folder.h"
#include "models/hugging_face/hugging_face.h"
#include "run/model_folders.h"

namespace trifold {

struct Converted {
  std::string from, to;
  int64_t tensors = 0;  // tensors in the safetensors files
  int64_t files = 0;    // safetensors files
  int64_t bytes = 0;    // bytes of elements in `to`
  ModelConfig model;
  DataConfig data;                            // the tokenizer stored or named in `to`
  bool has_tokenizer_files = false;           // whether `to` has some
  std::string tokenizer_problem = {};         // why the stored tokenizer.json cannot be used here
  const HuggingFaceFamily* family = nullptr;  // the family in which `to` is written; null: none
};

// Writes the weights of a checkpoint to the folder config.save, which must be empty or not exist: config.json, and
// model.safetensors or, above config.max_file_size bytes, several files and their index. The folder gets its name once
// everything is on the disk. The tokenizer's files are written too (models/folders/tokenizer_files.h). family_for chooses
// the family. BadInput for a model that the library does not support.
Converted export_model(CheckpointReader& from, const ConvertConfig& config);

// Writes the adapters of a checkpoint to the folder config.save in the format of the peft library
// (models/adapters/peft_folder.h); the folder must be empty or not exist. `from` reads the adapters and the frozen weights.
Converted export_adapters(CheckpointReader& from, const ConvertConfig& config);

// Writes adapters in the format of the peft library as a checkpoint of step 0, with the place of their frozen weights.
// BadInput if config.save holds checkpoints of a run.
Converted import_adapters(const ConvertConfig& config);

// Writes the models of a run with --save-hf: as export_model does, with the run's --save-hf-dtype and
// --hugging-face-family.
WriteModel model_writer(const CheckpointConfig& config);

// BadInput if the folder belongs to a run, whose newer checkpoints readers would open instead. A conversion may be
// repeated.
void check_conversion_target(const std::string& save);

// Writes the checkpoint of step 0, weights only, under config.save, with the tokenizer's files and the ids of its
// special tokens. Elements have the type of the files, or are converted if config.dtype is given. BadInput that lists
// everything missing, unknown or of another shape, or if config.save holds checkpoints of a run. `warn` receives notes
// for the user.
//
// export_model and import_model take config.max_memory MiB beyond tables and the file cache.
Converted import_model(const ConvertConfig& config, const std::function<void(std::string)>& warn = {});

}  // namespace trifold
