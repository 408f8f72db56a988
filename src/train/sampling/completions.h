// Completions answers requests for texts, chats and log-probabilities with a trained model, one after the other.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenize/tokenizer.h"
#include "train/sampling/completion_request.h"
#include "train/sampling/continuation.h"
#include "train/sampling/sampler.h"

namespace trifold {

// An answer as a whole, or in pieces: each call of `next` computes another object, and none follows the last.
struct CompletionAnswer {
  nlohmann::ordered_json whole;
  std::function<std::optional<nlohmann::ordered_json>()> next;
};

class Completions {
 public:
  // All references must outlive this object. `name` is the model's in answers. `end_tokens`: the tokens with which the model
  // ends a text (end_tokens_of). `chat` gives the model's chat template, or
  // throws BadInput if it has none; it is called for the first chat. Computing an answer ends with an Aborted error soon
  // after `signal` has become other than 0.
  Completions(Sampler& sampler, const Tokenizer& tokenizer, int64_t model_vocab, std::string name,
              std::vector<int32_t> end_tokens, std::function<ChatPrompts()> chat,
              const std::atomic<int>& signal);

  // The answers to the bodies of POST /v1/completions and POST /v1/chat/completions. BadInput if they cannot be answered.
  // An answer in pieces must be read before the next answer is asked for.
  CompletionAnswer answer(std::string_view body);
  CompletionAnswer answer_chat(std::string_view body);
  // The answer to GET /v1/models.
  nlohmann::ordered_json models() const;

 private:
  struct Completion {
    std::string text;
    std::vector<TokenScore> scores;  // one for each token after the prompt
    int64_t tokens = 0;              // computed after the prompt
    bool stopped = false;            // by the end of a document or by a text of `stop`
  };
  class Pieces;

  CompletionAnswer answer_to(CompletionRequest request);
  void expect_room(const CompletionRequest& request) const;
  void expect_no_signal() const;
  // The text after a prompt, whose tokens are not drawn yet.
  Continuation begin(const CompletionRequest& request, size_t prompt);
  Completion complete(const CompletionRequest& request, size_t prompt);
  nlohmann::ordered_json choice(const CompletionRequest& request, size_t index, const Completion& completion);
  nlohmann::ordered_json log_probabilities(const CompletionRequest& request, const CompletionPrompt& prompt,
                                           const Completion& completion);
  std::string name_of(int32_t token) const;

  Sampler& sampler_;
  const Tokenizer& tokenizer_;
  int64_t model_vocab_;
  std::string name_;
  std::vector<int32_t> end_tokens_;
  std::function<ChatPrompts()> open_chat_;
  std::optional<ChatPrompts> chat_;
  const std::atomic<int>& signal_;
  int64_t created_;  // seconds since 1970
  int64_t answers_ = 0;
};

}  // namespace trifold
