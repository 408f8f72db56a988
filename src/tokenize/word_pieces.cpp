#include "tokenize/word_pieces.h"

#include <algorithm>
#include <limits>
#include <set>

#include "core/error.h"
#include "core/printable.h"
#include "core/read_json.h"

namespace trifold {

namespace {

bool continues_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U; }

}  // namespace

WordPieces::WordPieces(const nlohmann::json& model)
    : prefix_(JsonView(model, "model").text("continuing_subword_prefix", "##")) {
  const JsonView view(model, "model");
  if (view.has("max_input_chars_per_word")) longest_word_ = view.at("max_input_chars_per_word").integer(0);
  std::set<size_t> sizes;
  view.at("vocab").members([&](const std::string& token, const JsonView& id) {
    vocabulary_.emplace(token, static_cast<int32_t>(id.integer(0, std::numeric_limits<int32_t>::max())));
    sizes.insert(token.size());
  });
  sizes_.assign(sizes.rbegin(), sizes.rend());
  const std::string unknown = view.text("unk_token", "[UNK]");
  const auto found = vocabulary_.find(unknown);
  if (found == vocabulary_.end()) bad_input("its unk_token \"{}\" is not in its vocab", printable(unknown));
  unknown_ = found->second;
}

// Tries only sizes of existing tokens, so a long word takes no longer than many short ones. Tokens consist of whole
// characters, so a match from a character's first byte ends at a character's end.
std::unordered_map<std::string, int32_t>::const_iterator WordPieces::longest_start(
    std::string_view rest, std::string_view lead) const {
  std::string piece(lead);
  piece += rest.substr(0, sizes_.empty() ? 0 : sizes_.front());
  for (const size_t size : sizes_) {
    if (size <= lead.size()) break;
    if (size > piece.size()) continue;
    piece.resize(size);
    if (const auto found = vocabulary_.find(piece); found != vocabulary_.end()) return found;
  }
  return vocabulary_.end();
}

void WordPieces::encode(std::string_view word, std::vector<int32_t>& ids) const {
  const auto characters =
      std::count_if(word.begin(), word.end(), [](char c) { return !continues_character(c); });
  if (characters > longest_word_) return ids.push_back(unknown_);
  const size_t before = ids.size();
  for (size_t begin = 0; begin < word.size();) {
    const std::string_view lead = begin > 0 ? std::string_view(prefix_) : std::string_view();
    const auto found = longest_start(word.substr(begin), lead);
    if (found == vocabulary_.end()) {
      ids.resize(before);
      return ids.push_back(unknown_);
    }
    ids.push_back(found->second);
    begin += found->first.size() - lead.size();
  }
}

}  // namespace trifold
