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
#include <vector>

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

}  // namespace trifold
