#include "train/sampling/completions.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "core/error.h"
#include "tokenize/unicode/unicode.h"

namespace trifold {

namespace {

using nlohmann::ordered_json;

int64_t seconds_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

constexpr int64_t kUsualTokens = 16;  // the default of a completion

ordered_json usage_of(int64_t given, int64_t made) {
  return {{"prompt_tokens", given}, {"completion_tokens", made}, {"total_tokens", given + made}};
}

const char* reason_of(bool stopped) { return stopped ? "stop" : "length"; }

// An answer without its choices. `object` is its kind.
ordered_json frame_of(const std::string& id, const char* object, int64_t created, const std::string& model) {
  return {{"id", id}, {"object", object}, {"created", created}, {"model", model}};
}

}  // namespace

Completions::Completions(Sampler& sampler, const Tokenizer& tokenizer, int64_t model_vocab, std::string name,
                         std::vector<int32_t> end_tokens, std::function<ChatPrompts()> chat,
                         const std::atomic<int>& signal)
    : sampler_(sampler),
      tokenizer_(tokenizer),
      model_vocab_(model_vocab),
      name_(std::move(name)),
      end_tokens_(std::move(end_tokens)),
      open_chat_(std::move(chat)),
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

// To score a prompt, its last token need not be given to the model. An answer to a chat needs room for a token.
void Completions::expect_room(const CompletionRequest& request) const {
  const int64_t most =
      sampler_.window() + (request.echo && request.logprobs ? 1 : 0) - (request.chat ? 1 : 0);
  for (const CompletionPrompt& prompt : request.prompts)
    if (std::ssize(prompt.tokens) > most)
      bad_input("the request: a {} has {} tokens; the model takes at most {}: leave out its beginning",
                request.chat ? "conversation" : "prompt", prompt.tokens.size(), most);
}

// Prompts are texts one after the other in the order of draws.
Continuation Completions::begin(const CompletionRequest& request, size_t prompt) {
  if (request.seed) sampler_.forget();
  const std::vector<int32_t>& tokens = request.prompts[prompt].tokens;
  const int64_t usual = request.chat ? sampler_.window() - std::ssize(tokens) : kUsualTokens;
  Drawing drawing{.rule = request.rule,
                  .seed = request.seed.value_or(1234),
                  .tokens = request.max_tokens.value_or(usual),
                  .end_tokens = request.end_tokens,
                  .stops = request.stop};
  drawing.first = prompt * static_cast<uint64_t>(drawing.tokens);
  return Continuation(sampler_, tokenizer_, tokens, std::move(drawing));
}

Completions::Completion Completions::complete(const CompletionRequest& request, size_t prompt) {
  Continuation continuation = begin(request, prompt);
  Completion completion;
  while (const std::optional<DrawnToken> drawn = continuation.next()) {
    expect_no_signal();
    if (request.logprobs)
      completion.scores.push_back(score_token(drawn->logits, drawn->token, *request.logprobs));
    completion.text += drawn->piece;
  }
  completion.text += continuation.rest();
  completion.tokens = continuation.drawn();
  completion.stopped = continuation.stopped();
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
  ordered_json choice{{"index", index}};
  if (request.chat)
    choice["message"] = chat_message("assistant", completion.text);
  else
    choice["text"] = request.echo ? prompt.text + completion.text : completion.text;
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = reason_of(completion.stopped);
  if (request.logprobs) choice["logprobs"] = log_probabilities(request, prompt, completion);
  return choice;
}

// An answer in pieces: for each choice the texts as they are drawn, then why it ended.
class Completions::Pieces {
 public:
  Pieces(Completions& all, CompletionRequest request, ordered_json frame)
      : all_(all), request_(std::move(request)), frame_(std::move(frame)) {}

  std::optional<ordered_json> next() {
    while (index_ < request_.prompts.size()) {
      if (!continuation_) return first_piece();
      all_.expect_no_signal();
      const std::optional<DrawnToken> drawn = continuation_->next();
      if (drawn && drawn->piece.empty()) continue;
      if (drawn) return piece(drawn->piece, nullptr);
      return last_piece();
    }
    if (!request_.stream_usage || std::exchange(done_, true)) return std::nullopt;
    ordered_json last = frame_;
    last["choices"] = ordered_json::array();
    last["usage"] = usage_of(given_, made_);
    return last;
  }

 private:
  ordered_json first_piece() {
    continuation_.emplace(all_.begin(request_, index_));
    const std::string start = request_.echo ? request_.prompts[index_].text : std::string();
    ordered_json first = piece(start, nullptr);
    if (request_.chat) first["choices"][0]["delta"] = chat_message("assistant", "");
    return first;
  }
  ordered_json last_piece() {
    const std::string rest = continuation_->rest();
    made_ += continuation_->drawn();
    given_ += std::ssize(request_.prompts[index_].tokens);
    ordered_json last = piece(rest, reason_of(continuation_->stopped()));
    continuation_.reset();
    ++index_;
    return last;
  }
  // A piece of the current choice; `reason` ends it.
  ordered_json piece(const std::string& text, const char* reason) const {
    ordered_json choice{{"index", index_}};
    if (request_.chat) {
      choice["delta"] = ordered_json::object();
      if (!text.empty()) choice["delta"]["content"] = text;
    } else {
      choice["text"] = text;
    }
    choice["logprobs"] = nullptr;
    choice["finish_reason"] = nullptr;
    if (reason != nullptr) choice["finish_reason"] = reason;
    ordered_json whole = frame_;
    whole["choices"] = ordered_json::array({std::move(choice)});
    return whole;
  }

  Completions& all_;
  CompletionRequest request_;
  ordered_json frame_;
  size_t index_ = 0;
  std::optional<Continuation> continuation_;  // the current choice, once it has begun
  int64_t given_ = 0, made_ = 0;
  bool done_ = false;
};

CompletionAnswer Completions::answer_to(CompletionRequest request) {
  expect_room(request);
  const std::string id = fmt::format("{}-{}", request.chat ? "chatcmpl" : "cmpl", ++answers_);
  const auto frame = [&](const char* object) { return frame_of(id, object, seconds_now(), name_); };
  if (request.stream) {
    ordered_json empty = frame(request.chat ? "chat.completion.chunk" : "text_completion");
    auto pieces = std::make_shared<Pieces>(*this, std::move(request), std::move(empty));
    return {{}, [pieces] { return pieces->next(); }};
  }
  ordered_json choices = ordered_json::array();
  int64_t given = 0, made = 0;
  for (size_t i = 0; i < request.prompts.size(); ++i) {
    const Completion completion = complete(request, i);
    choices.push_back(choice(request, i, completion));
    given += std::ssize(request.prompts[i].tokens);
    made += completion.tokens;
  }
  ordered_json whole = frame(request.chat ? "chat.completion" : "text_completion");
  whole["choices"] = std::move(choices);
  whole["usage"] = usage_of(given, made);
  return {std::move(whole), {}};
}

CompletionAnswer Completions::answer(std::string_view body) {
  CompletionRequest request = read_completion_request(body, tokenizer_, model_vocab_);
  request.end_tokens = end_tokens_;
  return answer_to(std::move(request));
}

CompletionAnswer Completions::answer_chat(std::string_view body) {
  if (!chat_) chat_.emplace(open_chat_());
  return answer_to(read_chat_request(body, *chat_));
}

}  // namespace trifold
