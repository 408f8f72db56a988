#include "data/word_pieces.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace trifold {

namespace {

bool continues_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U; }

}  // namespace

WordPieces::WordPieces(const nlohmann::json& model)
    : prefix_(model.value("continuing_subword_prefix", "##")),
      longest_word_(model.value("max_input_chars_per_word", int64_t{100})) {
  for (const auto& [token, id] : model.at("vocab").items()) vocabulary_.emplace(token, id.get<int32_t>());
  const std::string unknown = model.value("unk_token", "[UNK]");
  const auto found = vocabulary_.find(unknown);
  if (found == vocabulary_.end()) bad_input("its unk_token \"{}\" is not in its vocab", unknown);
  unknown_ = found->second;
}

void WordPieces::encode(std::string_view word, std::vector<int32_t>& ids) const {
  const auto characters =
      std::count_if(word.begin(), word.end(), [](char c) { return !continues_character(c); });
  if (characters > longest_word_) return ids.push_back(unknown_);
  const size_t before = ids.size();
  std::string piece;
  for (size_t begin = 0; begin < word.size();) {
    piece = begin > 0 ? prefix_ : "";
    const size_t lead = piece.size();
    piece += word.substr(begin);
    auto found = vocabulary_.find(piece);
    while (found == vocabulary_.end() && piece.size() > lead) {
      while (continues_character(piece.back())) piece.pop_back();
      piece.pop_back();
      if (piece.size() > lead) found = vocabulary_.find(piece);
    }
    if (found == vocabulary_.end()) {
      ids.resize(before);
      return ids.push_back(unknown_);
    }
    ids.push_back(found->second);
    begin += piece.size() - lead;
  }
}

}  // namespace trifold
