// Tokenizer converts text to token ids and token ids to text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/fields/config.h"
#include "tokenize/text_lines.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace trifold {

// The state that earlier pieces of a document leave for the next one.
struct PieceState {
  bool inside = false;  // the previous piece ended in plain text
  std::string last;     // its last character
};

// All functions are const and may be called from several threads at a time.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Ids are in [0, vocab_size()).
  virtual int64_t vocab_size() const = 0;
  // The id that ends a document, if the tokenizer has one.
  virtual std::optional<int32_t> eod() const = 0;
  // Whether a text may be cut anywhere and its parts encoded one by one. Otherwise a document is encoded in pieces as
  // large as possible (tokenize/document_encoder.h).
  virtual bool reads_lines() const { return false; }
  // A position in `text`, at least `from`, at which such a piece may end without changing the tokens; 0: none.
  virtual size_t find_cut(std::string_view text, size_t from) const {
    return find_line_cut(text, from, LineCut::AfterLineEnd);
  }
  // Whether tokens are bytes. Other tokenizers need text in UTF-8 (expect_utf8 in tokenize/unicode/unicode.h).
  virtual bool takes_bytes() const { return false; }
  // BadInput for a text that the tokenizer rejects as it is: one that contains the byte that ends documents, or a special
  // token that is refused. encode() throws the same, but knows only a piece of the text.
  virtual void check_text(std::string_view) const {}
  // Identifies the tokenizer: its kind, and a hash of the model's file.
  virtual std::string fingerprint() const = 0;
  // Appends the ids of `text` to `ids`.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
  // Appends the ids of the next piece of a text, cut by find_cut. `state` is the state after the earlier pieces (new
  // before the first) and is updated.
  virtual void encode_piece(std::string_view text, PieceState& /*state*/, std::vector<int32_t>& ids) const {
    encode(text, ids);
  }
  // The text of the ids. BadInput for an id outside the vocabulary.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  // Whether the token is a single byte whose text depends on the bytes around it, so that it is final only after the
  // next token that is none.
  virtual bool is_part_of_character(int32_t /*id*/) const { return false; }
  // The name of a token in the vocabulary, for --eod-token; empty if tokens have none.
  virtual std::string name_of_token(int32_t /*id*/) const { return {}; }
  // The bytes of a text that become the token, where the text is not changed before it is cut; a word's token may begin
  // with a space. Special tokens have their names. Empty if unknown.
  virtual std::string text_of_token(int32_t id) const { return name_of_token(id); }
};

// "<kind> <hash>" of the content of a model's file.
std::string model_fingerprint(std::string_view kind, std::string_view content);

// BadInput for an id outside [0, vocab_size).
void check_ids(std::span<const int32_t> ids, int64_t vocab_size);

// The 256 tokens are the bytes. If `ends_documents`, 0 ends a document, and a text that contains it is rejected
// (BadInput); otherwise no token ends a document.
class ByteTokenizer : public Tokenizer {
 public:
  explicit ByteTokenizer(bool ends_documents = false) : ends_documents_(ends_documents) {}

  int64_t vocab_size() const override { return 256; }
  bool reads_lines() const override { return true; }
  std::optional<int32_t> eod() const override {
    return ends_documents_ ? std::optional<int32_t>(0) : std::nullopt;
  }
  bool takes_bytes() const override { return true; }
  void check_text(std::string_view text) const override;
  std::string fingerprint() const override { return ends_documents_ ? "byte, 0 ends a document" : "byte"; }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  std::string text_of_token(int32_t id) const override { return {static_cast<char>(id)}; }

 private:
  bool ends_documents_;
};

// A SentencePiece model. Most models normalise Unicode and spaces and drop line ends, so decode(encode(text)) may
// differ from `text`. Documents are cut by trial (tokenize/trial_cuts.h).
class SentencePieceTokenizer : public Tokenizer {
 public:
  // BadInput, naming the file, if it is missing or not a SentencePiece model. A document ends with the token
  // `end_token`, or by default with the token that tokenize/end_token.h finds, or else with the model's.
  explicit SentencePieceTokenizer(const std::string& model_file,
                                  const std::optional<std::string>& end_token = std::nullopt);
  ~SentencePieceTokenizer() override;

  int64_t vocab_size() const override;
  std::optional<int32_t> eod() const override { return eod_; }
  std::string fingerprint() const override { return fingerprint_; }
  size_t find_cut(std::string_view text, size_t from) const override;
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  void encode_piece(std::string_view text, PieceState& state, std::vector<int32_t>& ids) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  std::string name_of_token(int32_t id) const override;
  std::string text_of_token(int32_t id) const override;

 private:
  std::vector<int32_t> ids_of(std::string_view text) const;
  std::string file_;
  std::string fingerprint_;
  std::optional<int32_t> eod_;
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
};

// The tokenizer that a configuration names; a byte tokenizer if it names no type. BadInput for a required model that is
// missing, or one that is given but not used. `ends_documents`: the byte tokenizer must have a token that ends
// documents; other tokenizers have one or not.
std::unique_ptr<Tokenizer> make_tokenizer(const DataConfig& data, bool ends_documents = false);
// A tokenizer by its type and file alone.
std::unique_ptr<Tokenizer> make_tokenizer(TokenizerType type, const std::optional<std::string>& model_file,
                                          bool ends_documents = false,
                                          const std::optional<std::string>& end_token = std::nullopt);

}  // namespace trifold
