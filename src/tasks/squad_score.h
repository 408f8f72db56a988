// SQuAD's scores: exact match and F1 over words of normalised text, the best over all reference
// answers.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tasks/squad.h"

namespace trifold {

// Lower-case, without the signs of ASCII, without the words a, an and the, with single spaces. Letters beyond
// ASCII are made lower-case where they are Latin, Greek or Cyrillic.
std::string normalised_answer(std::string_view text);

// 1 or 0 whether the two are the same once normalised.
double exact_match(std::string_view given, std::string_view right);
// The harmonic mean of precision and recall over the words, each counted as often as it stands. Where one has
// no word: 0, or with `empty_counts`, as version 2 has it, 1 if both have none.
double word_f1(std::string_view given, std::string_view right, bool empty_counts);

struct SquadScore {
  double exact = 0, f1 = 0;                    // percent, over all questions
  double answerable_f1 = 0, no_answer_f1 = 0;  // version 2: of those with and without an answer
};

// `given` holds the text of each question's id; a question that is not there scores 0, as in version 1.
SquadScore score_answers(const Squad& squad, const std::map<std::string, std::string>& given);

}  // namespace trifold
