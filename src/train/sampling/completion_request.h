// The requests of POST /v1/completions and POST /v1/chat/completions, in the format of OpenAI's that many programs use.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenize/tokenizer.h"
#include "train/sampling/chat_prompts.h"
#include "train/sampling/sampling_rule.h"

namespace trifold {

struct CompletionPrompt {
  std::vector<int32_t> tokens;
  std::string text;  // what `echo` repeats
};

struct CompletionRequest {
  std::vector<CompletionPrompt> prompts;  // at least one; exactly one of a chat
  bool chat = false;                      // the prompt is a conversation, which is answered
  std::optional<int64_t> max_tokens;      // 16; of a chat, what the window leaves
  SamplingRule rule;
  // With a seed an answer is a function of the request alone. Without one it may reuse keys and values of the previous
  // answer, and so differ from another answer by rounding.
  std::optional<uint64_t> seed;
  bool echo = false;
  std::optional<int64_t> logprobs;  // log-probabilities, with so many of the likeliest tokens
  std::vector<std::string> stop;    // texts that end a completion
  std::vector<int32_t> end_tokens;  // the chat template's, and the model's
  bool stream = false;              // the answer is sent in pieces
  bool stream_usage = false;        // and ends with the numbers of tokens
};

// Read the body of a request. `vocab`: token ids are below it. BadInput, naming the field, for what is not JSON, has
// wrong values, or asks for what is not done here.
CompletionRequest read_completion_request(std::string_view body, const Tokenizer& tokenizer, int64_t vocab);
CompletionRequest read_chat_request(std::string_view body, const ChatPrompts& prompts);

}  // namespace trifold
