#include "models/folders/tokenizer_files.h"

#include <algorithm>
#include <array>

#include "config/subjects/text.h"
#include "core/error.h"
#include "core/read_json.h"
#include "files/file.h"
#include "models/folders/hugging_face_folder.h"
#include "tokenize/chat/chat_template.h"
#include "tokenize/end_token.h"
#include "tokenize/tokenizer.h"
#include "tokenize/vocabulary_files.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;

constexpr const char* kTekkenJson = "tekken.json";
constexpr const char* kTiktokenModel = "tiktoken.model";
constexpr const char* kTiktokenEnding = ".tiktoken";
constexpr const char* kVocabularyJson = "vocab.json";
constexpr const char* kVocabularyText = "vocab.txt";
constexpr const char* kTiktokenSettings = "tiktoken.json";
constexpr std::array kVocabularies{kTokenizerJson,  kTekkenJson, kSentencePieceModel, kTiktokenModel,
                                   kVocabularyJson, kMergesName, kVocabularyText,     kTiktokenSettings};
constexpr std::array kSettings{kTokenizerConfig, "special_tokens_map.json", kChatTemplateFile};
constexpr uintmax_t kMostBytes = uintmax_t{1} << 28;

bool is_vocabulary(const fs::path& file) {
  const std::string name = file.filename().string();
  return name.ends_with(kTiktokenEnding) ||
         std::find(kVocabularies.begin(), kVocabularies.end(), name) != kVocabularies.end();
}

bool holds(const std::vector<fs::path>& files, const char* name) {
  return std::any_of(files.begin(), files.end(),
                     [&](const fs::path& file) { return file.filename() == name; });
}

// A tokenizer that may be in the folder.
struct Candidate {
  TokenizerType type;
  std::string name;  // its file
};

std::vector<Candidate> candidates(const std::vector<fs::path>& files) {
  std::vector<Candidate> found;
  const auto add = [&](TokenizerType type, const char* name) {
    if (holds(files, name)) found.push_back({type, name});
  };
  add(TokenizerType::HuggingFace, kTokenizerJson);
  add(TokenizerType::Tiktoken, kTekkenJson);
  add(TokenizerType::SentencePiece, kSentencePieceModel);
  add(TokenizerType::Tiktoken, kSentencePieceModel);
  add(TokenizerType::Tiktoken, kTiktokenModel);
  for (const fs::path& file : files)
    if (file.extension() == kTiktokenEnding)
      found.push_back({TokenizerType::Tiktoken, file.filename().string()});
  if (holds(files, kMergesName)) add(TokenizerType::Gpt2Bpe, kVocabularyJson);
  add(TokenizerType::WordPieceLower, kVocabularyText);
  return found;
}

// The special tokens of the first Qwen, which its files do not list.
std::vector<std::string> special_tokens_of_qwen() {
  constexpr int kOthers = 205;
  std::vector<std::string> tokens{"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  for (int i = 0; i < kOthers; ++i) tokens.push_back(fmt::format("<|extra_{}|>", i));
  return tokens;
}

bool settings_have(const std::string& file, const char* settings, const char* field) {
  const nlohmann::json json = json_beside(file, settings);
  return json.is_object() && json.contains(field);
}

// What a file of base64 tokens and ranks leaves open. In transformers, code next to the file decides it.
void choose_tiktoken(const std::string& file, DataConfig& data) {
  if (settings_have(file, kTiktokenSettings, "pat_str") || settings_have(file, kTokenizerConfig, "pat_str"))
    return;
  const nlohmann::json config = json_beside(file, kTokenizerConfig);
  const std::string kind =
      config.is_object() ? JsonView(config, path_beside(file, kTokenizerConfig)).text("tokenizer_class", "")
                         : "";
  const bool qwen = kind == "QWenTokenizer" || fs::path(file).filename().string().starts_with("qwen");
  data.tiktoken_pattern = qwen                          ? TiktokenPattern::Qwen
                          : kind == "TikTokenTokenizer" ? TiktokenPattern::Kimi
                                                        : TiktokenPattern::Llama3;
  if (!qwen || settings_have(file, kTokenizerConfig, "added_tokens_decoder")) return;
  data.tiktoken_special_tokens = special_tokens_of_qwen();
  if (!data.eod_token) data.eod_token = data.tiktoken_special_tokens.front();
}

// BadInput for settings of a BERT that the types of tokenizers do not cover.
void choose_word_pieces(const std::string& file, DataConfig& data) {
  const nlohmann::json config = json_beside(file, kTokenizerConfig);
  if (!config.is_object()) return;
  const std::string where = path_beside(file, kTokenizerConfig);
  const JsonView view(config, where);
  const bool lower = view.flag("do_lower_case", true);
  if (!lower) data.tokenizer_type = TokenizerType::WordPieceCased;
  if (!view.flag("tokenize_chinese_chars", true) || view.flag("strip_accents", lower) != lower)
    bad_input("{}: only the usual tokenize_chinese_chars and strip_accents are supported without a {}", where,
              kTokenizerJson);
}

// The tokenizer's fields for a candidate; of those in `data` the ones that its file does not have.
DataConfig choice_of(const Candidate& candidate, const std::string& file, const DataConfig& data) {
  DataConfig made;
  made.tokenizer_type = candidate.type;
  made.tokenizer_model = file;
  made.eod_token = data.eod_token;
  if (candidate.type == TokenizerType::Tiktoken && candidate.name != kTekkenJson) {
    if (data.tokenizer_type == TokenizerType::Tiktoken && data.tiktoken_pattern) {
      copy_tokenizer(data, made);
      made.tokenizer_model = file;
    } else {
      choose_tiktoken(file, made);
    }
  }
  if (candidate.type == TokenizerType::WordPieceLower) choose_word_pieces(file, made);
  return made;
}

// The name under which transformers, or tiktoken, looks for the tokenizer's file.
std::string usual_name(const DataConfig& data) {
  const fs::path model = *data.tokenizer_model;
  switch (*data.tokenizer_type) {
    case TokenizerType::HuggingFace:
      return kTokenizerJson;
    case TokenizerType::Gpt2Bpe:
      return kVocabularyJson;
    case TokenizerType::WordPieceLower:
    case TokenizerType::WordPieceCased:
      return kVocabularyText;
    case TokenizerType::Tiktoken: {
      const std::string begin = first_bytes(model, 1);
      if (begin == "{") return kTekkenJson;
      const bool known = begin == "[" || model.filename() == kSentencePieceModel;
      return known || model.extension() == kTiktokenEnding ? model.filename().string() : kTiktokenModel;
    }
    default:
      return kSentencePieceModel;
  }
}

bool is_from_transformers(const CheckpointReader& checkpoint) {
  const nlohmann::json& state = checkpoint.meta().state;
  return state.is_object() && state.contains(kKeptFields);
}

}  // namespace

std::vector<fs::path> tokenizer_files_in(const fs::path& folder) {
  std::vector<fs::path> names(kVocabularies.begin(), kVocabularies.end());
  names.insert(names.end(), kSettings.begin(), kSettings.end());
  names.emplace_back(kGenerationConfig);
  std::error_code ignored;
  std::vector<fs::path> others;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().extension() == kTiktokenEnding) others.push_back(entry.path().filename());
  std::sort(others.begin(), others.end());
  names.insert(names.end(), others.begin(), others.end());
  std::vector<fs::path> files;
  for (const fs::path& name : names) {
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
  if (data.chat_template && holds(files, kChatTemplateFile)) data.chat_template = kChatTemplateFile;
  if (data.tokenizer_type == TokenizerType::Byte) return {};
  std::string problem;
  for (const Candidate& candidate : candidates(files)) {
    const std::string path = (files.front().parent_path() / candidate.name).string();
    DataConfig made;
    std::unique_ptr<Tokenizer> tokenizer;
    try {
      made = choice_of(candidate, path, data);
      tokenizer = make_tokenizer(made);
    } catch (const Error& error) {
      if (problem.empty()) problem = error.what();
      continue;
    }
    if (!made.eod_token && tokenizer->eod() && only_config_names_end(path, tokenizer->vocab_size()))
      made.eod_token = tokenizer->name_of_token(*tokenizer->eod());
    copy_tokenizer(made, data);
    data.tokenizer_model = candidate.name;
    return {};
  }
  return problem;
}

std::vector<FileToWrite> tokenizer_files_of(const CheckpointReader& checkpoint, const DataConfig& data) {
  std::vector<FileToWrite> files;
  for (const FileInfo& file : checkpoint.manifest().files)
    if (file.role == FileInfo::Role::Attachment)
      files.push_back({checkpoint.attachments() / file.name, file.name});
  const auto is_there = [&files](const fs::path& name) {
    return std::any_of(files.begin(), files.end(),
                       [&](const FileToWrite& file) { return file.name == name; });
  };
  // A checkpoint of a run keeps its chat template, but not its tokenizer.
  const bool has_vocabulary = std::any_of(files.begin(), files.end(),
                                          [](const FileToWrite& file) { return is_vocabulary(file.name); });
  if (has_vocabulary || !data.tokenizer_model) return files;
  const fs::path model = *data.tokenizer_model;
  files.push_back({model, usual_name(data)});
  if (data.tokenizer_type == TokenizerType::Gpt2Bpe)
    files.push_back({merges_beside(*data.tokenizer_model, data.tokenizer_merges), kMergesName});
  const auto add_beside = [&](const char* name) {
    std::error_code ignored;
    const fs::path beside = model.parent_path() / name;
    if (!is_there(name) && fs::is_regular_file(beside, ignored)) files.push_back({beside, name});
  };
  // transformers reads them only next to a file of the name that it knows.
  if (is_vocabulary(model))
    for (const char* settings : kSettings) add_beside(settings);
  if (is_vocabulary(model) && data.tokenizer_type == TokenizerType::Tiktoken) add_beside(kTiktokenSettings);
  if (is_from_transformers(checkpoint)) add_beside(kGenerationConfig);
  return files;
}

void name_files(const std::vector<FileToWrite>& files, DataConfig& data) {
  for (std::optional<std::string>* path :
       {&data.tokenizer_model, &data.tokenizer_merges, &data.chat_template}) {
    const auto written = std::find_if(files.begin(), files.end(),
                                      [&](const FileToWrite& file) { return *path && file.from == **path; });
    if (written != files.end()) *path = written->name;
  }
}

bool have_tokenizer(const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(), [](const std::string& name) { return is_vocabulary(name); });
}

}  // namespace trifold
