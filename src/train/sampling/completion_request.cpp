#include "train/sampling/completion_request.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/printable.h"
#include "core/read_json.h"

namespace trifold {

namespace {

constexpr const char* kWhere = "the request";
constexpr int64_t kMostPrompts = 4096;
constexpr int64_t kMostNewTokens = int64_t{1} << 20;
constexpr int64_t kMostLogprobs = 100;
constexpr int64_t kMostStops = 64;

// Fields that ask for something else, with the only value that asks for nothing.
struct OnlyValue {
  const char* name;
  nlohmann::json value;
};
const std::vector<OnlyValue>& only_values() {
  static const std::vector<OnlyValue> kAll = {{"n", 1},
                                              {"best_of", 1},
                                              {"stream", false},
                                              {"suffix", ""},
                                              {"presence_penalty", 0},
                                              {"frequency_penalty", 0},
                                              {"logit_bias", nlohmann::json::object()}};
  return kAll;
}

// `model` and `user` decide nothing: there is one model, and there are no accounts.
constexpr std::array<std::string_view, 12> kRead = {"prompt", "max_tokens", "temperature", "top_p",
                                                    "top_k",  "seed",       "echo",        "logprobs",
                                                    "stop",   "model",      "user",        "stream_options"};

void check_fields(const JsonView& request) {
  request.members([&](const std::string& name, const JsonView& field) {
    if (field.value().is_null() || std::find(kRead.begin(), kRead.end(), name) != kRead.end()) return;
    for (const OnlyValue& only : only_values()) {
      if (name != only.name) continue;
      if (field.value() != only.value)
        bad_input("{}: {} is {}; only {} is possible here", kWhere, name, printable_json(field.value()),
                  printable_json(only.value));
      return;
    }
    bad_input("{}: the field {} is not known here", kWhere, printable(name));
  });
}

CompletionPrompt prompt_of_text(const JsonView& text, const Tokenizer& tokenizer) {
  CompletionPrompt prompt{{}, text.text()};
  tokenizer.encode(prompt.text, prompt.tokens);
  return prompt;
}

CompletionPrompt prompt_of_ids(const JsonView& ids, const Tokenizer& tokenizer, int64_t vocab) {
  CompletionPrompt prompt;
  for (const int64_t id : ids.integers(0, vocab - 1)) prompt.tokens.push_back(static_cast<int32_t>(id));
  // Ids that only the model has, beyond the tokenizer's, have no text.
  std::vector<int32_t> with_text;
  for (const int32_t id : prompt.tokens)
    if (id < tokenizer.vocab_size()) with_text.push_back(id);
  prompt.text = tokenizer.decode(with_text);
  return prompt;
}

// A text, token ids, or a list of texts or of lists of ids.
std::vector<CompletionPrompt> prompts_of(const JsonView& field, const Tokenizer& tokenizer, int64_t vocab) {
  if (field.value().is_string()) return {prompt_of_text(field, tokenizer)};
  if (!field.value().is_array() || field.size() == 0)
    field.refuse("a text, a list of token ids, or a list of texts or of lists of ids");
  if (field.item(0).value().is_number()) return {prompt_of_ids(field, tokenizer, vocab)};
  if (static_cast<int64_t>(field.size()) > kMostPrompts)
    bad_input("{}: prompt has {} texts; at most {} are answered at once", kWhere, field.size(), kMostPrompts);
  std::vector<CompletionPrompt> prompts;
  field.each([&](const JsonView& prompt) {
    prompts.push_back(prompt.value().is_string() ? prompt_of_text(prompt, tokenizer)
                                                 : prompt_of_ids(prompt, tokenizer, vocab));
  });
  return prompts;
}

double number_in(const JsonView& field, double least, double most, const char* needed) {
  const double value = field.number();
  if (value < least || value > most) field.refuse(needed);
  return value;
}

std::vector<std::string> stops_of(const JsonView& field) {
  std::vector<std::string> stops;
  if (field.value().is_string())
    stops.push_back(field.text());
  else
    field.each([&](const JsonView& stop) { stops.push_back(stop.text()); });
  if (std::ssize(stops) > kMostStops) field.refuse("a list of at most 64 texts");
  std::erase(stops, std::string());  // clients send them for an end token that is not known
  return stops;
}

}  // namespace

CompletionRequest read_completion_request(std::string_view body, const Tokenizer& tokenizer, int64_t vocab) {
  const nlohmann::json whole = parse_json(body, kWhere);
  const JsonView view(whole, kWhere);
  view.object();
  check_fields(view);
  CompletionRequest request;
  request.prompts = prompts_of(view.at("prompt"), tokenizer, vocab);
  if (view.has("max_tokens")) request.max_tokens = view.at("max_tokens").integer(0, kMostNewTokens);
  if (view.has("temperature"))
    request.rule.temperature = number_in(view.at("temperature"), 0, 1e6, "a number from 0 on");
  if (view.has("top_p")) {
    request.rule.top_p = number_in(view.at("top_p"), 0, 1, "a number above 0 and at most 1");
    if (request.rule.top_p == 0) view.at("top_p").refuse("a number above 0 and at most 1");
  }
  if (view.has("top_k")) request.rule.top_k = view.at("top_k").integer(0);
  if (view.has("seed")) request.seed = view.at("seed").whole_number();
  request.echo = view.flag("echo", false);
  if (view.has("logprobs")) request.logprobs = view.at("logprobs").integer(0, kMostLogprobs);
  if (view.has("stop")) request.stop = stops_of(view.at("stop"));
  return request;
}

}  // namespace trifold
