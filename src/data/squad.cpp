#include "data/squad.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace trifold {

namespace {

using nlohmann::json;

// Where the characters of a text begin; the last is its end.
std::vector<int64_t> character_places(const std::string& text) {
  std::vector<int64_t> places;
  for (size_t i = 0; i < text.size(); ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xC0U) != 0x80U) places.push_back(static_cast<int64_t>(i));
  places.push_back(static_cast<int64_t>(text.size()));
  return places;
}

SquadAnswer read_answer(const json& from, const std::string& context, const std::vector<int64_t>& places) {
  SquadAnswer answer;
  answer.text = from.at("text").get<std::string>();
  const auto first = from.at("answer_start").get<int64_t>();
  check(0 <= first && first < static_cast<int64_t>(places.size()),
        "the answer '{}' begins at character {} of {}", answer.text, first, places.size() - 1);
  answer.begin = places[static_cast<size_t>(first)];
  answer.end = answer.begin + static_cast<int64_t>(answer.text.size());
  check(context.compare(static_cast<size_t>(answer.begin), answer.text.size(), answer.text) == 0,
        "the answer '{}' does not stand at character {} of its context", answer.text, first);
  return answer;
}

SquadQuestion read_question(const json& from, size_t index, const std::string& context,
                            const std::vector<int64_t>& places, Squad& squad) {
  SquadQuestion question;
  check(from.contains("id") && from["id"].is_string(),
        "a question of paragraph {} has no id that is a string", index + 1);
  question.id = from["id"].get<std::string>();
  try {
    check(!from.contains("is_impossible") || from["is_impossible"].is_boolean(),
          "is_impossible is neither true nor false");
    question.question = from.at("question").get<std::string>();
    question.context = index;
    if (from.contains("is_impossible") || (from.contains("answers") && from["answers"].empty()))
      squad.has_unanswerable = true;
    if (!from.value("is_impossible", false) && from.contains("answers"))
      for (const json& answer : from.at("answers"))
        question.answers.push_back(read_answer(answer, context, places));
  } catch (const std::exception& error) {
    fail("question {}: {}", question.id, error.what());
  }
  return question;
}

}  // namespace

Squad read_squad(const std::string& path) {
  std::ifstream file(path);
  if (!file) bad_input("{} cannot be read: name a file of SQuAD's JSON", path);
  Squad squad;
  try {
    const json whole = json::parse(file);
    for (const json& article : whole.at("data"))
      for (const json& paragraph : article.at("paragraphs")) {
        squad.contexts.push_back(paragraph.at("context").get<std::string>());
        const std::string& context = squad.contexts.back();
        const std::vector<int64_t> places = character_places(context);
        for (const json& question : paragraph.at("qas"))
          squad.questions.push_back(
              read_question(question, squad.contexts.size() - 1, context, places, squad));
      }
  } catch (const std::exception& error) {
    bad_input("{} is not what SQuAD's files are: {}", path, error.what());
  }
  if (squad.questions.empty()) bad_input("{} holds no question", path);
  return squad;
}

}  // namespace trifold
