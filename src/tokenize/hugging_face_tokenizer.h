// HuggingFaceTokenizer: a tokenizer.json of Hugging Face's `tokenizers` library, of two kinds: byte-level BPE
// (GPT-2, Llama 3, Qwen) and WordPiece (BERT). The ids are those of the library's encode(text,
// add_special_tokens=False): tokens that a "post_processor" would put around a text, truncation and padding
// are left out, because training cuts the text itself. As in the library, the texts of special tokens become these
// tokens wherever they occur.
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
#include "tokenize/tokenizer.h"
#include "tokenize/word_pieces.h"

namespace trifold {

class HuggingFaceTokenizer : public Tokenizer {
 public:
  // BadInput, naming the file, when it is missing, is not a tokenizer.json, or is of an unsupported kind; the message
  // lists the supported ones.
  explicit HuggingFaceTokenizer(const std::string& file);

  int64_t vocab_size() const override { return std::ssize(tokens_); }
  // The token that ends a text by its name: <|endoftext|>, <|end_of_text|>, </s>, [SEP] or one like them.
  std::optional<int32_t> eod() const override { return eod_; }
  std::string fingerprint() const override { return fingerprint_; }
  bool reads_lines() const override { return false; }
  LineCut line_cut() const override { return pre_tokenizer_.line_cut(); }
  // BadInput for text that is not UTF-8.
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  void encode_piece(std::string_view text, bool& inside, std::vector<int32_t>& ids) const override;
  // Special tokens are left out; invalid bytes become U+FFFD.
  std::string decode(std::span<const int32_t> ids) const override;

 private:
  // The parsed content of a tokenizer.json.
  struct Model;
  explicit HuggingFaceTokenizer(const Model& model);

  void read_decoder(const nlohmann::json& decoder);
  void name_tokens();
  void encode_words(std::string_view text, bool goes_on, std::vector<int32_t>& ids) const;
  const std::unordered_map<std::string, int32_t>& vocabulary() const;
  std::string join_pieces(std::span<const int32_t> ids) const;

  std::string fingerprint_;
  TextNormalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  std::variant<BytePairs, WordPieces> model_;
  AddedTokens added_;
  std::vector<std::string> tokens_;  // by id; an id without a token has an empty one
  std::optional<int32_t> eod_;
  std::string piece_prefix_ = "##";
  bool clean_up_ = true;  // decoding WordPiece: no space before punctuation
};

}  // namespace trifold
