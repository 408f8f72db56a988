#include "tokenize/byte_pairs.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <queue>

#include "core/error.h"
#include "core/printable.h"
#include "core/read_json.h"
#include "tokenize/unicode/unicode.h"

namespace trifold {

namespace {

constexpr bool is_plain(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

// The byte of a character of the table; all of these are below 324.
std::optional<uint8_t> byte_of_character(char32_t c) {
  static const std::array<std::optional<uint8_t>, 324> kBytes = [] {
    std::array<std::optional<uint8_t>, 324> bytes;
    for (int b = 0; b < 256; ++b)
      bytes.at(character_of_byte(static_cast<uint8_t>(b))) = static_cast<uint8_t>(b);
    return bytes;
  }();
  return c < kBytes.size() ? kBytes.at(c) : std::nullopt;
}

uint64_t key_of(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

// A cache of encoded words: most of a text consists of few words.
struct WordMemory {
  static constexpr size_t kLongestWord = 48;
  static constexpr size_t kWords = size_t{1} << 15;
  struct Hash {
    using is_transparent = void;  // NOLINT(readability-identifier-naming): the standard's name
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  uint64_t instance = 0;
  std::unordered_map<std::string, std::vector<int32_t>, Hash, std::equal_to<>> words;
};

void refuse_options(const nlohmann::json& model, PairSymbols symbols) {
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const auto value = model.find(name);
    if (value != model.end() && value->is_string() && !value->get_ref<const std::string&>().empty())
      bad_input("its BPE model has a {}, \"{}\", which is not supported", name,
                printable(value->get<std::string>()));
  }
  if (symbols == PairSymbols::Bytes && JsonView(model, "model").flag("byte_fallback", false))
    bad_input("its BPE model falls back to bytes, but its words are bytes already (ByteLevel)");
  const auto dropout = model.find("dropout");
  if (dropout != model.end() && dropout->is_number() && dropout->get<double>() != 0)
    bad_input("its BPE model leaves out merges at random (dropout {}): set \"dropout\" to null",
              dropout->get<double>());
}

}  // namespace

char32_t character_of_byte(uint8_t byte) {
  static constexpr std::array<char32_t, 256> kCharacters = [] {
    std::array<char32_t, 256> characters{};
    char32_t other = 256;
    for (int b = 0; b < 256; ++b)
      characters.at(static_cast<size_t>(b)) = is_plain(b) ? static_cast<char32_t>(b) : other++;
    return characters;
  }();
  return kCharacters[byte];
}

std::string token_of_bytes(std::string_view bytes) {
  std::string token;
  for (const char c : bytes) append_character(token, character_of_byte(static_cast<uint8_t>(c)));
  return token;
}

std::string bytes_of_token(std::string_view token) {
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    const std::optional<uint8_t> byte = byte_of_character(next_character(token, at));
    if (!byte) return std::string(token);
    bytes.push_back(static_cast<char>(*byte));
  }
  return bytes;
}

std::string token_of_byte(uint8_t byte) { return fmt::format("<0x{:02X}>", byte); }

BytePairs::BytePairs(const nlohmann::json& model, PairSymbols symbols, MergeOrder order) : symbols_(symbols) {
  static std::atomic<uint64_t> instances{0};
  instance_ = ++instances;
  refuse_options(model, symbols);
  const JsonView view(model, "model");
  view.at("vocab").members([&](const std::string& token, const JsonView& id) {
    vocabulary_.emplace(token, static_cast<int32_t>(id.integer(0, std::numeric_limits<int32_t>::max())));
  });
  falls_back_ = view.flag("byte_fallback", false);
  if (order == MergeOrder::Listed)
    read_merges(view.at("merges"));
  else
    make_merges();
  find_symbols();
  const auto unknown = model.find("unk_token");
  if (unknown != model.end() && unknown->is_string()) unknown_ = id_of(unknown->get<std::string>());
  fuse_unknown_ = view.flag("fuse_unk", false);
  whole_words_ = view.flag("ignore_merges", false);
}

std::optional<int32_t> BytePairs::find(const std::string& token) const {
  const auto found = vocabulary_.find(token);
  return found == vocabulary_.end() ? std::nullopt : std::optional<int32_t>(found->second);
}

void BytePairs::find_symbols() {
  for (int b = 0; b < 256; ++b) {
    std::string token;
    if (symbols_ == PairSymbols::Bytes)
      append_character(token, character_of_byte(static_cast<uint8_t>(b)));
    else if (falls_back_)
      token = token_of_byte(static_cast<uint8_t>(b));
    bytes_.at(static_cast<size_t>(b)) = token.empty() ? std::nullopt : find(token);
  }
  if (symbols_ == PairSymbols::Bytes) return;
  for (const auto& [token, id] : vocabulary_) {
    if (token.empty() || token.size() > 4) continue;
    size_t end = 0;
    const char32_t character = next_character(token, end);
    if (end == token.size()) characters_.emplace(character, id);
  }
}

int32_t BytePairs::id_of(const std::string& token) const {
  const auto found = vocabulary_.find(token);
  if (found == vocabulary_.end())
    bad_input("its BPE model names \"{}\", which is not in its vocab", printable(token));
  return found->second;
}

// Reads merges, each "left right" or ["left", "right"].
void BytePairs::read_merges(const JsonView& merges) {
  int32_t rank = 0;
  merges.each([&](const JsonView& merge) {
    std::string left;
    std::string right;
    if (merge.value().is_string()) {
      const std::string text = merge.text();
      if (text.starts_with("#version")) return;
      const size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
        bad_input("merge {} of its BPE model, \"{}\", is not two tokens with one space between them", rank,
                  printable(text));
      left = text.substr(0, space);
      right = text.substr(space + 1);
    } else {
      left = merge.item(0).text();
      right = merge.item(1).text();
    }
    merges_.insert_or_assign(key_of(id_of(left), id_of(right)), Merge{rank, id_of(left + right)});
    ++rank;
  });
}

// Tokens are whole characters of the table, so a split inside one is no pair of tokens.
void BytePairs::make_merges() {
  merges_.reserve(4 * vocabulary_.size());
  for (const auto& [token, id] : vocabulary_)
    for (size_t at = 1; at < token.size(); ++at) {
      const auto left = find(token.substr(0, at));
      const auto right = left ? find(token.substr(at)) : std::nullopt;
      if (right) merges_.emplace(key_of(*left, *right), Merge{id, id});
    }
}

const BytePairs::Merge* BytePairs::merge_of(int32_t left, int32_t right) const {
  const auto found = merges_.find(key_of(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

// The ids of a word's bytes. Bytes that the vocabulary lacks become the unknown token, or nothing if there is none.
void BytePairs::symbols_of(std::string_view word, std::vector<int32_t>& ids) const {
  bool after_unknown = false;
  for (char c : word) {
    const std::optional<int32_t> id = bytes_.at(static_cast<unsigned char>(c));
    if (id) {
      ids.push_back(*id);
    } else if (unknown_ && !(fuse_unknown_ && after_unknown)) {
      ids.push_back(*unknown_);
    }
    after_unknown = !id;
  }
}

// The ids of a word's characters, and of the bytes of characters that the vocabulary lacks. An unknown token is added
// before the next character that the vocabulary has, as in Hugging Face's library.
void BytePairs::characters_of(std::string_view word, std::vector<int32_t>& ids) const {
  bool open = false;  // an unknown token is still to be added
  for (size_t at = 0; at < word.size();) {
    const size_t begin = at;
    const auto known = characters_.find(next_character(word, at));
    if (known != characters_.end()) {
      if (open) ids.push_back(*unknown_);
      open = false;
      ids.push_back(known->second);
      continue;
    }
    const std::string_view bytes = word.substr(begin, at - begin);
    const auto byte = [this](char c) { return bytes_.at(static_cast<unsigned char>(c)); };
    if (falls_back_ && std::all_of(bytes.begin(), bytes.end(), byte)) {
      for (const char c : bytes) ids.push_back(*byte(c));
    } else if (unknown_) {
      if (open && !fuse_unknown_) ids.push_back(*unknown_);
      open = true;
    }
  }
  if (open) ids.push_back(*unknown_);
}

// Applies the merges. The symbols are a linked list; a heap holds the possible merges, ordered by rank in the list,
// then from left to right. Entries that an earlier merge invalidated are discarded when they reach the top.
void BytePairs::merge(std::vector<int32_t>& ids) const {
  struct Symbol {
    int32_t id;
    int before;
    int after;
  };
  struct Candidate {
    int32_t rank;
    int at;
    int32_t id;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  const int count = static_cast<int>(ids.size());
  std::vector<Symbol> symbols;
  symbols.reserve(ids.size());
  for (int i = 0; i < count; ++i)
    symbols.push_back({ids[static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap;
  const auto symbol = [&](int i) -> Symbol& { return symbols[static_cast<size_t>(i)]; };
  const auto offer = [&](int i) {
    if (i < 0 || symbol(i).after < 0) return;
    if (const Merge* found = merge_of(symbol(i).id, symbol(symbol(i).after).id))
      heap.push({found->rank, i, found->id});
  };
  for (int i = 0; i < count; ++i) offer(i);
  while (!heap.empty()) {
    const Candidate top = heap.top();
    heap.pop();
    Symbol& left = symbol(top.at);
    if (left.id < 0 || left.after < 0) continue;
    Symbol& right = symbol(left.after);
    const Merge* now = merge_of(left.id, right.id);
    if (now == nullptr || now->id != top.id) continue;
    left.id = top.id;
    right.id = -1;  // gone
    left.after = right.after;
    if (left.after >= 0) symbol(left.after).before = top.at;
    offer(left.before);
    offer(top.at);
  }
  ids.clear();
  for (const Symbol& s : symbols)
    if (s.id >= 0) ids.push_back(s.id);
}

void BytePairs::encode(std::string_view word, std::vector<int32_t>& ids) const {
  static thread_local WordMemory memory;
  if (memory.instance != instance_ || memory.words.size() >= WordMemory::kWords) {
    memory.words.clear();
    memory.instance = instance_;
  }
  const auto known = memory.words.find(word);
  if (known != memory.words.end()) {
    ids.insert(ids.end(), known->second.begin(), known->second.end());
    return;
  }
  std::vector<int32_t> made;
  if (whole_words_) {
    const std::string token = symbols_ == PairSymbols::Bytes ? token_of_bytes(word) : std::string(word);
    if (const auto found = find(token)) made.push_back(*found);
  }
  if (made.empty()) {
    if (symbols_ == PairSymbols::Bytes)
      symbols_of(word, made);
    else
      characters_of(word, made);
    merge(made);
  }
  ids.insert(ids.end(), made.begin(), made.end());
  if (word.size() <= WordMemory::kLongestWord) memory.words.emplace(word, std::move(made));
}

}  // namespace trifold
