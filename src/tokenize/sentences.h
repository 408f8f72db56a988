// SentenceTokens holds plain text as tokens, with the borders of its documents and sentences. Documents are separated
// by blank lines. A line is a sentence, or, with `split_lines`, is split at ends of sentences: '.', '!' or '?',
// optional closing quotes or brackets, then white space. This rule knows no abbreviations ("Dr. Brown" becomes two
// sentences); for better results put one sentence on a line.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/interval.h"
#include "tokenize/tokenizer.h"

namespace trifold {

// The sentences of one line, without the white space around them.
std::vector<std::string_view> sentences_of_line(std::string_view line, bool split);

class SentenceTokens {
 public:
  struct Options {
    bool split_lines = false;
    bool words = false;  // record where words begin
  };
  explicit SentenceTokens(Options options) : options_(options) {}

  // Adds a file. All its tokens are held in memory, 4 bytes each. Documents without a token are left out. To record
  // words, a SentencePiece model is given the words one by one, which changes the tokens only if the model has pieces
  // that cross white space. With bytes, a word is a run of letters and digits, a run of non-ASCII bytes, or any other
  // single byte. BadInput if the file cannot be read, or is not UTF-8 and `tokenizer` needs UTF-8.
  void add(const std::string& path, const Tokenizer& tokenizer);

  int64_t documents() const { return static_cast<int64_t>(first_sentence_.size()) - 1; }
  Interval sentences(int64_t document) const {
    const auto at = static_cast<size_t>(document);
    return {first_sentence_[at], first_sentence_[at + 1]};
  }
  // The first token of a sentence, which is the end of the previous one; also valid for the index after the last.
  int64_t begin(int64_t sentence) const { return first_token_[static_cast<size_t>(sentence)]; }
  std::span<const int32_t> tokens() const { return tokens_; }
  bool starts_word(int64_t token) const { return word_start_[static_cast<size_t>(token)]; }

 private:
  void add_sentence(std::string_view text, const Tokenizer& tokenizer);
  void end_document();

  Options options_;
  std::vector<int32_t> tokens_;
  std::vector<bool> word_start_;  // empty unless words are recorded
  std::vector<int64_t> first_token_{0};
  std::vector<int64_t> first_sentence_{0};
};

}  // namespace trifold
