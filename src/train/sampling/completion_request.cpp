#include "train/sampling/completion_request.h"

#include <algorithm>
#include <array>
#include <span>

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
                                              {"suffix", ""},
                                              {"presence_penalty", 0},
                                              {"frequency_penalty", 0},
                                              {"logit_bias", nlohmann::json::object()},
                                              {"store", false},
                                              {"logprobs", false},
                                              {"response_format", {{"type", "text"}}}};
  return kAll;
}

// What both kinds of request have. `model` and `user` decide nothing: there is one model, and there are no accounts.
constexpr std::array<std::string_view, 12> kShared = {
    "max_tokens", "temperature", "top_p", "top_k", "min_p",  "repetition_penalty",
    "seed",       "stop",        "model", "user",  "stream", "stream_options"};
constexpr std::array<std::string_view, 3> kOfTexts = {"prompt", "echo", "logprobs"};
constexpr std::array<std::string_view, 4> kOfChats = {"messages", "max_completion_tokens", "tools",
                                                      "chat_template_kwargs"};

void check_fields(const JsonView& request, std::span<const std::string_view> own) {
  const auto read = [&](std::span<const std::string_view> names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  request.members([&](const std::string& name, const JsonView& field) {
    if (field.value().is_null() || read(kShared, name) || read(own, name)) return;
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

void read_rule(const JsonView& view, SamplingRule& rule) {
  if (view.has("temperature"))
    rule.temperature = number_in(view.at("temperature"), 0, 1e6, "a number from 0 on");
  if (view.has("top_p")) {
    rule.top_p = number_in(view.at("top_p"), 0, 1, "a number above 0 and at most 1");
    if (rule.top_p == 0) view.at("top_p").refuse("a number above 0 and at most 1");
  }
  if (view.has("top_k")) rule.top_k = view.at("top_k").integer(0);
  if (view.has("min_p")) rule.min_p = number_in(view.at("min_p"), 0, 1, "a number from 0 to 1");
  if (view.has("repetition_penalty")) {
    rule.repetition_penalty = number_in(view.at("repetition_penalty"), 0, 1e6, "a number above 0");
    if (rule.repetition_penalty == 0) view.at("repetition_penalty").refuse("a number above 0");
  }
}

// The fields of both kinds of request.
void read_shared(const JsonView& view, CompletionRequest& request) {
  if (view.has("max_tokens")) request.max_tokens = view.at("max_tokens").integer(0, kMostNewTokens);
  read_rule(view, request.rule);
  if (view.has("seed")) request.seed = view.at("seed").whole_number();
  if (view.has("stop")) request.stop = stops_of(view.at("stop"));
  request.stream = view.flag("stream", false);
  if (!view.has("stream_options")) return;
  const JsonView options = view.at("stream_options");
  options.object();
  request.stream_usage = options.flag("include_usage", false);
}

// The text of a message's content: a text, or a list of parts that are texts.
std::string content_of(const JsonView& content) {
  if (content.value().is_string()) return content.text();
  if (!content.value().is_array()) content.refuse("a text, or a list of parts of type text");
  std::string all;
  content.each([&](const JsonView& part) {
    if (part.at("type").text() != "text") part.at("type").refuse("text: this model reads nothing else");
    all += part.at("text").text();
  });
  return all;
}

// The messages as templates read them. Members other than the content are kept.
nlohmann::ordered_json messages_of(const JsonView& view, nlohmann::ordered_json ordered) {
  if (view.size() == 0 || std::ssize(ordered) > kMostPrompts) view.refuse("a list of 1 to 4096 messages");
  for (size_t i = 0; i < view.size(); ++i) {
    const JsonView message = view.item(i);
    message.at("role").text();
    if (message.has("content")) ordered[i]["content"] = content_of(message.at("content"));
  }
  return ordered;
}

}  // namespace

CompletionRequest read_completion_request(std::string_view body, const Tokenizer& tokenizer, int64_t vocab) {
  const nlohmann::json whole = parse_json(body, kWhere);
  const JsonView view(whole, kWhere);
  view.object();
  check_fields(view, kOfTexts);
  CompletionRequest request;
  request.prompts = prompts_of(view.at("prompt"), tokenizer, vocab);
  read_shared(view, request);
  request.echo = view.flag("echo", false);
  if (view.has("logprobs")) request.logprobs = view.at("logprobs").integer(0, kMostLogprobs);
  if (request.stream && request.logprobs)
    bad_input("{}: logprobs are not possible with stream: leave one of them out", kWhere);
  return request;
}

CompletionRequest read_chat_request(std::string_view body, const ChatPrompts& prompts) {
  const nlohmann::json whole = parse_json(body, kWhere);
  const JsonView view(whole, kWhere);
  view.object();
  check_fields(view, kOfChats);
  // Templates may write members in their order, which the checked values do not keep.
  const nlohmann::ordered_json ordered = nlohmann::ordered_json::parse(body, nullptr, false);
  CompletionRequest request;
  request.chat = true;
  read_shared(view, request);
  if (view.has("max_completion_tokens"))
    request.max_tokens = view.at("max_completion_tokens").integer(0, kMostNewTokens);
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
  if (view.has("chat_template_kwargs")) {
    view.at("chat_template_kwargs").object();
    variables = ordered.at("chat_template_kwargs");
  }
  if (view.has("tools")) {
    view.at("tools").size();
    variables["tools"] = ordered.at("tools");
  }
  const JsonView given = view.at("messages");
  const nlohmann::ordered_json messages = messages_of(given, ordered.at("messages"));
  request.prompts.push_back({prompts.tokens(messages, variables), {}});
  request.end_tokens = prompts.end_tokens();
  request.stop.insert(request.stop.end(), prompts.stops().begin(), prompts.stops().end());
  return request;
}

}  // namespace trifold
