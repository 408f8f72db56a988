// The tokenizer files next to a model in Hugging Face's folder. `trifold convert` stores them in the checkpoint, and
// writes them next to an exported model.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/reader.h"
#include "config/fields/config.h"

namespace trifold {

inline constexpr const char* kTokenizerJson = "tokenizer.json";
inline constexpr const char* kSentencePieceModel = "tokenizer.model";
// How a model continues texts; it names the tokens with which the model ends one.
inline constexpr const char* kGenerationConfig = "generation_config.json";

// The tokenizer files in `folder`. BadInput for one that is not a regular file or is too large for a tokenizer.
std::vector<std::filesystem::path> tokenizer_files_in(const std::filesystem::path& folder);

// Sets the tokenizer in `data` to one of `files` (without folder): tokenizer.json, or tokenizer.model if tokenizer.json
// is missing or unsupported. Returns why tokenizer.json cannot be used; empty if it can, or is missing. A byte
// tokenizer in `data` is kept: the model was trained with it.
std::string name_tokenizer(const std::vector<std::filesystem::path>& files, DataConfig& data);

// The tokenizer files, with their names, to write next to a model exported from `checkpoint` with the tokenizer of
// `data`, and the settings next to a tokenizer.json.
struct FileToWrite {
  std::filesystem::path from;
  std::string name;
};
std::vector<FileToWrite> tokenizer_files_of(const CheckpointReader& checkpoint, const DataConfig& data);

}  // namespace trifold
