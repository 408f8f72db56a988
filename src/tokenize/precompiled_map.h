// PrecompiledMap: the "precompiled_charsmap" of a SentencePiece model, which replaces characters (NFKC and more). Hugging
// Face's `tokenizers` applies it to whole clusters of up to five bytes, then to characters.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trifold {

class PrecompiledMap {
 public:
  // `base64`: the map as it is written in a tokenizer.json. BadInput if it is not one.
  explicit PrecompiledMap(std::string_view base64);

  // `text` must be UTF-8.
  std::string operator()(std::string_view text) const;

 private:
  // What a text becomes that begins with a key of the map, the shortest such key; absent if there is none.
  std::optional<std::string_view> find(std::string_view text) const;

  std::vector<uint32_t> trie_;  // a double array as darts-clone writes it
  std::string replacements_;    // each ends with a byte 0
};

}  // namespace trifold
