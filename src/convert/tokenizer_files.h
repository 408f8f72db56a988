// The files of a tokenizer that lie beside a model in Hugging Face's folder. `trifold convert` keeps them in
// the checkpoint, and writes them beside the model again.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/reader.h"
#include "config/fields/config.h"

namespace trifold {

inline constexpr const char* kTokenizerJson = "tokenizer.json";
inline constexpr const char* kSentencePieceModel = "tokenizer.model";

// Those that lie in `folder`. BadInput for one that is no regular file or larger than any tokenizer.
std::vector<std::filesystem::path> tokenizer_files_in(const std::filesystem::path& folder);

// Names the tokenizer among `files` in `data` (the name alone): tokenizer.json, or tokenizer.model where that
// is missing or of a kind that is not supported. Returns why the first cannot be used; empty where it can, or
// is not there. Bytes that `data` names stay: the model was trained with them.
std::string name_tokenizer(const std::vector<std::filesystem::path>& files, DataConfig& data);

// The files to write beside a model made of `checkpoint`, whose tokenizer is that of `data`, and their names.
struct FileToWrite {
  std::filesystem::path from;
  std::string name;
};
std::vector<FileToWrite> tokenizer_files_of(const CheckpointReader& checkpoint, const DataConfig& data);

}  // namespace trifold
