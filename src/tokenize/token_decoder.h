// TokenDecoder: the "decoder" of a Hugging Face tokenizer.json, which makes text of tokens.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tokenize/patterns/text_pattern.h"

namespace trifold {

class TokenDecoder {
 public:
  // `json` is the value of "decoder"; if null, tokens are joined with a space between them. BadInput for a kind that is
  // not one of ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip, WordPiece and Sequence, and for too many steps.
  explicit TokenDecoder(const nlohmann::json& json);

  std::string operator()(std::vector<std::string> tokens) const;
  // Whether tokens "<0x00>" to "<0xFF>" are bytes, which are characters together with their neighbours.
  bool joins_bytes() const;

 private:
  struct ByteLevel {};
  struct ByteFallback {};
  struct Fuse {};
  struct Replace {
    TextPattern pattern;
    std::string content;
  };
  struct Strip {
    char32_t content;
    int64_t start, stop;  // the most characters at the beginning and the end of a token
  };
  struct Metaspace {
    char32_t replacement;
    bool drops_first;  // the first token's stands for nothing
  };
  struct WordPiece {
    std::string prefix;
    bool clean_up;  // remove spaces before punctuation
  };
  using Step = std::variant<ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace, WordPiece>;

  void add(const nlohmann::json& json);
  static void apply(const ByteLevel& step, std::vector<std::string>& tokens);
  static void apply(const ByteFallback& step, std::vector<std::string>& tokens);
  static void apply(const Fuse& step, std::vector<std::string>& tokens);
  static void apply(const Replace& step, std::vector<std::string>& tokens);
  static void apply(const Strip& step, std::vector<std::string>& tokens);
  static void apply(const Metaspace& step, std::vector<std::string>& tokens);
  static void apply(const WordPiece& step, std::vector<std::string>& tokens);

  std::vector<Step> steps_;
  bool joins_with_spaces_ = false;
};

// The byte of a token "<0x41>"; absent for other tokens.
std::optional<unsigned char> byte_of_token(std::string_view token);

// The text of a token in a vocabulary of characters, in which U+2581 stands for a space and "<0x41>" for a byte.
std::string text_of_piece(std::string_view token);

}  // namespace trifold
