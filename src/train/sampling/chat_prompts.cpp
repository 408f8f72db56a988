#include "train/sampling/chat_prompts.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/error.h"
#include "core/read_json.h"
#include "core/trimmed.h"
#include "models/folders/tokenizer_files.h"
#include "train/tuning/chat_tasks.h"

namespace trifold {

namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr std::string_view kWhiteSpace = " \t\r\n";

// Whether the token is a special one: its name is in brackets, and it is found in a text that surrounds it.
bool is_special(const Tokenizer& tokenizer, int32_t id, const std::string& name) {
  if (name.size() < 3 || (name.front() != '<' && name.front() != '[')) return false;
  std::vector<int32_t> ids;
  tokenizer.encode("a" + name + "a", ids);
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

ordered_json chat_message(const std::string& role, const std::string& content) {
  ordered_json message = ordered_json::object();
  message["role"] = role;
  message["content"] = content;
  return message;
}

ChatPrompts::ChatPrompts(ChatTemplate chat, const Tokenizer& tokenizer, std::vector<int32_t> end_tokens)
    : chat_(std::move(chat)), tokenizer_(tokenizer), end_tokens_(std::move(end_tokens)) {
  find_end_of_turn();
}

// White space after a mark belongs to the template, not to the answer; white space alone is all that there is.
TurnEnd end_of_turn(const std::string& after_answer, const Tokenizer& tokenizer) {
  const std::string mark(trimmed(after_answer, kWhiteSpace));
  if (mark.empty()) return {{}, after_answer};
  std::vector<int32_t> ids;
  tokenizer.encode(mark, ids);
  if (!ids.empty()) {
    const std::string name = tokenizer.name_of_token(ids.front());
    if (mark.starts_with(name) && is_special(tokenizer, ids.front(), name)) return {ids.front(), {}};
  }
  return {{}, after_answer.substr(0, after_answer.find(mark) + mark.size())};
}

// Renders a short conversation and reads what follows the answer. White space ends an answer only if nothing else does,
// since answers may contain it.
void ChatPrompts::find_end_of_turn() {
  static constexpr const char* kAnswer = "Trifold answers.";
  std::string text;
  try {
    text =
        chat_
            .render(ordered_json::array({chat_message("user", "Hello"), chat_message("assistant", kAnswer)}),
                    false)
            .text;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::BadInput) throw;
    return;  // a template that refuses such a conversation
  }
  const size_t at = text.rfind(kAnswer);
  if (at == std::string::npos) return;
  const TurnEnd end = end_of_turn(text.substr(at + std::string_view(kAnswer).size()), tokenizer_);
  const bool space = trimmed(end.text, kWhiteSpace).empty();
  if (!end.text.empty() && !(space && !end_tokens_.empty())) stops_ = {end.text};
  if (end.token && std::find(end_tokens_.begin(), end_tokens_.end(), *end.token) == end_tokens_.end())
    end_tokens_.push_back(*end.token);
}

std::vector<int32_t> ChatPrompts::tokens(const ordered_json& messages, const ordered_json& variables) const {
  std::vector<int32_t> ids;
  tokenizer_.encode(chat_.render(messages, true, variables).text, ids);
  return ids;
}

std::vector<int32_t> end_tokens_of(const CheckpointModel& from) {
  std::vector<fs::path> folders;
  if (!from.attachments.empty()) folders.emplace_back(from.attachments);
  if (from.data.tokenizer_model) folders.push_back(fs::path(*from.data.tokenizer_model).parent_path());
  for (const fs::path& folder : folders) {
    const fs::path file = folder / kGenerationConfig;
    std::error_code ignored;
    if (!fs::is_regular_file(file, ignored)) continue;
    const nlohmann::json whole = read_json_file(file.string());
    const JsonView view(whole, file.string());
    if (!view.has("eos_token_id")) continue;
    const JsonView field = view.at("eos_token_id");
    const int64_t last = *from.model.vocab_size - 1;
    std::vector<int32_t> ids;
    if (field.value().is_array())
      for (const int64_t id : field.integers(0, last)) ids.push_back(static_cast<int32_t>(id));
    else
      ids.push_back(static_cast<int32_t>(field.integer(0, last)));
    return ids;
  }
  return {};
}

ChatPrompts chat_prompts_of(const CheckpointModel& from, const DataConfig& given, const Tokenizer& tokenizer,
                            const std::string& reader) {
  DataConfig data = given;
  inherit_tokenizer(data, from, true);
  expect_template_tokens(data, reader);
  return ChatPrompts(ChatTemplate(need_chat_template(data, tokenizer, reader)), tokenizer,
                     end_tokens_of(from));
}

}  // namespace trifold
