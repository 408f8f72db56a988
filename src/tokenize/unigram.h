// Unigram: a model that gives every token a log-probability (Kudo, "Subword regularization", 2018, as in SentencePiece).
// A word becomes the tokens whose probabilities have the largest product.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace trifold {

class Unigram {
 public:
  // `model` is the "model" of a tokenizer.json, of type Unigram. BadInput for an unk_id that is missing or is no token,
  // and for more than one token with the same text.
  explicit Unigram(const nlohmann::json& model);

  const std::unordered_map<std::string, int32_t>& vocabulary() const { return vocabulary_; }
  // Appends the ids of one word. Characters without a token are unknown, adjacent ones together one token; or their
  // bytes "<0x00>" to "<0xFF>", if the model falls back to them and has them all. Callable from several threads.
  void encode(std::string_view word, std::vector<int32_t>& ids) const;

 private:
  // A node of the trie of tokens: the children are a run of edges_ sorted by byte.
  struct Node {
    uint32_t first_edge = 0;
    uint32_t edges = 0;
    int32_t id = -1;  // the token that ends here
  };
  struct Edge {
    unsigned char byte;
    uint32_t node;
  };

  void make_trie();
  const Node* child(const Node& node, char byte) const;
  void add(std::string_view text, bool unknown, std::vector<int32_t>& ids) const;

  std::unordered_map<std::string, int32_t> vocabulary_;
  std::vector<double> scores_;  // [id]
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  double unknown_score_ = 0;
  int32_t unknown_ = 0;
  bool falls_back_ = false;
};

}  // namespace trifold
