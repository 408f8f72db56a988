#include "tokenize/tokenizer.h"

#include <sentencepiece_processor.h>

#include "core/error.h"
#include "core/printable.h"
#include "core/random.h"
#include "files/mapped_file.h"
#include "tokenize/end_token.h"
#include "tokenize/hugging_face_tokenizer.h"
#include "tokenize/tiktoken_files.h"
#include "tokenize/token_decoder.h"
#include "tokenize/trial_cuts.h"
#include "tokenize/vocabulary_files.h"

namespace trifold {

namespace {

constexpr int64_t kMostModelBytes = int64_t{64} << 20;

}  // namespace

std::string model_fingerprint(std::string_view kind, std::string_view content) {
  const PhiloxKey hash = philox_key(content.size(), content);
  return fmt::format("{} {:08x}{:08x}", kind, hash.hi, hash.lo);
}

void check_ids(std::span<const int32_t> ids, int64_t vocab_size) {
  for (int32_t id : ids) {
    if (id < 0 || id >= vocab_size)
      bad_input("token id {} is outside the vocabulary of {} tokens", id, vocab_size);
  }
}

void ByteTokenizer::check_text(std::string_view text) const {
  if (ends_documents_ && text.find('\0') != std::string_view::npos)
    bad_input("the text contains a byte 0, which is the byte tokenizer's end of a document: remove it");
}

void ByteTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  check_text(text);
  for (char c : text) ids.push_back(static_cast<unsigned char>(c));
}

std::string ByteTokenizer::decode(std::span<const int32_t> ids) const {
  check_ids(ids, vocab_size());
  std::string text;
  for (int32_t id : ids) text.push_back(static_cast<char>(id));
  return text;
}

SentencePieceTokenizer::SentencePieceTokenizer(const std::string& model_file,
                                               const std::optional<std::string>& end_token)
    : file_(model_file), processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()) {
  const MappedFile file(model_file);
  if (file.size() == 0) bad_input("{} is empty, not a SentencePiece model", model_file);
  if (file.size() > kMostModelBytes)
    bad_input("{} has {} bytes, more than the {} that a SentencePiece model may have", model_file,
              file.size(), kMostModelBytes);
  const std::string_view content = file.text();
  const auto status = processor_->LoadFromSerializedProto(content);
  if (!status.ok()) bad_input("{} is not a SentencePiece model: {}", model_file, status.ToString());
  fingerprint_ = model_fingerprint("sentencepiece", content);
  const auto id_of = [this](const std::string& token) -> std::optional<int32_t> {
    const int id = processor_->PieceToId(token);
    return processor_->IdToPiece(id) == token ? std::optional<int32_t>(id) : std::nullopt;
  };
  const int usual = processor_->eos_id();
  eod_ = find_end_token(model_file, end_token, {id_of, vocab_size()});
  if (!eod_ && usual >= 0) eod_ = usual;
  if (eod_ && *eod_ != usual) fingerprint_ += fmt::format(", {} ends a document", *eod_);
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

int64_t SentencePieceTokenizer::vocab_size() const { return processor_->GetPieceSize(); }

std::vector<int32_t> SentencePieceTokenizer::ids_of(std::string_view text) const {
  std::vector<int> pieces;
  const auto status = processor_->Encode(text, &pieces);
  check(status.ok(), "{}: encoding failed: {}", file_, status.ToString());
  return pieces;
}

size_t SentencePieceTokenizer::find_cut(std::string_view text, size_t from) const {
  const auto ids = [this](std::string_view part) { return ids_of(part); };
  return TrialCuts(ids).find_cut(text, from);
}

void SentencePieceTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  const std::vector<int32_t> pieces = ids_of(text);
  ids.insert(ids.end(), pieces.begin(), pieces.end());
}

void SentencePieceTokenizer::encode_piece(std::string_view text, PieceState& state,
                                          std::vector<int32_t>& ids) const {
  const auto ids_of_part = [this](std::string_view part) { return ids_of(part); };
  TrialCuts(ids_of_part).encode_piece(text, state, ids);
}

std::string SentencePieceTokenizer::decode(std::span<const int32_t> ids) const {
  check_ids(ids, vocab_size());
  std::string text;
  const auto status = processor_->Decode(std::vector<int>(ids.begin(), ids.end()), &text);
  check(status.ok(), "{}: decoding failed: {}", file_, status.ToString());
  return text;
}

std::string SentencePieceTokenizer::name_of_token(int32_t id) const { return processor_->IdToPiece(id); }

std::string SentencePieceTokenizer::text_of_token(int32_t id) const {
  return text_of_piece(name_of_token(id));
}

namespace {

const std::string& file_of(const DataConfig& data, std::string_view what) {
  if (!data.tokenizer_model)
    bad_input("--tokenizer-type {} needs --tokenizer-model FILE{}", name_of(*data.tokenizer_type), what);
  return *data.tokenizer_model;
}

TokenizerParts read_parts(const DataConfig& data) {
  const std::string& file = file_of(data, ", the vocabulary");
  switch (*data.tokenizer_type) {
    case TokenizerType::Gpt2Bpe:
      return read_gpt2_files(file, data.tokenizer_merges);
    case TokenizerType::Tiktoken:
      return read_tiktoken(
          file, {data.tiktoken_pattern, data.tiktoken_num_special_tokens, data.tiktoken_special_tokens});
    default:
      return read_word_pieces(file, data.tokenizer_type == TokenizerType::WordPieceLower);
  }
}

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const DataConfig& data, bool ends_documents) {
  const TokenizerType type = data.tokenizer_type.value_or(TokenizerType::Byte);
  const auto special = [&](SpecialTokensInText usual) { return data.special_tokens_in_text.value_or(usual); };
  if (data.special_tokens_in_text && (type == TokenizerType::Byte || type == TokenizerType::SentencePiece))
    bad_input(
        "--special-tokens-in-text {}: --tokenizer-type {} has no special tokens that a text can spell; leave it out",
        name_of(*data.special_tokens_in_text), name_of(type));
  switch (type) {
    case TokenizerType::Byte:
      if (data.eod_token)
        bad_input("--eod-token {}: the byte tokenizer ends documents with a byte 0; leave it out",
                  printable(*data.eod_token));
      if (data.tokenizer_model)
        bad_input("--tokenizer-model {}: the byte tokenizer has no model; leave it out",
                  *data.tokenizer_model);
      return std::make_unique<ByteTokenizer>(ends_documents);
    case TokenizerType::SentencePiece:
      return std::make_unique<SentencePieceTokenizer>(file_of(data, ""), data.eod_token);
    case TokenizerType::HuggingFace:
      return std::make_unique<HuggingFaceTokenizer>(file_of(data, ", a tokenizer.json"), data.eod_token,
                                                    special(SpecialTokensInText::Encode));
    case TokenizerType::Gpt2Bpe:
    case TokenizerType::WordPieceLower:
    case TokenizerType::WordPieceCased:
      return std::make_unique<HuggingFaceTokenizer>(read_parts(data), data.eod_token,
                                                    special(SpecialTokensInText::Encode));
    case TokenizerType::Tiktoken:
      return std::make_unique<HuggingFaceTokenizer>(read_parts(data), data.eod_token,
                                                    special(SpecialTokensInText::Refuse));
    case TokenizerType::Null:
      bad_input(
          "--tokenizer-type null: text needs a tokenizer; "
          "null is for data that are token ids already, .bin/.idx or --mock-data");
  }
  fail("an unknown type of tokenizer");
}

std::unique_ptr<Tokenizer> make_tokenizer(TokenizerType type, const std::optional<std::string>& model_file,
                                          bool ends_documents, const std::optional<std::string>& end_token) {
  DataConfig data;
  data.tokenizer_type = type;
  data.tokenizer_model = model_file;
  data.eod_token = end_token;
  return make_tokenizer(data, ends_documents);
}

}  // namespace trifold
