// Completions answers requests for texts and their log-probabilities with a trained model, one after the other.
#pragma once

#include <atomic>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tokenize/tokenizer.h"
#include "train/sampling/completion_request.h"
#include "train/sampling/sampler.h"

namespace trifold {

class Completions {
 public:
  // All references must outlive this object. `name` is the model's in answers. Computing an answer ends with an
  // Aborted error soon after `signal` has become other than 0.
  Completions(Sampler& sampler, const Tokenizer& tokenizer, int64_t model_vocab, std::string name,
              const std::atomic<int>& signal);

  // The answer to the body of POST /v1/completions. BadInput if it cannot be answered.
  nlohmann::ordered_json answer(std::string_view body);
  // The answer to GET /v1/models.
  nlohmann::ordered_json models() const;

 private:
  struct Completion {
    std::string text;
    std::vector<TokenScore> scores;  // one for each token after the prompt
    int64_t tokens = 0;              // computed after the prompt
    bool stopped = false;            // by the end of a document or by a text of `stop`
  };

  void expect_room(const CompletionRequest& request) const;
  void expect_no_signal() const;
  Completion complete(const CompletionRequest& request, size_t prompt);
  nlohmann::ordered_json choice(const CompletionRequest& request, size_t index, const Completion& completion);
  nlohmann::ordered_json log_probabilities(const CompletionRequest& request, const CompletionPrompt& prompt,
                                           const Completion& completion);
  std::string name_of(int32_t token) const;

  Sampler& sampler_;
  const Tokenizer& tokenizer_;
  int64_t model_vocab_;
  std::string name_;
  const std::atomic<int>& signal_;
  int64_t created_;  // seconds since 1970
  int64_t answers_ = 0;
};

}  // namespace trifold
