#include "tokenize/text_normalizer.h"

#include "core/error.h"
#include "core/printable.h"
#include "core/read_json.h"
#include "tokenize/unicode/unicode.h"

namespace trifold {

namespace {

// Calls body(character, out) for each character of `text`.
template <class Body>
std::string each(std::string_view text, Body&& body) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) body(next_character(text, at), out);
  return out;
}

void clean(char32_t c, std::string& out) {
  if (is_removed_by_bert(c)) return;
  append_character(out, is_white_space(c) ? U' ' : c);
}

void set_apart(char32_t c, std::string& out) {
  const bool apart = is_ideograph_of_bert(c);
  if (apart) out.push_back(' ');
  append_character(out, c);
  if (apart) out.push_back(' ');
}

}  // namespace

TextNormalizer::TextNormalizer(const nlohmann::json& json) {
  if (!json.is_null()) add(json);
}

void TextNormalizer::add(const nlohmann::json& json) {
  const JsonView view(json, "normalizer");
  const std::string type = view.at("type").text();
  if (steps_.size() > kMostTokenizerSteps)
    bad_input("its normalizer has more than {} steps", kMostTokenizerSteps);
  if (type == "Sequence") {
    for (const nlohmann::json& part : view.at("normalizers").list()) add(part);
  } else if (type == "NFC") {
    steps_.emplace_back(Change::Nfc);
  } else if (type == "NFD") {
    steps_.emplace_back(Change::Nfd);
  } else if (type == "NFKC") {
    steps_.emplace_back(Change::Nfkc);
  } else if (type == "NFKD") {
    steps_.emplace_back(Change::Nfkd);
  } else if (type == "Lowercase") {
    steps_.emplace_back(Change::Lowercase);
  } else if (type == "StripAccents") {
    steps_.emplace_back(Change::DropMarks);
  } else if (type == "BertNormalizer") {
    add_bert(json);
  } else if (type == "Prepend") {
    steps_.emplace_back(Prepend{view.at("prepend").text()});
    depends_on_cuts_ = true;
  } else if (type == "Replace") {
    add_replace(json);
    depends_on_cuts_ = true;
  } else if (type == "Strip") {
    if (view.flag("strip_left", true)) steps_.emplace_back(Change::StripLeft);
    if (view.flag("strip_right", true)) steps_.emplace_back(Change::StripRight);
    depends_on_cuts_ = true;
  } else if (type == "Precompiled") {
    steps_.emplace_back(PrecompiledMap(view.at("precompiled_charsmap").text()));
    depends_on_cuts_ = true;
  } else {
    bad_input(
        "its normalizer \"{}\" is not supported; NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, "
        "BertNormalizer, Prepend, Replace, Strip, Precompiled and Sequence are",
        printable(type));
  }
}

void TextNormalizer::add_bert(const nlohmann::json& json) {
  const JsonView view(json, "normalizer");
  const bool lowercase = view.flag("lowercase", true);
  if (view.flag("clean_text", true)) steps_.emplace_back(Change::Clean);
  if (view.flag("handle_chinese_chars", true)) steps_.emplace_back(Change::SpaceIdeographs);
  // By default accents are stripped if text is lower-cased.
  if (view.flag("strip_accents", lowercase)) {
    steps_.emplace_back(Change::Nfd);
    steps_.emplace_back(Change::DropNonspacingMarks);
  }
  if (lowercase) steps_.emplace_back(Change::Lowercase);
}

// Most replaced texts are single characters, for which a search is faster than a pattern.
void TextNormalizer::add_replace(const nlohmann::json& json) {
  const JsonView view(json, "normalizer");
  const JsonView pattern = view.at("pattern");
  const std::string content = view.at("content").text();
  if (pattern.has("String"))
    steps_.emplace_back(ReplaceText{pattern.at("String").text(), content});
  else
    steps_.emplace_back(
        Replace{TextPattern::of_json(pattern.value(), PatternDialect::Ruby, "normalizer"), content});
}

std::string TextNormalizer::apply(const Prepend& step, std::string_view text) {
  return text.empty() ? std::string() : step.content + std::string(text);
}

std::string TextNormalizer::apply(const Replace& step, std::string_view text) {
  PatternMatcher matcher(step.pattern);
  return replace_matches(matcher, text, step.content);
}

std::string TextNormalizer::apply(const ReplaceText& step, std::string_view text) {
  std::string out;
  size_t at = 0;
  for (size_t found = 0; !step.from.empty() && (found = text.find(step.from, at)) != std::string_view::npos;
       at = found + step.from.size()) {
    out += text.substr(at, found - at);
    out += step.content;
  }
  return out += text.substr(at);
}

std::string TextNormalizer::apply(Change change, std::string_view text) {
  switch (change) {
    case Change::Nfc:
      return normalized(text, NormalForm::Nfc);
    case Change::Nfd:
      return normalized(text, NormalForm::Nfd);
    case Change::Nfkc:
      return normalized(text, NormalForm::Nfkc);
    case Change::Nfkd:
      return normalized(text, NormalForm::Nfkd);
    case Change::Lowercase:
      return lower_case(text);
    case Change::DropMarks:
      return each(text, [](char32_t c, std::string& out) {
        if (!is_mark(c)) append_character(out, c);
      });
    case Change::DropNonspacingMarks:
      return each(text, [](char32_t c, std::string& out) {
        if (!is_nonspacing_mark(c)) append_character(out, c);
      });
    case Change::Clean:
      return each(text, clean);
    case Change::SpaceIdeographs:
      return each(text, set_apart);
    case Change::StripLeft:
      return std::string(text.substr(white_space_at_start(text)));
    case Change::StripRight:
      return std::string(text.substr(0, size_without_white_space_at_end(text)));
  }
  return std::string(text);
}

std::string TextNormalizer::operator()(std::string_view text) const {
  std::string out(text);
  for (const Step& step : steps_) out = std::visit([&](const auto& kind) { return apply(kind, out); }, step);
  return out;
}

}  // namespace trifold
