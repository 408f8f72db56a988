// Reads preferences to finetune on: JSON lines, or a JSON file that is one list. A record has two answers to one prompt,
//
//   {"prompt": "...", "chosen": "...", "rejected": "..."}
//
// texts that are learned as they are; or lists of messages with "role" and "content", which a chat template writes. The
// prompt of messages may also be left out: it is then what both answers have in common at their beginning.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "tasks/chat/conversations.h"

namespace trifold {

// An answer with its prompt.
using PreferredText = std::variant<PromptAnswer, Conversation>;

struct Preference {
  PreferredText chosen, rejected;
  std::string where;  // "pairs.jsonl, line 3"
};

// BadInput, with the line, for a record of another form, an unknown role, an answer that is empty or has no message of
// the model, and two answers that are the same.
std::vector<Preference> read_preferences(const std::string& path);

}  // namespace trifold
