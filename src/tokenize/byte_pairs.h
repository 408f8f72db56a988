// BytePairs: byte-pair encoding (Sennrich et al., "Neural machine translation of rare words with subword units", 2016). A
// word starts as its bytes, as in GPT-2, or as its characters, as in SentencePiece's models; the adjacent pair that is
// first in a list of merges is merged, until the word contains no pair of the list.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace trifold {

class JsonView;

// The printable character that represents a byte in a vocabulary (GPT-2's table): for bytes 33..126, 161..172 and
// 174..255 the character with that code, for the other bytes the characters 256, 257, ... in order.
char32_t character_of_byte(uint8_t byte);
// The token of bytes in such a vocabulary.
std::string token_of_bytes(std::string_view bytes);
// The bytes of a token in such a vocabulary; a token with a character outside the table represents itself.
std::string bytes_of_token(std::string_view token);

// The token of a byte in a vocabulary of characters: "<0x41>".
std::string token_of_byte(uint8_t byte);

// The symbols with which a word starts.
enum class PairSymbols {
  Bytes,  // each written as character_of_byte
  Characters,  // one that is not in the vocabulary as its bytes "<0x00>" to "<0xFF>", if the model falls back to them
};
// Where the merges are.
enum class MergeOrder {
  Listed,  // in the model's "merges"
  ByRank,  // every pair of tokens that together are a token is a merge; the token with the lowest id is made first
};

class BytePairs {
 public:
  // `model` is the "model" of a tokenizer.json, of type BPE. BadInput for a merge of tokens that are not in the
  // vocabulary, and for options that such models do not have.
  BytePairs(const nlohmann::json& model, PairSymbols symbols, MergeOrder order);

  const std::unordered_map<std::string, int32_t>& vocabulary() const { return vocabulary_; }
  // Appends the ids of one word. Callable from several threads at a time.
  void encode(std::string_view word, std::vector<int32_t>& ids) const;

 private:
  struct Merge {
    int32_t rank;
    int32_t id;
  };

  void read_merges(const JsonView& merges);
  void make_merges();
  void find_symbols();
  std::optional<int32_t> find(const std::string& token) const;
  int32_t id_of(const std::string& token) const;
  const Merge* merge_of(int32_t left, int32_t right) const;
  void symbols_of(std::string_view word, std::vector<int32_t>& ids) const;
  void characters_of(std::string_view word, std::vector<int32_t>& ids) const;
  void merge(std::vector<int32_t>& ids) const;

  std::unordered_map<std::string, int32_t> vocabulary_;
  std::unordered_map<uint64_t, Merge> merges_;  // [both ids]
  PairSymbols symbols_;
  std::array<std::optional<int32_t>, 256> bytes_;     // their tokens; with Characters, "<0x00>" to "<0xFF>"
  std::unordered_map<char32_t, int32_t> characters_;  // only with Characters
  bool falls_back_ = false;
  std::optional<int32_t> unknown_;
  bool fuse_unknown_ = false;
  bool whole_words_ = false;  // a word in the vocabulary is one token without merging
  uint64_t instance_;         // key of this object's words in the shared cache
};

}  // namespace trifold
