#include "tokenize/unigram.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/printable.h"
#include "core/read_json.h"
#include "tokenize/byte_pairs.h"
#include "tokenize/unicode/unicode.h"

namespace trifold {

namespace {

// An unknown character is this much less likely than the least likely token.
constexpr double kUnknownPenalty = 10;

}  // namespace

Unigram::Unigram(const nlohmann::json& model) {
  const JsonView view(model, "model");
  double least = 0;
  view.at("vocab").each([&](const JsonView& entry) {
    const std::string token = entry.item(0).text();
    const double score = entry.item(1).number();
    const auto id = static_cast<int32_t>(scores_.size());
    if (!vocabulary_.emplace(token, id).second)
      bad_input("its Unigram model has the token \"{}\" more than once", printable(token));
    least = id == 0 ? score : std::min(least, score);
    scores_.push_back(score);
  });
  if (!view.has("unk_id"))
    bad_input("its Unigram model has no unk_id, which is needed for unknown characters");
  unknown_ = static_cast<int32_t>(view.at("unk_id").integer(0, std::ssize(scores_) - 1));
  unknown_score_ = least - kUnknownPenalty;
  falls_back_ = view.flag("byte_fallback", false);
  make_trie();
}

// The tokens in order, so that the tokens below a node are a range of them.
void Unigram::make_trie() {
  struct Range {
    uint32_t node;
    size_t begin, end, depth;
  };
  std::vector<std::pair<std::string_view, int32_t>> tokens(vocabulary_.begin(), vocabulary_.end());
  std::sort(tokens.begin(), tokens.end());
  nodes_.emplace_back();
  std::vector<Range> open{{0, 0, tokens.size(), 0}};
  for (size_t next = 0; next < open.size(); ++next) {
    auto [node, begin, end, depth] = open[next];
    if (begin < end && tokens[begin].first.size() == depth) nodes_[node].id = tokens[begin++].second;
    nodes_[node].first_edge = static_cast<uint32_t>(edges_.size());
    while (begin < end) {
      const char byte = tokens[begin].first[depth];
      size_t last = begin;
      while (last < end && tokens[last].first[depth] == byte) ++last;
      const auto child = static_cast<uint32_t>(nodes_.size());
      nodes_.emplace_back();
      edges_.push_back({static_cast<unsigned char>(byte), child});
      open.push_back({child, begin, last, depth + 1});
      begin = last;
    }
    nodes_[node].edges = static_cast<uint32_t>(edges_.size()) - nodes_[node].first_edge;
  }
  nodes_[0].id = -1;  // an empty token would end where it begins
}

const Unigram::Node* Unigram::child(const Node& node, char byte) const {
  const Edge* const begin = edges_.data() + node.first_edge;
  const Edge* const end = begin + node.edges;
  const auto wanted = static_cast<unsigned char>(byte);
  const Edge* const found =
      std::lower_bound(begin, end, wanted, [](const Edge& edge, unsigned char b) { return edge.byte < b; });
  return found != end && found->byte == wanted ? &nodes_[found->node] : nullptr;
}

// Unknown text that happens to be a token is that token.
void Unigram::add(std::string_view text, bool unknown, std::vector<int32_t>& ids) const {
  const auto found = vocabulary_.find(std::string(text));
  if (found != vocabulary_.end()) return ids.push_back(found->second);
  check(unknown, "a token of the Unigram model is not in its vocabulary");
  const size_t before = ids.size();
  for (const char c : text) {
    if (!falls_back_) break;
    const auto byte = vocabulary_.find(token_of_byte(static_cast<uint8_t>(c)));
    if (byte == vocabulary_.end()) {
      ids.resize(before);
      break;
    }
    ids.push_back(byte->second);
  }
  if (ids.size() == before) ids.push_back(unknown_);
}

// The best way to each position, from the beginning on; of equal ones the first, whose last token begins earliest.
void Unigram::encode(std::string_view word, std::vector<int32_t>& ids) const {
  struct Way {
    double score = 0;
    size_t begin = 0;  // begin of its last token
    int32_t id = -1;   // -1: there is no way
  };
  std::vector<Way> ways(word.size() + 1);
  const auto offer = [&](size_t begin, size_t end, double score, int32_t id) {
    Way& way = ways[end];
    if (way.id < 0 || score > way.score) way = {score, begin, id};
  };
  for (size_t begin = 0; begin < word.size();) {
    const double till_here = ways[begin].score;
    size_t after = begin;
    next_character(word, after);
    bool known = false;
    const Node* node = nodes_.data();
    for (size_t end = begin; end < word.size();) {
      node = child(*node, word[end]);
      if (node == nullptr) break;
      ++end;
      if (node->id < 0) continue;
      offer(begin, end, scores_[static_cast<size_t>(node->id)] + till_here, node->id);
      known = known || end == after;
    }
    if (!known) offer(begin, after, unknown_score_ + till_here, unknown_);
    begin = after;
  }
  std::vector<Way> tokens;  // from the last to the first; `score` is not used
  std::vector<size_t> ends;
  for (size_t end = word.size(); end > 0; end = tokens.back().begin) {
    const bool joins = !tokens.empty() && tokens.back().id == unknown_ && ways[end].id == unknown_;
    if (joins) {
      tokens.back().begin = ways[end].begin;
    } else {
      tokens.push_back(ways[end]);
      ends.push_back(end);
    }
  }
  for (size_t i = tokens.size(); i-- > 0;)
    add(word.substr(tokens[i].begin, ends[i] - tokens[i].begin), tokens[i].id == unknown_, ids);
}

}  // namespace trifold
