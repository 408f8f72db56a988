#include "tasks/preference/preferences.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace trifold {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kPreferenceForm =
    R"({"prompt": ..., "chosen": ..., "rejected": ...} is needed, all texts or all lists of messages)";

const Json& answer_field(const Json& record, const char* field) {
  check(record.contains(field) && (record[field].is_string() || record[field].is_array()),
        "the record has no field \"{}\" that is a text or a list of messages: {}", field, kPreferenceForm);
  return record[field];
}

Preference texts_of(const Json& record, const std::string& where) {
  check(record.contains("prompt") && record["prompt"].is_string(),
        "the field \"prompt\" is not a text, as the answers are");
  const auto answer = [&](const char* field) {
    check(record[field].is_string(), "the field \"{}\" is not a text, as the other answer is", field);
    PromptAnswer made{record["prompt"].get<std::string>(), record[field].get<std::string>(), where};
    check(!made.answer.empty(), "the field \"{}\" is empty", field);
    return made;
  };
  return {answer("chosen"), answer("rejected"), where};
}

// The messages that both lists begin with, but the last of each.
size_t common_messages(const Json& chosen, const Json& rejected) {
  const size_t most = std::min(chosen.size(), rejected.size());
  size_t same = 0;
  while (same + 1 < most && chosen[same] == rejected[same]) ++same;
  return same;
}

// Some files repeat as a text what both lists begin with; lists that are answers alone begin with the assistant.
bool repeats_prompt(const Json& record) {
  const auto is_whole = [&](const char* field) {
    const Json& list = record[field];
    return list.is_array() && !list.empty() && list[0].is_object() && list[0].contains("role") &&
           list[0]["role"] != kAnswerRole;
  };
  return record["prompt"].is_string() && is_whole("chosen") && is_whole("rejected");
}

Preference messages_of(const Json& record, const std::string& where) {
  Json prompt = Json::array();
  const bool apart = record.contains("prompt") && !record["prompt"].is_null() && !repeats_prompt(record);
  if (apart) append_part(record, "prompt", "user", prompt);
  const auto answer = [&](const char* field) {
    Conversation made{prompt, template_variables(record), 0, where};
    append_part(record, field, kAnswerRole, made.messages);
    return made;
  };
  Conversation chosen = answer("chosen"), rejected = answer("rejected");
  const size_t asked = apart ? prompt.size() : common_messages(chosen.messages, rejected.messages);
  for (Conversation* one : {&chosen, &rejected}) {
    one->answers_from = asked;
    expect_answer(*one);
  }
  return {std::move(chosen), std::move(rejected), where};
}

}  // namespace

std::vector<Preference> read_preferences(const std::string& path) {
  std::vector<Preference> all;
  for_each_record(path, kPreferenceForm, [&](const Json& record, const std::string& where) {
    const Json& chosen = answer_field(record, "chosen");
    check(chosen != answer_field(record, "rejected"), "both answers are the same, so neither is preferred");
    const bool texts = chosen.is_string() && (!record.contains("prompt") || !record["prompt"].is_array());
    all.push_back(texts ? texts_of(record, where) : messages_of(record, where));
  });
  if (all.empty()) bad_input("{} holds no pair of answers", path);
  return all;
}

}  // namespace trifold
