#include "tasks/chat/conversations.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/plain_text.h"
#include "core/printable.h"
#include "core/read_json.h"
#include "files/mapped_file.h"
#include "files/mapped_lines.h"
#include "tokenize/unicode/unicode.h"

namespace trifold {

namespace {

using Json = nlohmann::ordered_json;  // templates see members in the order of the file

constexpr int64_t kMostRecordBytes = int64_t{64} << 20;
constexpr JsonLimits kListLimits{int64_t{1} << 30, 64, 200'000'000};

constexpr std::string_view kForms =
    R"(one of {"messages": [...]}, {"conversations": [...]}, {"instruction": ..., "output": ...} and )"
    R"({"prompt": ..., "completion": ...} is needed)";

// The roles that chat templates know.
constexpr std::array<std::string_view, 7> kRoles{"system", "developer", "user",   kAnswerRole,
                                                 "tool",   "function",  "ipython"};

// ShareGPT's names of them.
constexpr std::pair<std::string_view, std::string_view> kSenders[] = {
    {"human", "user"},          {"user", "user"},        {"gpt", kAnswerRole}, {"chatgpt", kAnswerRole},
    {"assistant", kAnswerRole}, {"model", kAnswerRole},  {"bot", kAnswerRole}, {"system", "system"},
    {"tool", "tool"},           {"observation", "tool"}, {"function", "tool"}, {"function_response", "tool"},
};

bool is_given(const Json& record, const char* field) {
  return record.contains(field) && !record[field].is_null();
}

const Json& text_field(const Json& record, const char* field) {
  check(is_given(record, field), "the record has no field \"{}\"", field);
  check(record[field].is_string(), "the field \"{}\" is not a string", field);
  return record[field];
}

// The name under which a record has what follows its prompt; null: none.
const char* completion_field(const Json& record) {
  for (const char* field : {"completion", "answer", "response"})
    if (is_given(record, field)) return field;
  return nullptr;
}

Json message(std::string_view role, Json content) {
  Json made = Json::object();
  made["role"] = std::string(role);
  made["content"] = std::move(content);
  return made;
}

void check_message(const Json& one, size_t number) {
  check(one.is_object(), "message {} is not an object with \"role\" and \"content\"", number);
  check(is_given(one, "role") && one["role"].is_string(), "message {} has no \"role\"", number);
  const auto role = one["role"].get<std::string>();
  check(std::find(kRoles.begin(), kRoles.end(), role) != kRoles.end(),
        "message {} has the role '{}', which is none of {}", number, printable(role),
        fmt::join(kRoles, ", "));
  const bool calls = is_given(one, "tool_calls") || is_given(one, "function_call");
  check(is_given(one, "content") || calls, "message {} has no \"content\"", number);
  check(!is_given(one, "content") || one["content"].is_string() || one["content"].is_array(),
        "the \"content\" of message {} is not a string", number);
}

void append_messages(const Json& list, const char* field, Json& messages) {
  check(list.is_array(), "the field \"{}\" is not a list of messages", field);
  for (const Json& one : list) {
    check_message(one, messages.size() + 1);
    messages.push_back(one);
  }
}

Json shared_messages(const Json& record) {
  const Json& turns = record["conversations"];
  check(turns.is_array(), "the field \"conversations\" is not a list");
  Json messages = Json::array();
  if (is_given(record, "system") && !text_field(record, "system").get_ref<const std::string&>().empty())
    messages.push_back(message("system", record["system"]));
  for (const Json& turn : turns) {
    const size_t number = messages.size() + 1;
    if (turn.is_object() && turn.contains("role")) {
      check_message(turn, number);
      messages.push_back(turn);
      continue;
    }
    check(turn.is_object() && is_given(turn, "from") && turn["from"].is_string(),
          "message {} has no \"from\"", number);
    check(is_given(turn, "value") && turn["value"].is_string(),
          "message {} has no \"value\" that is a string", number);
    const auto from = turn["from"].get<std::string>();
    const auto sender = std::find_if(std::begin(kSenders), std::end(kSenders),
                                     [&](const auto& known) { return known.first == from; });
    check(sender != std::end(kSenders),
          "message {} is from '{}', which is none of human, gpt, system and tool", number, printable(from));
    messages.push_back(message(sender->second, turn["value"]));
  }
  return messages;
}

// Alpaca's instruction with its input.
std::string instruction_of(const Json& record) {
  auto text = text_field(record, "instruction").get<std::string>();
  if (!is_given(record, "input")) return text;
  const auto input = text_field(record, "input").get<std::string>();
  return input.empty() ? text : text + "\n" + input;
}

}  // namespace

void append_part(const Json& record, const char* field, std::string_view role, Json& messages) {
  const Json& part = record[field];
  if (part.is_string()) return messages.push_back(message(role, part));
  check(part.is_array(), "the field \"{}\" is neither a string nor a list of messages", field);
  append_messages(part, field, messages);
}

Json template_variables(const Json& record) {
  Json variables = Json::object();
  if (is_given(record, "tools")) {
    variables["tools"] = record["tools"];
    // Some data sets hold the list as text.
    if (record["tools"].is_string()) {
      const auto text = record["tools"].get<std::string>();
      parse_json(text, "the field \"tools\"", kJsonLineLimits);
      variables["tools"] = Json::parse(text);
    }
  }
  if (is_given(record, "chat_template_kwargs")) {
    check(record["chat_template_kwargs"].is_object(), "the field \"chat_template_kwargs\" is not an object");
    variables.update(record["chat_template_kwargs"]);
  }
  return variables;
}

void expect_answer(const Conversation& conversation) {
  const Json& messages = conversation.messages;
  bool answers = false;
  for (size_t i = conversation.answers_from; i < messages.size(); ++i)
    answers = answers || messages[i]["role"] == kAnswerRole;
  check(answers, "the conversation has no message of the role \"{}\" to learn", kAnswerRole);
}

namespace {

Conversation conversation_of(const Json& record) {
  Conversation made;
  made.messages = Json::array();
  if (is_given(record, "messages")) {
    append_messages(record["messages"], "messages", made.messages);
  } else if (is_given(record, "conversations")) {
    made.messages = shared_messages(record);
  } else if (is_given(record, "instruction")) {
    if (is_given(record, "system")) made.messages.push_back(message("system", text_field(record, "system")));
    made.messages.push_back(message("user", instruction_of(record)));
    made.messages.push_back(message(kAnswerRole, text_field(record, "output")));
  } else if (const char* completion = completion_field(record); completion && is_given(record, "prompt")) {
    append_part(record, "prompt", "user", made.messages);
    made.answers_from = made.messages.size();
    append_part(record, completion, kAnswerRole, made.messages);
  } else {
    fail("{}", kForms);
  }
  expect_answer(made);
  made.variables = template_variables(record);
  return made;
}

PromptAnswer prompt_of(const Json& record) {
  if (is_given(record, "text")) return {"", text_field(record, "text").get<std::string>(), {}};
  if (is_given(record, "instruction"))
    return {instruction_of(record) + "\n", text_field(record, "output").get<std::string>(), {}};
  const char* completion = completion_field(record);
  check(completion != nullptr && is_given(record, "prompt"), "{}",
        is_given(record, "messages") || is_given(record, "conversations")
            ? std::string_view("a conversation needs a chat template: give --task chat")
            : std::string_view(R"(one of {"prompt": ..., "completion": ...}, {"instruction": ..., )"
                               R"("output": ...} and {"text": ...} is needed)"));
  return {
      text_field(record, "prompt").get<std::string>(), text_field(record, completion).get<std::string>(), {}};
}

}  // namespace

void for_each_record(const std::string& path, std::string_view forms,
                     FunctionRef<void(const Json& record, const std::string& where)> take) {
  const MappedFile file(path);
  expect_plain_text(file.text(), path);
  const auto handle = [&](const Json& record, std::string where) {
    try {
      check(record.is_object(), "is not a JSON object: {}", forms);
      take(record, where);
    } catch (const std::exception& error) {
      bad_input("{}: {}", where, error.what());
    }
  };
  std::string_view text = file.text();
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // a byte-order mark
  if (const size_t first = white_space_at_start(text); first < text.size() && text[first] == '[') {
    parse_json(text, path, kListLimits);  // the limits, and messages with line and column
    const Json all = Json::parse(text);
    for (size_t i = 0; i < all.size(); ++i) handle(all[i], fmt::format("{}, record {}", path, i + 1));
    return;
  }
  MappedLines lines(file, "one record per line is expected", kMostRecordBytes);
  while (const std::optional<std::string_view> content = lines.next()) {
    std::string_view line = *content;
    if (lines.number() == 1 && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);  // a byte-order mark
    if (white_space_at_start(line) == line.size()) continue;
    const std::string where = fmt::format("{}, line {}", path, lines.number());
    if (const auto at = invalid_utf8(line)) bad_input("{}: byte {} is not UTF-8", where, *at);
    parse_json(line, where, kJsonLineLimits);
    handle(Json::parse(line), where);
  }
}

std::vector<Conversation> read_conversations(const std::string& path) {
  std::vector<Conversation> all;
  for_each_record(path, kForms, [&](const Json& record, const std::string& where) {
    all.push_back(conversation_of(record));
    all.back().where = where;
  });
  if (all.empty()) bad_input("{} holds no conversation", path);
  return all;
}

std::vector<PromptAnswer> read_prompts(const std::string& path) {
  std::vector<PromptAnswer> all;
  for_each_record(path, kForms, [&](const Json& record, const std::string& where) {
    all.push_back(prompt_of(record));
    all.back().where = where;
    check(!all.back().answer.empty(), "the answer is empty");
  });
  if (all.empty()) bad_input("{} holds no prompt with an answer", path);
  return all;
}

}  // namespace trifold
