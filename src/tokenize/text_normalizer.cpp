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
    steps_.push_back(Step::Nfc);
  } else if (type == "NFD") {
    steps_.push_back(Step::Nfd);
  } else if (type == "NFKC") {
    steps_.push_back(Step::Nfkc);
  } else if (type == "NFKD") {
    steps_.push_back(Step::Nfkd);
  } else if (type == "Lowercase") {
    steps_.push_back(Step::Lowercase);
  } else if (type == "StripAccents") {
    steps_.push_back(Step::DropMarks);
  } else if (type == "BertNormalizer") {
    add_bert(json);
  } else {
    bad_input(
        "its normalizer \"{}\" is not supported; NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, "
        "BertNormalizer and Sequence are",
        printable(type));
  }
}

void TextNormalizer::add_bert(const nlohmann::json& json) {
  const JsonView view(json, "normalizer");
  const bool lowercase = view.flag("lowercase", true);
  if (view.flag("clean_text", true)) steps_.push_back(Step::Clean);
  if (view.flag("handle_chinese_chars", true)) steps_.push_back(Step::SpaceIdeographs);
  // By default accents are stripped if text is lower-cased.
  if (view.flag("strip_accents", lowercase)) {
    steps_.push_back(Step::Nfd);
    steps_.push_back(Step::DropNonspacingMarks);
  }
  if (lowercase) steps_.push_back(Step::Lowercase);
}

std::string TextNormalizer::apply(Step step, std::string_view text) {
  switch (step) {
    case Step::Nfc:
      return normalized(text, NormalForm::Nfc);
    case Step::Nfd:
      return normalized(text, NormalForm::Nfd);
    case Step::Nfkc:
      return normalized(text, NormalForm::Nfkc);
    case Step::Nfkd:
      return normalized(text, NormalForm::Nfkd);
    case Step::Lowercase:
      return lower_case(text);
    case Step::DropMarks:
      return each(text, [](char32_t c, std::string& out) {
        if (!is_mark(c)) append_character(out, c);
      });
    case Step::DropNonspacingMarks:
      return each(text, [](char32_t c, std::string& out) {
        if (!is_nonspacing_mark(c)) append_character(out, c);
      });
    case Step::Clean:
      return each(text, clean);
    case Step::SpaceIdeographs:
      return each(text, set_apart);
  }
  return std::string(text);
}

std::string TextNormalizer::operator()(std::string_view text) const {
  std::string out(text);
  for (Step step : steps_) out = apply(step, out);
  return out;
}

}  // namespace trifold
