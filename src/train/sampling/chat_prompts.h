// ChatPrompts writes conversations as the tokens after which a chat model answers, and knows what ends an answer.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tokenize/chat/chat_template.h"
#include "tokenize/tokenizer.h"
#include "train/start/checkpoint_model.h"

namespace trifold {

// What ends an answer, by what a template writes after one: a special token, or a text; neither if it writes nothing.
struct TurnEnd {
  std::optional<int32_t> token;
  std::string text;
};
TurnEnd end_of_turn(const std::string& after_answer, const Tokenizer& tokenizer);

class ChatPrompts {
 public:
  // `end_tokens`: the tokens with which the model ends a text (end_tokens_of). `tokenizer` must outlive this object.
  ChatPrompts(ChatTemplate chat, const Tokenizer& tokenizer, std::vector<int32_t> end_tokens);

  // The conversation up to where the model answers. `messages` and `variables` as in ChatTemplate::render.
  std::vector<int32_t> tokens(
      const nlohmann::ordered_json& messages,
      const nlohmann::ordered_json& variables = nlohmann::ordered_json::object()) const;

  // What ends an answer: the model's end tokens, and what the template writes after an answer, a special token or a text.
  const std::vector<int32_t>& end_tokens() const { return end_tokens_; }
  const std::vector<std::string>& stops() const { return stops_; }

 private:
  void find_end_of_turn();

  ChatTemplate chat_;
  const Tokenizer& tokenizer_;
  std::vector<int32_t> end_tokens_;
  std::vector<std::string> stops_;
};

// A message of a conversation.
nlohmann::ordered_json chat_message(const std::string& role, const std::string& content);

// The tokens with which the model ends a text besides its tokenizer's: eos_token_id of generation_config.json, a number
// or a list, in the model's folder or next to its tokenizer. BadInput for a file that is not valid.
std::vector<int32_t> end_tokens_of(const CheckpointModel& from);

// The template and end tokens of a model, whose tokenizer is `tokenizer`. `given` names the tokenizer and template if the
// user chose others. BadInput, naming `reader`, if there is no template.
ChatPrompts chat_prompts_of(const CheckpointModel& from, const DataConfig& given, const Tokenizer& tokenizer,
                            const std::string& reader);

}  // namespace trifold
