#include "tokenize/token_decoder.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/printable.h"
#include "core/read_json.h"
#include "tokenize/byte_pairs.h"
#include "tokenize/text_normalizer.h"
#include "tokenize/unicode/unicode.h"

namespace trifold {

namespace {

constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

// Removes spaces before punctuation and English contractions.
void tidy(std::string& text) {
  static const std::array<std::array<std::string_view, 2>, 11> kPairs{{{" .", "."},
                                                                       {" ?", "?"},
                                                                       {" !", "!"},
                                                                       {" ,", ","},
                                                                       {" ' ", "'"},
                                                                       {" n't", "n't"},
                                                                       {" 'm", "'m"},
                                                                       {" do not", " don't"},
                                                                       {" 's", "'s"},
                                                                       {" 've", "'ve"},
                                                                       {" 're", "'re"}}};
  for (const auto& [from, to] : kPairs) replace_all(text, from, to);
}

char32_t character_in(const JsonView& view, const char* name) {
  const std::string text = view.at(name).text();
  size_t end = 0;
  const char32_t character = text.empty() ? 0 : next_character(text, end);
  if (text.empty() || end != text.size())
    bad_input("the {} of its decoder, \"{}\", is not one character", name, printable(text));
  return character;
}

}  // namespace

std::optional<unsigned char> byte_of_token(std::string_view token) {
  static constexpr std::string_view kDigits = "0123456789ABCDEF";
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  unsigned value = 0;
  for (const char c : token.substr(3, 2)) {
    const size_t digit = kDigits.find(c >= 'a' && c <= 'f' ? static_cast<char>(c - 'a' + 'A') : c);
    if (digit == std::string_view::npos) return std::nullopt;
    value = 16 * value + static_cast<unsigned>(digit);
  }
  return static_cast<unsigned char>(value);
}

std::string text_of_piece(std::string_view token) {
  if (const auto byte = byte_of_token(token)) return {static_cast<char>(*byte)};
  std::string text(token);
  replace_all(text, "\xE2\x96\x81", " ");
  return text;
}

TokenDecoder::TokenDecoder(const nlohmann::json& json) : joins_with_spaces_(json.is_null()) {
  if (!json.is_null()) add(json);
}

void TokenDecoder::add(const nlohmann::json& json) {
  const JsonView view(json, "decoder");
  const std::string type = view.at("type").text();
  if (steps_.size() > kMostTokenizerSteps)
    bad_input("its decoder has more than {} steps", kMostTokenizerSteps);
  if (type == "Sequence") {
    for (const nlohmann::json& part : view.at("decoders").list()) add(part);
  } else if (type == "ByteLevel") {
    steps_.emplace_back(ByteLevel{});
  } else if (type == "ByteFallback") {
    steps_.emplace_back(ByteFallback{});
  } else if (type == "Fuse") {
    steps_.emplace_back(Fuse{});
  } else if (type == "Replace") {
    steps_.emplace_back(
        Replace{TextPattern::of_json(view.at("pattern").value(), PatternDialect::Ruby, "decoder"),
                view.at("content").text()});
  } else if (type == "Strip") {
    steps_.emplace_back(
        Strip{character_in(view, "content"), view.at("start").integer(0), view.at("stop").integer(0)});
  } else if (type == "Metaspace") {
    const std::string scheme =
        view.text("prepend_scheme", view.flag("add_prefix_space", true) ? "always" : "never");
    steps_.emplace_back(Metaspace{character_in(view, "replacement"), scheme != "never"});
  } else if (type == "WordPiece") {
    steps_.emplace_back(WordPiece{view.text("prefix", "##"), view.flag("cleanup", true)});
  } else {
    bad_input(
        "its decoder \"{}\" is not supported; ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip, "
        "WordPiece and Sequence are",
        printable(type));
  }
}

bool TokenDecoder::joins_bytes() const {
  return std::any_of(steps_.begin(), steps_.end(),
                     [](const Step& step) { return std::holds_alternative<ByteFallback>(step); });
}

void TokenDecoder::apply(const ByteLevel&, std::vector<std::string>& tokens) {
  std::string bytes;
  for (const std::string& token : tokens) bytes += bytes_of_token(token);
  tokens = {replace_invalid_utf8(bytes)};
}

// Adjacent bytes are text if they are UTF-8 together; otherwise each byte becomes U+FFFD.
void TokenDecoder::apply(const ByteFallback&, std::vector<std::string>& tokens) {
  std::vector<std::string> made;
  std::string bytes;
  const auto flush = [&] {
    if (bytes.empty()) return;
    if (!invalid_utf8(bytes)) {
      made.push_back(bytes);
    } else {
      for (size_t i = 0; i < bytes.size(); ++i) made.emplace_back(kReplacementCharacter);
    }
    bytes.clear();
  };
  for (std::string& token : tokens) {
    if (const auto byte = byte_of_token(token)) {
      bytes.push_back(static_cast<char>(*byte));
    } else {
      flush();
      made.push_back(std::move(token));
    }
  }
  flush();
  tokens = std::move(made);
}

void TokenDecoder::apply(const Fuse&, std::vector<std::string>& tokens) {
  std::string all;
  for (const std::string& token : tokens) all += token;
  tokens = {std::move(all)};
}

void TokenDecoder::apply(const Replace& step, std::vector<std::string>& tokens) {
  PatternMatcher matcher(step.pattern);
  for (std::string& token : tokens) token = replace_matches(matcher, token, step.content);
}

// As in the library, the two ends of a token that is stripped altogether do not overlap.
void TokenDecoder::apply(const Strip& step, std::vector<std::string>& tokens) {
  for (std::string& token : tokens) {
    size_t begin = 0;
    for (int64_t i = 0; i < step.start && begin < token.size(); ++i) {
      size_t end = begin;
      if (next_character(token, end) != step.content) break;
      begin = end;
    }
    size_t stop = token.size();
    for (int64_t i = 0; i < step.stop && stop > begin && character_before(token, stop) == step.content; ++i) {
      std::string character;
      append_character(character, step.content);
      stop -= character.size();
    }
    token = token.substr(begin, stop - begin);
  }
}

void TokenDecoder::apply(const Metaspace& step, std::vector<std::string>& tokens) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::string text;
    for (size_t at = 0; at < tokens[i].size();) {
      const char32_t c = next_character(tokens[i], at);
      if (c != step.replacement)
        append_character(text, c);
      else if (i > 0 || !step.drops_first)
        text.push_back(' ');
    }
    tokens[i] = std::move(text);
  }
}

void TokenDecoder::apply(const WordPiece& step, std::vector<std::string>& tokens) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::string& piece = tokens[i];
    if (i > 0) {
      if (piece.starts_with(step.prefix))
        piece.erase(0, step.prefix.size());
      else
        piece.insert(0, " ");
    }
    if (step.clean_up) tidy(piece);
  }
}

std::string TokenDecoder::operator()(std::vector<std::string> tokens) const {
  for (const Step& step : steps_) std::visit([&](const auto& kind) { apply(kind, tokens); }, step);
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0 && joins_with_spaces_) text += ' ';
    text += tokens[i];
  }
  return text;
}

}  // namespace trifold
