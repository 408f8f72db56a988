#include "launch/sampling/chat.h"

#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/printable.h"
#include "launch/process/signals.h"
#include "launch/say.h"
#include "tokenize/unicode/unicode.h"
#include "train/sampling/chat_prompts.h"

namespace trifold::launch {

namespace {

using nlohmann::ordered_json;

// The messages that a user writes.
class Messages {
 public:
  Messages() : terminal_(::isatty(STDIN_FILENO) == 1) {}

  bool terminal() const { return terminal_; }

  // The next message: a line, on a terminal with the lines that a backslash at the end continues. None at the end of input.
  std::optional<std::string> next() {
    std::string message;
    for (bool first = true;; first = false) {
      if (terminal_) say(stdout, first ? "> " : ". ");
      std::optional<std::string> line = read_line();
      if (!line) return std::nullopt;
      const bool goes_on = terminal_ && line->ends_with('\\');
      if (goes_on) line->back() = '\n';
      if (std::exchange(dropped_, false)) message.clear();
      message += *line;
      if (!goes_on) return replace_invalid_utf8(message);
    }
  }

 private:
  // A line without its end; the last one may have none.
  std::optional<std::string> read_line() {
    size_t end = 0;
    while ((end = read_.find('\n')) == std::string::npos)
      if (!read_more()) {
        if (read_.empty()) return std::nullopt;
        end = read_.size();
        break;
      }
    std::string line = read_.substr(0, end);
    read_.erase(0, end + 1);
    if (line.ends_with('\r')) line.pop_back();
    return line;
  }

  // Reads the bytes that have arrived; false at the end of input. A signal may arrive at another thread than this one, which therefore
  // looks for it ten times a second. Ctrl-C at the prompt drops the line.
  bool read_more() {
    while (terminal_) {
      pollfd wanted{STDIN_FILENO, POLLIN, 0};
      if (::poll(&wanted, 1, 100) > 0) break;
      if (!take_interrupt()) continue;
      read_.clear();
      dropped_ = true;
      say(stdout, "\n(/exit or Ctrl-D ends the conversation)\n> ");
    }
    std::array<char, 4096> part{};
    ssize_t size = 0;
    do size = ::read(STDIN_FILENO, part.data(), part.size());
    while (size < 0 && errno == EINTR);
    if (size > 0) read_.append(part.data(), static_cast<size_t>(size));
    return size > 0;
  }

  bool terminal_;
  std::string read_;      // and not yet returned
  bool dropped_ = false;  // the message so far, by Ctrl-C
};

class Talk {
 public:
  Talk(const GenerateConfig& config, const SampledModel& model)
      : model_(model),
        prompts_(chat_prompts_of(model.checkpoint, config.data, model.tokenizer, "--chat")),
        drawing_(drawing_of(config)) {
    drawing_.end_tokens = prompts_.end_tokens();
    drawing_.stops.insert(drawing_.stops.end(), prompts_.stops().begin(), prompts_.stops().end());
    if (config.system) system_ = chat_message("system", *config.system);
    reset();
  }

  void reset() {
    said_ = ordered_json::array();
    if (!system_.is_null()) said_.push_back(system_);
  }

  // Answers a message; a signal stops the answer, which stays as it is.
  void answer(const std::string& message) {
    said_.push_back(chat_message("user", message));
    Continuation continuation(model_.sampler, model_.tokenizer, prompt(), drawing_);
    take_interrupt();
    std::string text;
    const auto show = [&](const std::string& piece) {
      text += piece;
      say(stdout, piece);
    };
    while (const std::optional<DrawnToken> drawn = continuation.next()) {
      show(drawn->piece);
      if (take_interrupt()) break;
    }
    show(continuation.rest());
    say(stdout, "\n");
    said_.push_back(chat_message("assistant", text));
    drawing_.first += static_cast<uint64_t>(drawing_.tokens);
  }

 private:
  // The tokens of the conversation. The oldest messages, after the system's, are left out until it leaves room for an
  // answer of a token: a pair at a time, since templates expect users and models to take turns.
  std::vector<int32_t> prompt() {
    const int64_t first = system_.is_null() ? 0 : 1;
    std::vector<int32_t> tokens = prompts_.tokens(said_);
    int64_t left_out = 0;
    while (std::ssize(tokens) >= model_.sampler.window()) {
      if (std::ssize(said_) < first + 3)
        bad_input("the message has {} tokens with what precedes it; the model takes at most {}",
                  tokens.size(), model_.sampler.window() - 1);
      said_.erase(said_.begin() + first, said_.begin() + first + 2);
      left_out += 2;
      tokens = prompts_.tokens(said_);
    }
    if (left_out > 0)
      say(stderr,
          fmt::format(
              "trifold: the conversation is longer than the model's window of {} tokens: its {} oldest "
              "messages were left out\n",
              model_.sampler.window(), left_out));
    return tokens;
  }

  const SampledModel& model_;
  ChatPrompts prompts_;
  Drawing drawing_;
  ordered_json system_;  // or null
  ordered_json said_;
};

}  // namespace

Drawing drawing_of(const GenerateConfig& config) {
  return {.rule = {.temperature = config.temperature,
                   .top_k = config.top_k,
                   .top_p = config.top_p,
                   .min_p = config.min_p,
                   .repetition_penalty = config.repetition_penalty},
          .seed = config.seed,
          .tokens = config.max_new_tokens,
          .stops = config.stop};
}

void talk(const GenerateConfig& config, const SampledModel& model) {
  Talk conversation(config, model);
  Messages messages;
  if (messages.terminal()) {
    interrupts_are_taken();
    say(stdout,
        fmt::format(
            "{}, {}\n/reset forgets the conversation, /exit or Ctrl-D ends it, Ctrl-C stops an answer\n",
            printable(std::filesystem::path(model.checkpoint.directory).filename().string()),
            cache_line(model.sampler)));
  }
  while (const std::optional<std::string> message = messages.next()) {
    if (*message == "/exit") return;
    if (*message == "/reset")
      conversation.reset();
    else if (!message->empty())
      conversation.answer(*message);
  }
  if (messages.terminal()) say(stdout, "\n");
}

}  // namespace trifold::launch
