// SQuAD's questions, read from its JSON (Rajpurkar et al., "SQuAD", EMNLP 2016; version 2 with questions that
// have no answer, "Know What You Don't Know", ACL 2018):
//   {"data": [{"paragraphs": [{"context": "...", "qas": [{"id": "...", "question": "...",
//      "answers": [{"text": "...", "answer_start": 17}], "is_impossible": false}]}]}], "version": "v2.0"}
// answer_start counts Unicode characters.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trifold {

struct SquadAnswer {
  std::string text;
  int64_t begin = 0, end = 0;  // byte range in the context
};

struct SquadQuestion {
  std::string id, question;
  size_t context = 0;                // index into Squad::contexts
  std::vector<SquadAnswer> answers;  // empty if there is none
};

struct Squad {
  std::vector<std::string> contexts;
  std::vector<SquadQuestion> questions;
  bool has_unanswerable = false;  // version 2: some question has no answer, or a field "is_impossible"
};

// BadInput, naming the file and the mistake, such as an answer whose text is not at its answer_start.
Squad read_squad(const std::string& path);

}  // namespace trifold
