// Reads conversations, and prompts with answers, to finetune on: JSON lines, or a JSON file that is one list. A record is
//
//   {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}
//   {"conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}], "system": "..."}
//   {"instruction": "...", "input": "...", "output": "..."}
//   {"prompt": "...", "completion": "..."}     with a list of messages instead of a text in either
//
// that is OpenAI's form, ShareGPT's, Alpaca's, or a prompt with its completion, which may also be called "answer".
// Further fields are for the chat template: "tools", and "chat_template_kwargs", an object of variables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/function_ref.h"

namespace trifold {

struct Conversation {
  nlohmann::ordered_json messages;   // objects with "role", "content" and what else the file says
  nlohmann::ordered_json variables;  // for the template
  size_t answers_from = 0;           // answers before this message are part of the prompt and are not learned
  std::string where;                 // "chats.jsonl, line 3"
};

// A message of the model is one with this role.
inline constexpr const char* kAnswerRole = "assistant";

// BadInput, with the line, for a record of another form, an unknown role, or a conversation without an answer.
std::vector<Conversation> read_conversations(const std::string& path);

// A text whose end is learned.
struct PromptAnswer {
  std::string prompt;  // may be empty
  std::string answer;
  std::string where;
};

// Records of the last two forms, whose prompt and completion are texts, and {"text": "..."}, which is learned whole. An
// instruction and its input are joined by a line end, and separated by one from the output.
std::vector<PromptAnswer> read_prompts(const std::string& path);

// ---- Shared with the reader of preferences (tasks/preference/preferences.h) ----

// Calls `take` with each record of a file and its place ("chats.jsonl, line 3"), which is added to errors. BadInput for
// a record that is no object; `forms` says what is needed.
void for_each_record(const std::string& path, std::string_view forms,
                     FunctionRef<void(const nlohmann::ordered_json& record, const std::string& where)> take);

// Appends what a field holds to a list of messages: a text, which is one message of `role`, or messages. Throws an Error
// for a field of another form.
void append_part(const nlohmann::ordered_json& record, const char* field, std::string_view role,
                 nlohmann::ordered_json& messages);

// Conversation::variables of a record. Throws an Error for a field of another form.
nlohmann::ordered_json template_variables(const nlohmann::ordered_json& record);

// Throws an Error if no message from answers_from on is an answer.
void expect_answer(const Conversation& conversation);

}  // namespace trifold
