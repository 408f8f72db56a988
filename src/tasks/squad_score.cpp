#include "tasks/squad_score.h"

#include <algorithm>

#include "tokenize/unicode/unicode.h"

namespace trifold {

namespace {

// White space as in Python's str.split() and \b, which SQuAD's own script uses.
bool is_space(char32_t c) { return is_white_space(c) || (0x1C <= c && c <= 0x1F); }
bool parts_words(char32_t c) { return !is_word_character(c) && !is_number(c); }

bool is_article(const std::u32string& word) { return word == U"a" || word == U"an" || word == U"the"; }

// The text with each article replaced by a space.
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
  // An answer of single bytes may end inside a character.
  const std::string lower = lower_case(replace_invalid_utf8(text));
  std::u32string kept;
  for (size_t at = 0; at < lower.size();)
    if (const char32_t c = next_character(lower, at); c >= 0x80 || !is_punctuation_of_bert(c)) kept += c;
  std::string out;
  bool gap = false;
  for (const char32_t c : without_articles(kept)) {
    if (is_space(c)) {
      gap = !out.empty();
      continue;
    }
    if (gap) out += ' ';
    gap = false;
    append_character(out, c);
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
  const auto questions = static_cast<int64_t>(squad.questions.size());
  const auto percent = [](double sum, int64_t count) {
    return count > 0 ? 100 * sum / static_cast<double>(count) : 0;
  };
  score.exact = percent(score.exact, questions);
  score.f1 = percent(score.f1, questions);
  score.answerable_f1 = percent(answerable, with_answer);
  score.no_answer_f1 = percent(impossible, questions - with_answer);
  return score;
}

}  // namespace trifold
