#include "tokenize/sentences.h"

#include "core/error.h"
#include "core/plain_text.h"
#include "core/trimmed.h"
#include "files/mapped_file.h"
#include "files/mapped_lines.h"
#include "tokenize/unicode/unicode.h"

namespace trifold {

namespace {

constexpr std::string_view kSpace = " \t\r\n\v\f";

bool is_word_byte(char c) {
  return ('0' <= c && c <= '9') || ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') ||
         static_cast<unsigned char>(c) >= 0x80;
}

// One past the sentence that begins at `begin`.
size_t end_of_sentence(std::string_view line, size_t begin) {
  for (size_t end = line.find_first_of(".!?", begin); end != std::string_view::npos;
       end = line.find_first_of(".!?", end)) {
    end = line.find_first_not_of(".!?\"')]", end);
    if (end == std::string_view::npos || kSpace.find(line[end]) != std::string_view::npos) return end;
  }
  return std::string_view::npos;
}

}  // namespace

std::vector<std::string_view> sentences_of_line(std::string_view line, bool split) {
  line = trimmed(line, kSpace);
  std::vector<std::string_view> sentences;
  while (!line.empty()) {
    const size_t end = split ? end_of_sentence(line, 0) : std::string_view::npos;
    sentences.push_back(line.substr(0, end));
    line = end == std::string_view::npos ? std::string_view{} : trimmed(line.substr(end), kSpace);
  }
  return sentences;
}

void SentenceTokens::add(const std::string& path, const Tokenizer& tokenizer) {
  const MappedFile file(path);
  expect_plain_text(file.text(), path);
  MappedLines lines(file, "a sentence or a paragraph a line is expected");
  while (const std::optional<std::string_view> line = lines.next()) {
    if (!tokenizer.takes_bytes())
      expect_utf8(*line, [&](size_t) { return fmt::format("{}:{}", path, lines.number()); });
    const std::vector<std::string_view> sentences = sentences_of_line(*line, options_.split_lines);
    if (sentences.empty()) end_document();
    for (std::string_view sentence : sentences) add_sentence(sentence, tokenizer);
  }
  end_document();
}

void SentenceTokens::add_sentence(std::string_view text, const Tokenizer& tokenizer) {
  if (!options_.words) {
    tokenizer.encode(text, tokens_);
  } else if (tokenizer.takes_bytes()) {
    tokenizer.encode(text, tokens_);
    for (size_t i = 0; i < text.size(); ++i)
      word_start_.push_back(i == 0 || !is_word_byte(text[i]) || !is_word_byte(text[i - 1]));
  } else {
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find_first_of(kSpace, at), text.size());
      const size_t before = tokens_.size();
      tokenizer.encode(text.substr(at, end - at), tokens_);
      for (size_t i = before; i < tokens_.size(); ++i) word_start_.push_back(i == before);
      at = std::min(text.find_first_not_of(kSpace, end), text.size());
    }
  }
  const auto count = static_cast<int64_t>(tokens_.size());
  if (count > first_token_.back()) first_token_.push_back(count);
}

void SentenceTokens::end_document() {
  const int64_t sentences = static_cast<int64_t>(first_token_.size()) - 1;
  if (sentences > first_sentence_.back()) first_sentence_.push_back(sentences);
}

}  // namespace trifold
