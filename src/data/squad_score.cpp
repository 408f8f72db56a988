#include "data/squad_score.h"

#include <algorithm>

namespace trifold {

namespace {

// The character at `at` of UTF-8, which is moved behind it; a byte that is none stands for itself.
char32_t next_character(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  const size_t length = first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  char32_t character = length == 1 ? first : first & (0xFFU >> (length + 1));
  for (size_t i = 1; i < length && at + i < text.size(); ++i)
    character = character << 6 | (byte(at + i) & 0x3FU);
  at = std::min(at + length, text.size());
  return character;
}

void append(std::string& text, char32_t c) {
  const auto put = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (c < 0x80) return put(c);
  if (c < 0x800) return put(0xC0 | c >> 6), put(0x80 | (c & 0x3F));
  if (c < 0x10000) return put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 0x3F)), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
}

bool within(char32_t c, char32_t first, char32_t last) { return first <= c && c <= last; }

char32_t lower(char32_t c) {
  if (within(c, 'A', 'Z')) return c + 32;
  if (within(c, 0xC0, 0xDE) && c != 0xD7) return c + 32;
  if (c == 0x178) return 0xFF;
  // Pairs of upper and lower case follow each other, from an even number or from an odd one.
  if (within(c, 0x100, 0x12F) || within(c, 0x132, 0x137) || within(c, 0x14A, 0x177) ||
      within(c, 0x460, 0x481) || within(c, 0x48A, 0x4BF) || within(c, 0x4D0, 0x52F) ||
      within(c, 0x1E00, 0x1E95) || within(c, 0x1EA0, 0x1EFF))
    return c | 1;
  if (within(c, 0x139, 0x148) || within(c, 0x179, 0x17E)) return c % 2 == 1 ? c + 1 : c;
  if (within(c, 0x391, 0x3AB) && c != 0x3A2) return c + 32;
  if (within(c, 0x400, 0x40F)) return c + 80;
  if (within(c, 0x410, 0x42F)) return c + 32;
  return c;
}

bool is_space(char32_t c) {
  return within(c, 9, 13) || within(c, 0x1C, 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         within(c, 0x2000, 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_sign(char32_t c) {
  return within(c, '!', '/') || within(c, ':', '@') || within(c, '[', '`') || within(c, '{', '~');
}

// What ends a word where an article is looked for: signs of typography and of mathematics, but the letters
// and digits among them.
bool parts_words(char32_t c) {
  if (is_space(c) || c < '0') return true;
  const bool latin = within(c, 0xA0, 0xBF) || c == 0xD7 || c == 0xF7;
  const bool letter_or_digit =
      c == 0xAA || c == 0xB2 || c == 0xB3 || c == 0xB5 || within(c, 0xB9, 0xBA) || within(c, 0xBC, 0xBE);
  return (latin && !letter_or_digit) || within(c, 0x2010, 0x206F) || within(c, 0x20A0, 0x20CF) ||
         within(c, 0x2190, 0x23FF) || within(c, 0x2500, 0x27BF) || within(c, 0x3001, 0x3004) ||
         within(c, 0x3008, 0x3020);
}

bool is_article(const std::u32string& word) { return word == U"a" || word == U"an" || word == U"the"; }

// Each article becomes a space.
std::u32string without_articles(const std::u32string& text) {
  std::u32string out;
  for (size_t at = 0; at < text.size();) {
    if (parts_words(text[at])) {
      out += text[at++];
      continue;
    }
    const size_t begin = at;
    while (at < text.size() && !parts_words(text[at])) ++at;
    const std::u32string word = text.substr(begin, at - begin);
    out += is_article(word) ? U" " : word;
  }
  return out;
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  const std::string normal = normalised_answer(text);
  for (size_t at = 0; at < normal.size();) {
    const size_t end = std::min(normal.find(' ', at), normal.size());
    words.push_back(normal.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

}  // namespace

std::string normalised_answer(std::string_view text) {
  std::u32string kept;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = lower(next_character(text, at));
    if (!is_sign(c)) kept += c;
  }
  std::string out;
  bool gap = false;
  for (const char32_t c : without_articles(kept)) {
    if (is_space(c)) {
      gap = !out.empty();
      continue;
    }
    if (gap) out += ' ';
    gap = false;
    append(out, c);
  }
  return out;
}

double exact_match(std::string_view given, std::string_view right) {
  return normalised_answer(given) == normalised_answer(right) ? 1 : 0;
}

double word_f1(std::string_view given, std::string_view right, bool empty_counts) {
  const std::vector<std::string> words = words_of(given), wanted = words_of(right);
  if (words.empty() || wanted.empty()) return empty_counts && words.empty() == wanted.empty() ? 1 : 0;
  std::map<std::string, int64_t> left;
  for (const std::string& word : wanted) ++left[word];
  int64_t same = 0;
  for (const std::string& word : words)
    if (left[word]-- > 0) ++same;
  if (same == 0) return 0;
  const double precision = static_cast<double>(same) / static_cast<double>(words.size());
  const double recall = static_cast<double>(same) / static_cast<double>(wanted.size());
  return 2 * precision * recall / (precision + recall);
}

SquadScore score_answers(const Squad& squad, const std::map<std::string, std::string>& given) {
  SquadScore score;
  double answerable = 0, impossible = 0;  // sums of f1
  int64_t with_answer = 0;
  for (const SquadQuestion& question : squad.questions) {
    std::vector<std::string> right;
    for (const SquadAnswer& answer : question.answers)
      if (!squad.has_unanswerable || !normalised_answer(answer.text).empty()) right.push_back(answer.text);
    if (!right.empty()) ++with_answer;
    const bool has_answer = !right.empty();
    if (right.empty() && squad.has_unanswerable) right.emplace_back();
    double exact = 0, f1 = 0;
    const auto found = given.find(question.id);
    if (found != given.end())
      for (const std::string& text : right) {
        exact = std::max(exact, exact_match(found->second, text));
        f1 = std::max(f1, word_f1(found->second, text, squad.has_unanswerable));
      }
    score.exact += exact;
    score.f1 += f1;
    (has_answer ? answerable : impossible) += f1;
  }
  score.questions = static_cast<int64_t>(squad.questions.size());
  const auto percent = [](double sum, int64_t count) {
    return count > 0 ? 100 * sum / static_cast<double>(count) : 0;
  };
  score.exact = percent(score.exact, score.questions);
  score.f1 = percent(score.f1, score.questions);
  score.answerable_f1 = percent(answerable, with_answer);
  score.no_answer_f1 = percent(impossible, score.questions - with_answer);
  return score;
}

}  // namespace trifold
