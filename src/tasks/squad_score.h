// SQuAD's scores: exact match and F1 over words of normalised text, each the best over all reference answers.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tasks/squad.h"

namespace trifold {

// The text in lower case, without ASCII punctuation, without the words a, an and the, with single spaces. Beyond ASCII,
// Latin, Greek and Cyrillic letters are made lower-case.
std::string normalised_answer(std::string_view text);

// 1 if the two are the same once normalised, else 0.
double exact_match(std::string_view given, std::string_view right);
// The harmonic mean of precision and recall over words, counted with repetition. If a text has no word the result is 0;
// with `empty_counts` (version 2) it is 1 if neither has a word.
double word_f1(std::string_view given, std::string_view right, bool empty_counts);

struct SquadScore {
  double exact = 0, f1 = 0;                    // percent, over all questions
  double answerable_f1 = 0, no_answer_f1 = 0;  // version 2: F1 of questions with and without an answer
};

// `given` maps question ids to answers; a question that it lacks scores 0, as in version 1.
SquadScore score_answers(const Squad& squad, const std::map<std::string, std::string>& given);

}  // namespace trifold
