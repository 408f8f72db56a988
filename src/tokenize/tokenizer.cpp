#include "tokenize/tokenizer.h"

#include <sentencepiece_processor.h>

#include <algorithm>

#include "core/error.h"
#include "core/printable.h"
#include "core/random.h"
#include "files/mapped_file.h"
#include "tokenize/document_encoder.h"
#include "tokenize/end_token.h"
#include "tokenize/hugging_face_tokenizer.h"
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

void ByteTokenizer::expect_one_document(std::string_view text) const {
  if (ends_documents_ && text.find('\0') != std::string_view::npos)
    bad_input("the text contains a byte 0, which is the byte tokenizer's end of a document: remove it");
}

void ByteTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  expect_one_document(text);
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

std::vector<int32_t> SentencePieceTokenizer::ids_after(const std::string& last, std::string_view text) const {
  const std::vector<int32_t> before = ids_of(last);
  std::vector<int32_t> both = ids_of(last + std::string(text));
  if (both.size() < before.size() || !std::equal(before.begin(), before.end(), both.begin()))
    return ids_of(text);
  both.erase(both.begin(), both.begin() + std::ssize(before));
  return both;
}

namespace {

// Whether a character begins at `at`, or the text ends there.
bool is_border(std::string_view text, size_t at) {
  return at >= text.size() || (static_cast<unsigned char>(text[at]) & 0xC0U) != 0x80U;
}

size_t begin_of_last_character(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0 && !is_border(text, --begin)) {
  }
  return begin;
}

}  // namespace

bool SentencePieceTokenizer::may_cut(std::string_view text, size_t at) const {
  constexpr size_t kAround = 256;  // bytes on each side
  size_t begin = at > kAround ? at - kAround : 0, end = std::min(at + kAround, text.size());
  while (!is_border(text, begin)) ++begin;
  while (!is_border(text, end)) ++end;
  const std::string_view left = text.substr(begin, at - begin), right = text.substr(at, end - at);
  std::vector<int32_t> cut = ids_of(left);
  const std::vector<int32_t> rest = ids_after(std::string(left.substr(begin_of_last_character(left))), right);
  cut.insert(cut.end(), rest.begin(), rest.end());
  return cut == ids_of(text.substr(begin, end - begin));
}

// A cut before a space or line end, as late as possible; else between any two characters.
size_t SentencePieceTokenizer::find_cut(std::string_view text, size_t from) const {
  constexpr size_t kSearched = size_t{1} << 16;
  constexpr int kMostTries = 64;
  if (text.size() < DocumentEncoder::kLongestPiece) return 0;  // the document may end within the piece
  const size_t least = std::max({from, text.size() - kSearched, size_t{1}});
  for (const bool between_words : {true, false}) {
    int tries = 0;
    for (size_t at = text.size() - 1; at >= least && tries < kMostTries; --at) {
      const bool fits = between_words ? (text[at] == ' ' || text[at] == '\n') && may_end_line(text[at - 1])
                                      : is_border(text, at);
      if (!fits) continue;
      if (may_cut(text, at)) return at;
      ++tries;
    }
  }
  return 0;
}

void SentencePieceTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  const std::vector<int32_t> pieces = ids_of(text);
  ids.insert(ids.end(), pieces.begin(), pieces.end());
}

void SentencePieceTokenizer::encode_piece(std::string_view text, PieceState& state,
                                          std::vector<int32_t>& ids) const {
  if (text.empty()) return;
  const std::vector<int32_t> pieces = state.last.empty() ? ids_of(text) : ids_after(state.last, text);
  ids.insert(ids.end(), pieces.begin(), pieces.end());
  state.last = text.substr(begin_of_last_character(text));
}

std::string SentencePieceTokenizer::decode(std::span<const int32_t> ids) const {
  check_ids(ids, vocab_size());
  std::string text;
  const auto status = processor_->Decode(std::vector<int>(ids.begin(), ids.end()), &text);
  check(status.ok(), "{}: decoding failed: {}", file_, status.ToString());
  return text;
}

std::string SentencePieceTokenizer::name_of_token(int32_t id) const { return processor_->IdToPiece(id); }

std::unique_ptr<Tokenizer> make_tokenizer(TokenizerType type, const std::optional<std::string>& model_file,
                                          bool ends_documents, const std::optional<std::string>& end_token,
                                          const std::optional<std::string>& merges_file) {
  switch (type) {
    case TokenizerType::Byte:
      if (end_token)
        bad_input("--eod-token {}: the byte tokenizer ends documents with a byte 0; leave it out",
                  printable(*end_token));
      if (model_file)
        bad_input("--tokenizer-model {}: the byte tokenizer has no model; leave it out", *model_file);
      return std::make_unique<ByteTokenizer>(ends_documents);
    case TokenizerType::SentencePiece:
      if (!model_file) bad_input("--tokenizer-type sentencepiece needs --tokenizer-model FILE");
      return std::make_unique<SentencePieceTokenizer>(*model_file, end_token);
    case TokenizerType::HuggingFace:
      if (!model_file)
        bad_input("--tokenizer-type huggingface needs --tokenizer-model FILE, a tokenizer.json");
      return std::make_unique<HuggingFaceTokenizer>(*model_file, end_token);
    case TokenizerType::Gpt2Bpe:
    case TokenizerType::WordPieceLower:
    case TokenizerType::WordPieceCased:
      if (!model_file)
        bad_input("--tokenizer-type {} needs --tokenizer-model FILE, the vocabulary", name_of(type));
      return std::make_unique<HuggingFaceTokenizer>(
          type == TokenizerType::Gpt2Bpe
              ? read_gpt2_files(*model_file, merges_file)
              : read_word_pieces(*model_file, type == TokenizerType::WordPieceLower),
          end_token);
    case TokenizerType::Null:
      bad_input(
          "--tokenizer-type null: text needs a tokenizer; "
          "null is for data that are token ids already, .bin/.idx or --mock-data");
  }
  fail("an unknown type of tokenizer");
}

std::unique_ptr<Tokenizer> make_tokenizer(const DataConfig& data, bool ends_documents) {
  return make_tokenizer(*data.tokenizer_type, data.tokenizer_model, ends_documents, data.eod_token,
                        data.tokenizer_merges);
}

}  // namespace trifold
