// Finds the chat template of a model, and its special tokens, in the files next to its tokenizer.
#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "core/error.h"
#include "core/input_file.h"
#include "core/printable.h"
#include "core/read_json.h"
#include "tokenize/chat/chat_template.h"
#include "tokenize/end_token.h"
#include "tokenize/unicode/unicode.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostTemplateBytes = int64_t{16} << 20;
constexpr const char* kOtherTemplates = "additional_chat_templates";
constexpr const char* kDefaultTemplate = "default";
constexpr const char* kTemplateForTools = "tool_use";

std::string read_template(const std::string& path) {
  std::string text = read_input_file(path, kMostTemplateBytes);
  if (const auto at = invalid_utf8(text)) bad_input("{}: byte {} is not UTF-8", path, *at);
  return text;
}

struct NamedTemplate {
  std::string text, where;
};

// The templates of a model by name; one without a name is the default.
std::map<std::string, NamedTemplate> templates_beside(const std::string& tokenizer_file) {
  std::map<std::string, NamedTemplate> found;
  std::error_code none;
  if (const std::string path = path_beside(tokenizer_file, kChatTemplateFile);
      fs::is_regular_file(path, none))
    found[kDefaultTemplate] = {read_template(path), path};
  const fs::path others = path_beside(tokenizer_file, kOtherTemplates);
  if (fs::is_directory(others, none))
    for (const auto& file : fs::directory_iterator(others))
      if (file.path().extension() == ".jinja")
        found[file.path().stem().string()] = {read_template(file.path().string()), file.path().string()};
  if (!found.empty()) return found;
  const nlohmann::json config = json_beside(tokenizer_file, kTokenizerConfig);
  const std::string where = path_beside(tokenizer_file, kTokenizerConfig);
  if (config.is_null()) return found;
  const JsonView view(config, where);
  if (!view.has("chat_template")) return found;
  const JsonView stored = view.at("chat_template");
  if (stored.value().is_string()) {
    found[kDefaultTemplate] = {stored.text(), where};
    return found;
  }
  stored.each([&](const JsonView& one) {
    found[one.at("name").text()] = {one.at("template").text(), where};
  });
  return found;
}

// The special tokens of a file: fields such as "eos_token", texts or objects with the text.
void add_special_tokens(const nlohmann::json& file, nlohmann::ordered_json& tokens) {
  if (!file.is_object()) return;
  for (const auto& [name, value] : file.items()) {
    if (!std::string_view(name).ends_with("_token") || tokens.contains(name)) continue;
    if (value.is_string()) tokens[name] = value;
    if (value.is_object() && value.contains("content") && value["content"].is_string())
      tokens[name] = value["content"];
  }
}

nlohmann::ordered_json special_tokens_of(const DataConfig& data, const Tokenizer& tokenizer) {
  nlohmann::ordered_json tokens = nlohmann::ordered_json::object();
  if (data.tokenizer_model)
    for (const char* name : {kTokenizerConfig, "special_tokens_map.json"})
      add_special_tokens(json_beside(*data.tokenizer_model, name), tokens);
  if (!tokens.contains("eos_token") && tokenizer.eod())
    if (const std::string end = tokenizer.name_of_token(*tokenizer.eod()); !end.empty())
      tokens["eos_token"] = end;
  return tokens;
}

// The template that --chat-template names.
NamedTemplate named_template(const std::string& name, const std::map<std::string, NamedTemplate>& models) {
  std::error_code none;
  if (fs::is_regular_file(name, none)) return {read_template(name), name};
  if (const auto known = models.find(name); known != models.end()) return known->second;
  std::vector<std::string> names;
  for (const auto& known : models) names.push_back(known.first);
  bad_input("--chat-template {}: there is no such file{}", printable(name),
            names.empty() ? std::string(", and the model has no template of its own")
                          : fmt::format(", and the model's templates are {}", fmt::join(names, ", ")));
}

}  // namespace

std::optional<ChatTemplateSource> find_chat_template(const DataConfig& data, const Tokenizer& tokenizer) {
  std::map<std::string, NamedTemplate> models;
  if (data.tokenizer_model) models = templates_beside(*data.tokenizer_model);
  NamedTemplate chosen, for_tools;
  if (data.chat_template) {
    chosen = named_template(*data.chat_template, models);
  } else if (models.empty()) {
    return std::nullopt;
  } else if (const auto usual = models.find(kDefaultTemplate); usual != models.end()) {
    chosen = usual->second;
    if (const auto tools = models.find(kTemplateForTools); tools != models.end()) for_tools = tools->second;
  } else {
    std::vector<std::string> names;
    for (const auto& known : models) names.push_back(known.first);
    bad_input("the model has the chat templates {} and none is its default: name one, --chat-template {}",
              fmt::join(names, ", "), names.front());
  }
  return ChatTemplateSource{std::move(chosen.text),
                            std::move(chosen.where),
                            special_tokens_of(data, tokenizer),
                            data.chat_date ? data.chat_date->text() : "",
                            std::move(for_tools.text),
                            std::move(for_tools.where)};
}

ChatTemplateSource need_chat_template(const DataConfig& data, const Tokenizer& tokenizer,
                                      const std::string& reader) {
  std::optional<ChatTemplateSource> found = find_chat_template(data, tokenizer);
  if (!found)
    bad_input(
        "{} needs a chat template, which the model does not have: name a file, --chat-template FILE.jinja",
        reader);
  return std::move(*found);
}

}  // namespace trifold
