// The requests of POST /v1/completions, in the format of OpenAI's completions that many programs use.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenize/tokenizer.h"
#include "train/sampling/sampler.h"

namespace trifold {

struct CompletionPrompt {
  std::vector<int32_t> tokens;
  std::string text;  // what `echo` repeats
};

struct CompletionRequest {
  std::vector<CompletionPrompt> prompts;  // at least one
  int64_t max_tokens = 16;
  SamplingRule rule;
  uint64_t seed = 1234;
  bool echo = false;
  std::optional<int64_t> logprobs;  // log-probabilities, with so many of the likeliest tokens
  std::vector<std::string> stop;    // texts that end a completion
};

// Reads the body of a request. `vocab`: token ids are below it. BadInput, naming the field, for what is not JSON, has
// wrong values, or asks for what is not done here.
CompletionRequest read_completion_request(std::string_view body, const Tokenizer& tokenizer, int64_t vocab);

}  // namespace trifold
