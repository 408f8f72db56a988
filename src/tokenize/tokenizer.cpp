#include "tokenize/tokenizer.h"

#include <sentencepiece_processor.h>

#include "core/error.h"
#include "core/random.h"
#include "files/mapped_file.h"
#include "tokenize/hugging_face_tokenizer.h"

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

SentencePieceTokenizer::SentencePieceTokenizer(const std::string& model_file)
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
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

int64_t SentencePieceTokenizer::vocab_size() const { return processor_->GetPieceSize(); }

std::optional<int32_t> SentencePieceTokenizer::eod() const {
  const int id = processor_->eos_id();
  return id < 0 ? std::nullopt : std::optional<int32_t>(id);
}

void SentencePieceTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  std::vector<int> pieces;
  const auto status = processor_->Encode(text, &pieces);
  check(status.ok(), "{}: encoding failed: {}", file_, status.ToString());
  ids.insert(ids.end(), pieces.begin(), pieces.end());
}

std::string SentencePieceTokenizer::decode(std::span<const int32_t> ids) const {
  check_ids(ids, vocab_size());
  std::string text;
  const auto status = processor_->Decode(std::vector<int>(ids.begin(), ids.end()), &text);
  check(status.ok(), "{}: decoding failed: {}", file_, status.ToString());
  return text;
}

std::unique_ptr<Tokenizer> make_tokenizer(TokenizerType type, const std::optional<std::string>& model_file,
                                          bool ends_documents) {
  switch (type) {
    case TokenizerType::Byte:
      if (model_file)
        bad_input("--tokenizer-model {}: the byte tokenizer has no model; leave it out", *model_file);
      return std::make_unique<ByteTokenizer>(ends_documents);
    case TokenizerType::SentencePiece:
      if (!model_file) bad_input("--tokenizer-type sentencepiece needs --tokenizer-model FILE");
      return std::make_unique<SentencePieceTokenizer>(*model_file);
    case TokenizerType::HuggingFace:
      if (!model_file)
        bad_input("--tokenizer-type huggingface needs --tokenizer-model FILE, a tokenizer.json");
      return std::make_unique<HuggingFaceTokenizer>(*model_file);
  }
  fail("an unknown type of tokenizer");
}

}  // namespace trifold
