#include "tokenize/precompiled_map.h"

#include <cstring>

#include "core/base64.h"
#include "core/error.h"
#include "tokenize/unicode/clusters.h"
#include "tokenize/unicode/unicode.h"

namespace trifold {

namespace {

constexpr size_t kLongestCluster = 5;  // bytes of a cluster that is replaced as a whole

// Fields of a unit of the double array.
constexpr bool has_leaf(uint32_t unit) { return (unit >> 8 & 1U) != 0; }
constexpr uint32_t value_of(uint32_t unit) { return unit & 0x7FFFFFFFU; }
constexpr uint32_t label_of(uint32_t unit) { return unit & 0x800000FFU; }
constexpr uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & 0x200U) >> 6); }

}  // namespace

PrecompiledMap::PrecompiledMap(std::string_view base64) {
  const std::optional<std::string> bytes = bytes_of_base64(base64);
  uint32_t size = 0;
  if (!bytes || bytes->size() < sizeof(size))
    bad_input("the precompiled_charsmap of its normalizer is no base64 of a map of characters");
  std::memcpy(&size, bytes->data(), sizeof(size));
  if (size == 0 || size % sizeof(uint32_t) != 0 || size > bytes->size() - sizeof(size))
    bad_input("the precompiled_charsmap of its normalizer has {} bytes, but says that its first part has {}",
              bytes->size(), size);
  trie_.resize(size / sizeof(uint32_t));
  std::memcpy(trie_.data(), bytes->data() + sizeof(size), size);
  replacements_ = bytes->substr(sizeof(size) + size);
  if (invalid_utf8(replacements_))
    bad_input("the precompiled_charsmap of its normalizer makes text that is not UTF-8");
}

// A position outside the array, which only a damaged map has, matches nothing.
std::optional<std::string_view> PrecompiledMap::find(std::string_view text) const {
  size_t at = offset_of(trie_[0]);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    at ^= byte;
    if (byte == 0 || at >= trie_.size() || label_of(trie_[at]) != byte) return std::nullopt;
    const uint32_t unit = trie_[at];
    at ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    if (at >= trie_.size()) return std::nullopt;
    const size_t begin = value_of(trie_[at]);
    if (begin > replacements_.size()) return std::nullopt;
    const std::string_view rest = std::string_view(replacements_).substr(begin);
    return rest.substr(0, rest.find('\0'));
  }
  return std::nullopt;
}

std::string PrecompiledMap::operator()(std::string_view text) const {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t end = cluster_end(text, at);
    const std::string_view cluster = text.substr(at, end - at);
    const auto whole = cluster.size() <= kLongestCluster ? find(cluster) : std::nullopt;
    if (whole) out += *whole;
    for (size_t next = at; !whole && at < end; at = next) {
      next_character(text, next);
      const std::string_view character = text.substr(at, next - at);
      out += find(character).value_or(character);
    }
    at = end;
  }
  return out;
}

}  // namespace trifold
