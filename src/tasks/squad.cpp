#include "tasks/squad.h"

#include "core/error.h"
#include "core/printable.h"
#include "core/read_json.h"

namespace trifold {

namespace {

using nlohmann::json;

// Limits that allow ten times the size of SQuAD 2.0.
constexpr JsonLimits kSquadLimits{int64_t{512} << 20, 32, 20'000'000};

// The byte positions of the characters of a text, and its end.
std::vector<int64_t> character_places(const std::string& text) {
  std::vector<int64_t> places;
  for (size_t i = 0; i < text.size(); ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xC0U) != 0x80U) places.push_back(static_cast<int64_t>(i));
  places.push_back(static_cast<int64_t>(text.size()));
  return places;
}

SquadAnswer read_answer(const JsonView& from, const std::string& context,
                        const std::vector<int64_t>& places) {
  SquadAnswer answer;
  answer.text = from.at("text").text();
  const auto first = from.at("answer_start").integer();
  check(0 <= first && first < static_cast<int64_t>(places.size()),
        "the answer '{}' begins at character {} of {}", printable(answer.text), first, places.size() - 1);
  answer.begin = places[static_cast<size_t>(first)];
  answer.end = answer.begin + static_cast<int64_t>(answer.text.size());
  check(context.compare(static_cast<size_t>(answer.begin), answer.text.size(), answer.text) == 0,
        "the answer '{}' is not at character {} of its context", printable(answer.text), first);
  return answer;
}

SquadQuestion read_question(const JsonView& from, size_t index, const std::string& context,
                            const std::vector<int64_t>& places, Squad& squad) {
  SquadQuestion question;
  check(from.has("id") && from.at("id").value().is_string(),
        "a question of paragraph {} has no id that is a string", index + 1);
  question.id = from.at("id").text();
  try {
    question.question = from.at("question").text();
    question.context = index;
    const bool impossible = from.flag("is_impossible", false);
    if (from.has("is_impossible") || (from.has("answers") && from.at("answers").size() == 0))
      squad.has_unanswerable = true;
    if (!impossible && from.has("answers"))
      from.at("answers").each(
          [&](const JsonView& answer) { question.answers.push_back(read_answer(answer, context, places)); });
  } catch (const Error& error) {
    fail("question {}: {}", printable(question.id), error.what());
  }
  return question;
}

}  // namespace

Squad read_squad(const std::string& path) {
  const json whole = read_json_file(path, kSquadLimits);
  Squad squad;
  try {
    JsonView(whole).at("data").each([&](const JsonView& article) {
      article.at("paragraphs").each([&](const JsonView& paragraph) {
        squad.contexts.push_back(paragraph.at("context").text());
        const std::string& context = squad.contexts.back();
        const std::vector<int64_t> places = character_places(context);
        paragraph.at("qas").each([&](const JsonView& question) {
          squad.questions.push_back(
              read_question(question, squad.contexts.size() - 1, context, places, squad));
        });
      });
    });
  } catch (const Error& error) {
    bad_input("{} is not a SQuAD file: {}", path, error.what());
  }
  if (squad.questions.empty()) bad_input("{} holds no question", path);
  return squad;
}

}  // namespace trifold
