#include "tokenize/tiktoken_files.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <unordered_set>

#include "core/base64.h"
#include "core/error.h"
#include "core/plain_text.h"
#include "core/printable.h"
#include "core/read_json.h"
#include "files/mapped_file.h"
#include "tokenize/end_token.h"
#include "tokenize/tokenizer.h"

namespace trifold {

namespace {

constexpr JsonLimits kRankLimits{int64_t{128} << 20, 64, 8'000'000};
constexpr int64_t kMostRank = int64_t{1} << 24;
constexpr size_t kMostTokenBytes = 512;  // the longest token of the known files has 128
constexpr int64_t kMostSpecial = int64_t{1} << 16;
constexpr int64_t kSpecialOfMegatron = 1000;
constexpr int64_t kIdsOfMegatron = int64_t{1} << 17;
constexpr const char* kTiktokenJson = "tiktoken.json";

// The tokens of the file and where the others are from.
class Reader {
 public:
  Reader(const std::string& file, const TiktokenChoice& choice) : file_(file), choice_(choice) {}

  TokenizerParts read() {
    const MappedFile mapped(file_);
    const std::string_view text = mapped.text();
    expect_plain_text(text, file_);
    const size_t first = text.find_first_not_of(" \t\r\n");
    const char sign = first == std::string_view::npos ? '\0' : text[first];
    if (sign == '{')
      read_tekken(parse_json(text, file_, kRankLimits));
    else if (sign == '[')
      read_list_of_megatron(parse_json(text, file_, kRankLimits));
    else
      read_lines(text);
    expect_all_bytes(vocabulary_, file_);
    expect_distinct_special();
    return parts(text);
  }

 private:
  void add(const std::string& bytes, int64_t rank) {
    if (bytes.empty()) bad_input("{}: the token of rank {} has no bytes", file_, rank);
    if (bytes.size() > kMostTokenBytes)
      bad_input("{}: the token of rank {} has {} bytes; {} at most are possible", file_, rank, bytes.size(),
                kMostTokenBytes);
    if (!ranks_.insert(rank).second) bad_input("{} has two tokens of rank {}", file_, rank);
    if (!vocabulary_.emplace(token_of_bytes(bytes), first_rank_ + rank).second)
      bad_input("{}: the token of rank {} has the bytes of another", file_, rank);
    last_id_ = std::max(last_id_, first_rank_ + rank);
  }

  // That ids differ is checked for all tokens of a tokenizer together (HuggingFaceTokenizer).
  void expect_distinct_special() const {
    if (std::ssize(special_) > kMostSpecial)
      bad_input("{} has {} special tokens; {} at most are possible", file_, special_.size(), kMostSpecial);
    std::unordered_set<std::string> texts;
    JsonView(special_, file_).each([&](const JsonView& token) {
      const std::string text = token.at("content").text();
      if (text.empty()) bad_input("{} has a special token without a text", file_);
      if (!texts.insert(text).second) bad_input("{} has the special token {} twice", file_, printable(text));
      if (vocabulary_.contains(token_of_bytes(text)) || vocabulary_.contains(text))
        bad_input("{} has the special token {}, but a rank has this text already", file_, printable(text));
    });
  }

  void add_special(int64_t id, std::string_view text) { special_.push_back(special_token(id, text)); }

  // Names without a text for the ids below the first rank that have none.
  void fill_special() {
    std::unordered_set<int64_t> named;
    for (const nlohmann::json& token : special_) named.insert(token.at("id").get<int64_t>());
    for (int64_t id = 0; id < first_rank_; ++id)
      if (!named.contains(id)) add_special(id, fmt::format("<SPECIAL_{}>", id));
  }

  // The number of special tokens that the options give.
  int64_t special_of_choice(int64_t usual) const {
    const int64_t count = choice_.num_special_tokens.value_or(usual);
    if (count > kMostSpecial)
      bad_input("--tiktoken-num-special-tokens {}: {} at most are possible", count, kMostSpecial);
    return count;
  }

  // The special tokens before the first rank.
  void add_first_special(const std::vector<std::string>& texts) {
    if (std::ssize(texts) > first_rank_)
      bad_input("--tiktoken-special-tokens: {} tokens are more than --tiktoken-num-special-tokens {}",
                texts.size(), first_rank_);
    for (int64_t id = 0; id < std::ssize(texts); ++id) add_special(id, texts[static_cast<size_t>(id)]);
    fill_special();
  }

  void read_lines(std::string_view text) {
    first_rank_ = special_of_choice(0);
    each_line(text, file_, [&](std::string_view line, size_t number) {
      if (line.empty()) return;
      const size_t blank = line.find(' ');
      const auto bytes = bytes_of_base64(line.substr(0, std::min(blank, line.size())));
      const std::string_view digits =
          blank == std::string_view::npos ? std::string_view() : line.substr(blank + 1);
      int64_t rank = -1;
      const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
      if (!bytes || problem != std::errc() || end != digits.data() + digits.size() || rank < 0 ||
          rank > kMostRank)
        bad_input("{}:{}: '{}' is no token of tiktoken: bytes in base64, a blank and a rank are expected",
                  file_, number, printable(line, 60));
      add(*bytes, rank);
    });
    if (choice_.num_special_tokens) {
      add_first_special(choice_.special_tokens);
    } else if (!choice_.special_tokens.empty()) {
      int64_t id = last_id_;
      for (const std::string& token : choice_.special_tokens) add_special(++id, token);
    } else {
      read_special_beside();
    }
    pattern_ = choice_.pattern ? text_of_pattern(*choice_.pattern) : pattern_beside();
  }

  void read_special_beside() {
    const nlohmann::json config = json_beside(file_, kTiktokenJson);
    if (!config.is_object() || !config.contains("special_tokens")) return add_tokens_beside(file_, special_);
    JsonView(config, path_beside(file_, kTiktokenJson))
        .at("special_tokens")
        .members([&](const std::string& text, const JsonView& id) {
          add_special(id.integer(0, kMostRank), text);
        });
  }

  std::string pattern_beside() const {
    for (const char* name : {kTiktokenJson, kTokenizerConfig}) {
      const nlohmann::json config = json_beside(file_, name);
      if (config.is_object() && config.contains("pat_str"))
        return JsonView(config, path_beside(file_, name)).at("pat_str").text();
    }
    bad_input(
        "{} does not say how text is cut into words: give --tiktoken-pattern, or \"pat_str\" in a {} or {} next to it",
        file_, kTiktokenJson, kTokenizerConfig);
  }

  // Appends the tokens of a list of {"rank", "token_bytes", "token_str"}, of which only the first `most` are used.
  void read_list(const JsonView& list, int64_t most) {
    int64_t rank = 0;
    list.each([&](const JsonView& entry) {
      if (rank >= most) return;
      const auto bytes = bytes_of_base64(entry.at("token_bytes").text());
      if (!bytes || entry.at("rank").integer() != rank)
        bad_input("{}: the token {} of the list is not the one of rank {}, or no base64", file_, rank, rank);
      add(*bytes, rank++);
    });
  }

  void read_tekken(const nlohmann::json& json) {
    if (!json.contains("config") || !json.contains("vocab"))
      bad_input(
          "{} is no tekken.json of Mistral: an object with \"config\" and \"vocab\" is expected (a tokenizer.json is of "
          "--tokenizer-type huggingface)",
          file_);
    if (choice_.pattern || choice_.num_special_tokens || !choice_.special_tokens.empty())
      bad_input(
          "{} names its pattern and special tokens itself: leave out --tiktoken-pattern, --tiktoken-num-special-tokens "
          "and --tiktoken-special-tokens",
          file_);
    const JsonView view(json, file_), config = view.at("config");
    first_rank_ = config.at("default_num_special_tokens").integer(0, kMostSpecial);
    const int64_t all = config.at("default_vocab_size").integer(first_rank_, kMostRank);
    pattern_ = config.at("pattern").text();
    read_list(view.at("vocab"), all - first_rank_);
    if (last_id_ + 1 != all)
      bad_input("{} has {} tokens with the special ones, fewer than its default_vocab_size {}", file_,
                last_id_ + 1, all);
    if (view.has("special_tokens"))
      view.at("special_tokens").each([&](const JsonView& token) {
        add_special(token.at("rank").integer(0, kMostSpecial), token.at("token_str").text());
      });
    else
      add_special_of_old_tekken(config.text("version", "?"));
    if (std::ssize(special_) > first_rank_)
      bad_input("{} has {} special tokens, more than its default_num_special_tokens {}", file_,
                special_.size(), first_rank_);
    fill_special();
  }

  // Files up to version 7 do not list the special tokens.
  void add_special_of_old_tekken(const std::string& version) {
    constexpr const char* kTokens[] = {"<unk>",
                                       "<s>",
                                       "</s>",
                                       "[INST]",
                                       "[/INST]",
                                       "[AVAILABLE_TOOLS]",
                                       "[/AVAILABLE_TOOLS]",
                                       "[TOOL_RESULTS]",
                                       "[/TOOL_RESULTS]",
                                       "[TOOL_CALLS]",
                                       "[IMG]",
                                       "<pad>",
                                       "[IMG_BREAK]",
                                       "[IMG_END]",
                                       "[PREFIX]",
                                       "[MIDDLE]",
                                       "[SUFFIX]",
                                       "[SYSTEM_PROMPT]",
                                       "[/SYSTEM_PROMPT]",
                                       "[TOOL_CONTENT]"};
    if (version.size() != 2 || version[0] != 'v' || version[1] < '1' || version[1] > '7')
      bad_input("{} is of version {} and lists no special_tokens", file_, printable(version));
    int64_t id = 0;
    for (const char* token : kTokens) add_special(id++, token);
  }

  void read_list_of_megatron(const nlohmann::json& json) {
    if (!choice_.pattern)
      bad_input("{} does not say how text is cut into words: give --tiktoken-pattern", file_);
    pattern_ = text_of_pattern(*choice_.pattern);
    first_rank_ = special_of_choice(kSpecialOfMegatron);
    read_list(JsonView(json, file_), kIdsOfMegatron - first_rank_);
    add_first_special(
        choice_.special_tokens.empty()
            ? std::vector<std::string>{"<unk>", "<s>", "</s>", "<mask>", "<pad>", "<cls>", "<sep>"}
            : choice_.special_tokens);
  }

  TokenizerParts parts(std::string_view text) {
    TokenizerParts parts;
    parts.file = file_;
    parts.fingerprint = model_fingerprint("tiktoken", std::string(text) + pattern_ + json_text(special_));
    parts.merges = MergeOrder::ByRank;
    parts.dialect = PatternDialect::Rust;
    parts.json["added_tokens"] = std::move(special_);
    const nlohmann::json words = {
        {"type", "Split"}, {"pattern", {{"Regex", pattern_}}}, {"behavior", "Removed"}, {"invert", true}};
    const nlohmann::json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
    parts.json["pre_tokenizer"] = {{"type", "Sequence"},
                                   {"pretokenizers", nlohmann::json::array_t{words, bytes}}};
    parts.json["model"] = {{"type", "BPE"}, {"vocab", std::move(vocabulary_)}, {"ignore_merges", true}};
    return parts;
  }

  const std::string& file_;
  const TiktokenChoice& choice_;
  int64_t first_rank_ = 0;  // the id of the token of rank 0
  int64_t last_id_ = -1;
  std::unordered_set<int64_t> ranks_;
  nlohmann::json::object_t vocabulary_;
  nlohmann::json special_ = nlohmann::json::array();
  std::string pattern_;
};

}  // namespace

const char* text_of_pattern(TiktokenPattern pattern) {
  switch (pattern) {
    case TiktokenPattern::Gpt2:
      return R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)";
    case TiktokenPattern::Cl100k:
      return R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)";
    case TiktokenPattern::O200k:
      return R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
    case TiktokenPattern::Llama3:
      return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
    case TiktokenPattern::Qwen:
      return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
    case TiktokenPattern::Kimi:
      return R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
    case TiktokenPattern::V1:
      return R"([^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
    case TiktokenPattern::V2:
      return R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  }
  fail("an unknown pattern of tiktoken");
}

TokenizerParts read_tiktoken(const std::string& file, const TiktokenChoice& choice) {
  return Reader(file, choice).read();
}

}  // namespace trifold
