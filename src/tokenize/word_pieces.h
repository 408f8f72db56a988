// WordPieces: BERT's word model (Devlin et al., "BERT: pre-training of deep bidirectional transformers", 2019): a word
// is cut, from its beginning, into the longest pieces in the vocabulary. Pieces that do not begin a word have the
// prefix "##".
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace trifold {

class WordPieces {
 public:
  // `model` is the "model" of a tokenizer.json, of type WordPiece. BadInput if its unknown token is not in its
  // vocabulary.
  explicit WordPieces(const nlohmann::json& model);

  const std::unordered_map<std::string, int32_t>& vocabulary() const { return vocabulary_; }
  // Appends the ids of one word: the unknown token alone if the word has a part that no piece covers, or more
  // characters than the model accepts.
  void encode(std::string_view word, std::vector<int32_t>& ids) const;

 private:
  // The longest token that consists of `lead` and a non-empty prefix of `rest`.
  std::unordered_map<std::string, int32_t>::const_iterator longest_start(std::string_view rest,
                                                                         std::string_view lead) const;

  std::unordered_map<std::string, int32_t> vocabulary_;
  std::vector<size_t> sizes_;  // sizes of tokens in bytes, largest first
  std::string prefix_;
  int32_t unknown_ = 0;
  int64_t longest_word_ = 100;  // characters
};

}  // namespace trifold
