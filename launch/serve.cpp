#include <fmt/core.h>

#include <atomic>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "core/error.h"
#include "core/printable.h"
#include "core/read_json.h"
#include "launch/commands.h"
#include "launch/process/signals.h"
#include "launch/sampled_model.h"
#include "launch/say.h"
#include "monitor/http_server.h"
#include "train/sampling/completions.h"

namespace trifold::launch {

namespace {

constexpr const char* kCompletions = "/v1/completions";
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

// Whatever is wrong with a request, the server answers the next.
HttpAnswer answer_to(const HttpRequest& request, Completions& completions) {
  try {
    if (request.path == kCompletions)
      return request.method == "POST" ? json_answer(200, completions.answer(request.body))
                                      : only("POST", kCompletions);
    if (request.path == kModels)
      return request.method == "GET" ? json_answer(200, completions.models()) : only("GET", kModels);
    return error_answer(
        404, fmt::format("there is no {}: POST {} or GET {}", request.path, kCompletions, kModels));
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::BadInput) return error_answer(400, error.what());
    return error_answer(error.kind() == ErrorKind::Aborted ? 503 : 500, error.what());
  } catch (const std::bad_alloc&) {
    return error_answer(500, "there is not enough memory for the answer: ask for less at once");
  } catch (const std::exception& error) {
    return error_answer(500, error.what());
  }
}

}  // namespace

int run(const ServeConfig& config, Ranks& ranks) {
  const std::atomic<int>& signal = catch_signals();
  with_sampled_model(
      config.load, config.data, config.threads_per_rank, ranks, [&](const SampledModel& model) {
        const CheckpointModel& checkpoint = model.checkpoint;
        Completions completions(model.sampler, model.tokenizer, *checkpoint.model.vocab_size,
                                std::filesystem::path(checkpoint.directory).filename().string(), signal);
        HttpServer server(
            {"127.0.0.1", config.port, {}, "--port"}, kLimits,
            error_answer(400, fmt::format("the request is not HTTP, or too large: POST {}", kCompletions)),
            [&](const HttpRequest& request) { return answer_to(request, completions); });
        say(stderr,
            fmt::format("serving     {}{}  ({}, step {}, {} tokens at most)\n", server.url(), kCompletions,
                        printable(checkpoint.directory), checkpoint.step, model.sampler.window()));
        server.serve_until(signal);
      });
  say(stderr, "trifold: the server was stopped by a signal\n");
  return kDone;
}

}  // namespace trifold::launch
