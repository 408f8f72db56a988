#include <fmt/core.h>

#include <atomic>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/printable.h"
#include "core/read_json.h"
#include "launch/commands.h"
#include "launch/process/signals.h"
#include "launch/sampling/sampled_model.h"
#include "launch/say.h"
#include "monitor/http_server.h"
#include "train/sampling/completions.h"

namespace trifold::launch {

namespace {

constexpr const char* kCompletions = "/v1/completions";
constexpr const char* kChats = "/v1/chat/completions";
constexpr const char* kModels = "/v1/models";

// Clients wait while others are answered, so a connection may last long.
const HttpLimits kLimits{256, 64 << 10, uint64_t{32} << 20, std::chrono::minutes(10)};

HttpAnswer json_answer(unsigned status, const nlohmann::ordered_json& object) {
  return {status, "application/json", json_text(object) + "\n", {}};
}

HttpAnswer error_answer(unsigned status, const std::string& message) {
  const char* const kind = status < 500 ? "invalid_request_error" : "server_error";
  return json_answer(status, {{"error", {{"message", message}, {"type", kind}, {"code", status}}}});
}

HttpAnswer only(const char* method, const char* path) {
  HttpAnswer answer = error_answer(405, fmt::format("{} is for {}", path, method));
  answer.allow = method;
  return answer;
}

// The answer to what went wrong.
HttpAnswer failed_answer(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::BadInput) return error_answer(400, error.what());
    return error_answer(error.kind() == ErrorKind::Aborted ? 503 : 500, error.what());
  } catch (const std::bad_alloc&) {
    return error_answer(500, "there is not enough memory for the answer: ask for less at once");
  } catch (const std::exception& error) {
    return error_answer(500, error.what());
  }
}

std::string event(const std::string& data) { return "data: " + data + "\n\n"; }

// An answer in pieces as server-sent events: an object for each piece, then [DONE]. An error ends it without.
HttpAnswer events_answer(CompletionAnswer answer) {
  HttpAnswer events{200, "text/event-stream", {}, {}, {}};
  events.more = [next = std::move(answer.next), done = false]() mutable -> std::optional<std::string> {
    if (done) return std::nullopt;
    try {
      if (const std::optional<nlohmann::ordered_json> piece = next()) return event(json_text(*piece));
      done = true;
      return event("[DONE]");
    } catch (...) {
      done = true;
      const std::string error = failed_answer(std::current_exception()).body;
      return event(error.substr(0, error.size() - 1));  // without its line end
    }
  };
  return events;
}

HttpAnswer completion_answer(CompletionAnswer answer) {
  return answer.next ? events_answer(std::move(answer)) : json_answer(200, answer.whole);
}

// Whatever is wrong with a request, the server answers the next.
HttpAnswer answer_to(const HttpRequest& request, Completions& completions) {
  try {
    const bool posted = request.method == "POST";
    if (request.path == kCompletions)
      return posted ? completion_answer(completions.answer(request.body)) : only("POST", kCompletions);
    if (request.path == kChats)
      return posted ? completion_answer(completions.answer_chat(request.body)) : only("POST", kChats);
    if (request.path == kModels)
      return request.method == "GET" ? json_answer(200, completions.models()) : only("GET", kModels);
    return error_answer(404, fmt::format("there is no {}: POST {} or {}, or GET {}", request.path,
                                         kCompletions, kChats, kModels));
  } catch (...) {
    return failed_answer(std::current_exception());
  }
}

}  // namespace

int run(const ServeConfig& config, Ranks& ranks) {
  const std::atomic<int>& signal = catch_signals();
  const SampledPlace place{config.tensor_model_parallel_size, config.threads_per_rank, Caching::KeysAndValues,
                           config.dtype, config.load_ema};
  with_sampled_model(config.load, config.data, place, ranks, [&](const SampledModel& model) {
    const CheckpointModel& checkpoint = model.checkpoint;
    const auto chat = [&] { return chat_prompts_of(checkpoint, config.data, model.tokenizer, kChats); };
    Completions completions(model.sampler, model.tokenizer, *checkpoint.model.vocab_size,
                            std::filesystem::path(checkpoint.directory).filename().string(),
                            end_tokens_of(checkpoint), chat, signal);
    HttpServer server(
        {"127.0.0.1", config.port, {}, "--port"}, kLimits,
        error_answer(400, fmt::format("the request is not HTTP, or too large: POST {}", kCompletions)),
        [&](const HttpRequest& request) { return answer_to(request, completions); });
    say(stderr, fmt::format("serving     {}{} and {}  ({}, step {}, {} tokens at most; {})\n", server.url(),
                            kCompletions, kChats, printable(checkpoint.directory), checkpoint.step,
                            model.sampler.window(), cache_line(model.sampler)));
    server.serve_until(signal);
  });
  say(stderr, "trifold: the server was stopped by a signal\n");
  return kDone;
}

}  // namespace trifold::launch
