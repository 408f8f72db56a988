#include "models/folders/tokenizer_files.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "tokenize/chat/chat_template.h"
#include "tokenize/end_token.h"
#include "tokenize/tokenizer.h"
#include "tokenize/vocabulary_files.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 2> kSettings{"tokenizer_config.json", "special_tokens_map.json"};
constexpr std::array<const char*, 5> kNames{kTokenizerJson, kSentencePieceModel, kSettings[0], kSettings[1],
                                            kChatTemplateFile};
constexpr uintmax_t kMostBytes = uintmax_t{1} << 28;

bool holds(const std::vector<fs::path>& files, const char* name) {
  return std::any_of(files.begin(), files.end(),
                     [&](const fs::path& file) { return file.filename() == name; });
}

}  // namespace

std::vector<fs::path> tokenizer_files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  std::vector<const char*> names(kNames.begin(), kNames.end());
  names.push_back(kGenerationConfig);
  for (const char* name : names) {
    const fs::path file = folder / name;
    std::error_code error;
    if (!fs::exists(file, error)) continue;
    if (!fs::is_regular_file(file, error)) bad_input("{} is not a regular file", file.string());
    const uintmax_t bytes = fs::file_size(file, error);
    if (error || bytes > kMostBytes)
      bad_input("{} has {} bytes; a tokenizer file may have at most {}", file.string(), bytes, kMostBytes);
    files.push_back(file);
  }
  return files;
}

std::string name_tokenizer(const std::vector<fs::path>& files, DataConfig& data) {
  if (data.tokenizer_type == TokenizerType::Byte) return {};
  std::string problem;
  for (const auto& [type, name] : {std::pair(TokenizerType::HuggingFace, kTokenizerJson),
                                   {TokenizerType::SentencePiece, kSentencePieceModel}}) {
    if (!holds(files, name)) continue;
    const std::string path = (files.front().parent_path() / name).string();
    std::unique_ptr<Tokenizer> tokenizer;
    try {
      tokenizer = make_tokenizer(type, path, false, data.eod_token);
    } catch (const Error& error) {
      if (problem.empty()) problem = error.what();
      continue;
    }
    data.tokenizer_type = type;
    data.tokenizer_model = name;
    if (!data.eod_token && tokenizer->eod() && only_config_names_end(path, tokenizer->vocab_size()))
      data.eod_token = tokenizer->name_of_token(*tokenizer->eod());
    return {};
  }
  return problem;
}

std::vector<FileToWrite> tokenizer_files_of(const CheckpointReader& checkpoint, const DataConfig& data) {
  std::vector<FileToWrite> files;
  for (const FileInfo& file : checkpoint.manifest().files)
    if (file.role == FileInfo::Role::Attachment)
      files.push_back({checkpoint.directory() / file.name, file.name});
  const auto is_there = [&files](const std::string& name) {
    return std::any_of(files.begin(), files.end(),
                       [&](const FileToWrite& file) { return file.name == name; });
  };
  // A checkpoint of a run keeps its chat template, but not its tokenizer.
  if (is_there(kTokenizerJson) || is_there(kSentencePieceModel) || !data.tokenizer_model) return files;
  const auto name = [&]() -> const char* {
    switch (*data.tokenizer_type) {
      case TokenizerType::HuggingFace:
        return kTokenizerJson;
      case TokenizerType::Gpt2Bpe:
        return "vocab.json";
      case TokenizerType::WordPieceLower:
      case TokenizerType::WordPieceCased:
        return "vocab.txt";
      default:
        return kSentencePieceModel;
    }
  }();
  const fs::path model = *data.tokenizer_model;
  files.push_back({model, name});
  if (model.filename() == kTokenizerJson)  // with its settings, which transformers reads
    for (const char* settings : {kSettings[0], kSettings[1], kChatTemplateFile}) {
      std::error_code ignored;
      const fs::path beside = model.parent_path() / settings;
      if (!is_there(settings) && fs::is_regular_file(beside, ignored)) files.push_back({beside, settings});
    }
  if (data.tokenizer_type == TokenizerType::Gpt2Bpe)
    files.push_back({merges_beside(*data.tokenizer_model, data.tokenizer_merges), kMergesName});
  return files;
}

}  // namespace trifold
