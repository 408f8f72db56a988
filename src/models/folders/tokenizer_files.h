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

// The files that belong to a model's tokenizer, by name, with its chat template, and generation_config.json. BadInput for
// one that is not a regular file or is too large.
std::vector<std::filesystem::path> tokenizer_files_in(const std::filesystem::path& folder);

// Sets the tokenizer in `data` to the first of `files` (without folder) that can be used, in transformers' order:
//   tokenizer.json, tekken.json of Mistral, tokenizer.model (SentencePiece's, or tiktoken's), tiktoken.model,
//   *.tiktoken, vocab.json with merges.txt, vocab.txt.
// If nothing says how a file of tiktoken cuts text, the class in tokenizer_config.json does (Kimi's or Qwen's), or else it is
// cut as by Llama 3, as in transformers. Returns why the first of the files cannot be used if none can; empty if one can,
// or if there is none. A byte tokenizer in `data` is kept: the model was trained with it. A chat template
// of `data` becomes the one among `files`, if there is one.
std::string name_tokenizer(const std::vector<std::filesystem::path>& files, DataConfig& data);

// The tokenizer files, with their names, to write next to a model exported from `checkpoint` with the tokenizer of
// `data`, and the settings next to them; generation_config.json too if the model came from transformers.
struct FileToWrite {
  std::filesystem::path from;
  std::string name;
};
std::vector<FileToWrite> tokenizer_files_of(const CheckpointReader& checkpoint, const DataConfig& data);

// Names the files of `data` that are among `files` as they are written, without a folder.
void name_files(const std::vector<FileToWrite>& files, DataConfig& data);

// Whether one of the files, without folders, is a tokenizer's and not only settings.
bool have_tokenizer(const std::vector<std::string>& names);

}  // namespace trifold
