// HuggingFaceTokenizer reads a tokenizer.json of Hugging Face's `tokenizers` library: byte-level BPE (GPT-2, Llama 3,
// Qwen), BPE of characters and Unigram in SentencePiece's manner (Gemma, Mistral, XLM-R), and WordPiece (BERT). The ids
// equal the library's encode(text, add_special_tokens=False): tokens that a "post_processor" would put around a text,
// truncation and padding are left out, because training cuts the text itself. The texts of added tokens become these
// tokens wherever they occur; special ones only if SpecialTokensInText says so.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <variant>
#include <vector>

#include "tokenize/added_tokens.h"
#include "tokenize/byte_pairs.h"
#include "tokenize/pre_tokenizer.h"
#include "tokenize/text_normalizer.h"
#include "tokenize/token_decoder.h"
#include "tokenize/tokenizer.h"
#include "tokenize/unigram.h"
#include "tokenize/word_pieces.h"

namespace trifold {

struct TokenizerParts;

class HuggingFaceTokenizer : public Tokenizer {
 public:
  // BadInput, naming the file, if it is missing, is not a tokenizer.json, or is of an unsupported kind; the message
  // lists the supported kinds. A document ends with the token `end_token`, or by default with the token that
  // tokenize/end_token.h finds.
  explicit HuggingFaceTokenizer(const std::string& file,
                                const std::optional<std::string>& end_token = std::nullopt,
                                SpecialTokensInText special = SpecialTokensInText::Encode);
  // Makes the tokenizer from parts that other files hold (tokenize/vocabulary_files.h).
  HuggingFaceTokenizer(const TokenizerParts& parts, const std::optional<std::string>& end_token,
                       SpecialTokensInText special = SpecialTokensInText::Encode);

  int64_t vocab_size() const override { return std::ssize(tokens_); }
  std::optional<int32_t> eod() const override { return eod_; }
  void check_text(std::string_view text) const override;
  std::string fingerprint() const override { return fingerprint_; }
  size_t find_cut(std::string_view text, size_t from) const override;
  // BadInput for text that is not UTF-8, and with SpecialTokensInText::Refuse for the text of a special token.
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  void encode_piece(std::string_view text, PieceState& state, std::vector<int32_t>& ids) const override;
  // Special tokens are left out; invalid bytes become U+FFFD.
  std::string decode(std::span<const int32_t> ids) const override;
  bool is_part_of_character(int32_t id) const override;
  std::string name_of_token(int32_t id) const override { return tokens_[static_cast<size_t>(id)]; }
  std::string text_of_token(int32_t id) const override;

 private:
  // The parsed content of a tokenizer.json.
  struct Model;
  HuggingFaceTokenizer(const Model& model, const std::optional<std::string>& end_token,
                       SpecialTokensInText special);

  void name_tokens();  // BadInput for two tokens of one id
  std::optional<int32_t> id_of(const std::string& token) const;
  void find_end(const std::string& file, const std::optional<std::string>& end_token);
  // Whether pieces of a document are cut by trial (tokenize/trial_cuts.h) and not at lines.
  bool cuts_by_trial() const;
  std::vector<int32_t> ids_of(std::string_view text) const;
  void encode_part(std::string_view text, PieceState& state, std::vector<int32_t>& ids) const;
  void encode_words(std::string_view text, TextPlace place, std::vector<int32_t>& ids) const;
  const std::unordered_map<std::string, int32_t>& vocabulary() const;

  std::string fingerprint_;
  TextNormalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  std::variant<BytePairs, WordPieces, Unigram> model_;
  AddedTokens added_;
  bool refuses_;                     // special tokens in text
  std::vector<std::string> tokens_;  // [id] empty for an id without a token
  std::optional<int32_t> eod_;
  TokenDecoder decoder_;
};

}  // namespace trifold
