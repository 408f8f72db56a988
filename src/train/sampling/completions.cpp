#include "train/sampling/completions.h"

#include <algorithm>
#include <chrono>

#include "core/error.h"
#include "tokenize/unicode/unicode.h"
#include "train/sampling/continuation.h"

namespace trifold {

namespace {

using nlohmann::ordered_json;

int64_t seconds_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Cuts `text` before the first of `stops` in it, of which none was in its first `searched` bytes. Returns whether there
// was one.
bool cut_at_stop(std::string& text, const std::vector<std::string>& stops, size_t searched) {
  size_t first = std::string::npos;
  for (const std::string& stop : stops) {
    const size_t from = searched < stop.size() ? 0 : searched - stop.size() + 1;
    first = std::min(first, text.find(stop, from));
  }
  if (first == std::string::npos) return false;
  text.resize(first);
  return true;
}

}  // namespace

Completions::Completions(Sampler& sampler, const Tokenizer& tokenizer, int64_t model_vocab, std::string name,
                         const std::atomic<int>& signal)
    : sampler_(sampler),
      tokenizer_(tokenizer),
      model_vocab_(model_vocab),
      name_(std::move(name)),
      signal_(signal),
      created_(seconds_now()) {}

ordered_json Completions::models() const {
  return {
      {"object", "list"},
      {"data", ordered_json::array(
                   {{{"id", name_}, {"object", "model"}, {"created", created_}, {"owned_by", "trifold"}}})}};
}

void Completions::expect_no_signal() const {
  if (signal_.load() != 0) throw Error("the server is being stopped", ErrorKind::Aborted);
}

// To score a prompt, its last token need not be given to the model.
void Completions::expect_room(const CompletionRequest& request) const {
  const int64_t most = sampler_.window() + (request.echo && request.logprobs ? 1 : 0);
  for (const CompletionPrompt& prompt : request.prompts)
    if (std::ssize(prompt.tokens) > most)
      bad_input("the request: a prompt has {} tokens; the model takes at most {}: leave out its beginning",
                prompt.tokens.size(), most);
}

// Prompts are texts one after the other in the order of draws.
Completions::Completion Completions::complete(const CompletionRequest& request, size_t prompt) {
  Completion completion;
  const auto stops = [&](std::string_view piece) {
    const size_t searched = completion.text.size();
    completion.text += piece;
    return cut_at_stop(completion.text, request.stop, searched);
  };
  const Drawing drawing{request.rule, request.seed, prompt * static_cast<uint64_t>(request.max_tokens),
                        request.max_tokens};
  bool cut = false;
  const std::string rest = continue_tokens(
      sampler_, tokenizer_, request.prompts[prompt].tokens, drawing, [&](const DrawnToken& drawn) {
        expect_no_signal();
        ++completion.tokens;
        if (request.logprobs)
          completion.scores.push_back(score_token(drawn.logits, drawn.token, *request.logprobs));
        cut = stops(drawn.piece);
        completion.stopped = cut || drawn.ends_text;
        return !cut;
      });
  if (!cut && stops(rest)) completion.stopped = true;
  return completion;
}

// The token's text. Bytes that are no whole characters are written as bytes, as in "bytes:\xe2\x80".
std::string Completions::name_of(int32_t token) const {
  if (token >= tokenizer_.vocab_size()) return fmt::format("token_id:{}", token);
  std::string text = tokenizer_.decode({&token, 1});
  if (!invalid_utf8(text) && text.find("\xEF\xBF\xBD") == std::string::npos) return text;
  std::string bytes = "bytes:";
  for (const char c : text) bytes += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return bytes;
}

// The first token of a prompt has no probability. The token itself is always in the list of the likeliest. Of two tokens
// with the same text, the second is named by its id.
ordered_json Completions::log_probabilities(const CompletionRequest& request, const CompletionPrompt& prompt,
                                            const Completion& completion) {
  ordered_json tokens = ordered_json::array(), own = tokens, top = tokens;
  const auto add = [&](const TokenScore& score) {
    tokens.push_back(name_of(score.token));
    own.push_back(score.log_probability);
    ordered_json likeliest = ordered_json::object();
    const auto name = [&](int32_t id, double value) {
      const std::string text = name_of(id);
      likeliest[likeliest.contains(text) ? fmt::format("token_id:{}", id) : text] = value;
    };
    bool named = false;
    for (const auto& [id, value] : score.best) {
      name(id, value);
      named = named || id == score.token;
    }
    if (!named) name(score.token, score.log_probability);
    top.push_back(std::move(likeliest));
  };
  if (request.echo) {
    if (!prompt.tokens.empty()) {
      tokens.push_back(name_of(prompt.tokens.front()));
      own.push_back(nullptr);
      top.push_back(nullptr);
    }
    expect_no_signal();
    for (const TokenScore& score : sampler_.score(prompt.tokens, *request.logprobs)) add(score);
  }
  for (const TokenScore& score : completion.scores) add(score);
  return {
      {"tokens", std::move(tokens)}, {"token_logprobs", std::move(own)}, {"top_logprobs", std::move(top)}};
}

ordered_json Completions::choice(const CompletionRequest& request, size_t index,
                                 const Completion& completion) {
  const CompletionPrompt& prompt = request.prompts[index];
  ordered_json choice{{"index", index},
                      {"text", request.echo ? prompt.text + completion.text : completion.text},
                      {"logprobs", nullptr},
                      {"finish_reason", completion.stopped ? "stop" : "length"}};
  if (request.logprobs) choice["logprobs"] = log_probabilities(request, prompt, completion);
  return choice;
}

ordered_json Completions::answer(std::string_view body) {
  const CompletionRequest request = read_completion_request(body, tokenizer_, model_vocab_);
  expect_room(request);
  ordered_json choices = ordered_json::array();
  int64_t given = 0, made = 0;
  for (size_t i = 0; i < request.prompts.size(); ++i) {
    const Completion completion = complete(request, i);
    choices.push_back(choice(request, i, completion));
    given += std::ssize(request.prompts[i].tokens);
    made += completion.tokens;
  }
  return {{"id", fmt::format("cmpl-{}", ++answers_)},
          {"object", "text_completion"},
          {"created", seconds_now()},
          {"model", name_},
          {"choices", std::move(choices)},
          {"usage", {{"prompt_tokens", given}, {"completion_tokens", made}, {"total_tokens", given + made}}}};
}

}  // namespace trifold
