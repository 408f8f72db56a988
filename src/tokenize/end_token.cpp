#include "tokenize/end_token.h"

#include <filesystem>
#include <vector>

#include "core/error.h"
#include "core/printable.h"
#include "core/read_json.h"

namespace trifold {

namespace {

// Limits for tokenizer_config.json, the largest of the files because of chat templates and lists of added tokens.
constexpr JsonLimits kLimits{int64_t{16} << 20, 64, 1'000'000};

}  // namespace

std::string path_beside(const std::string& file, std::string_view name) {
  return (std::filesystem::path(file).parent_path() / name).string();
}

nlohmann::json json_beside(const std::string& file, std::string_view name) {
  const std::string path = path_beside(file, name);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return {};
  nlohmann::json json = read_json_file(path, kLimits);
  if (!json.is_object()) bad_input("{} is not a JSON object", path);
  return json;
}

namespace {

constexpr const char* kTokenizerFiles[] = {kTokenizerConfig, "special_tokens_map.json"};

// The value of "eos_token": the text of a token, or an object with the text.
std::optional<std::string> end_text(const nlohmann::json& json, const char* name) {
  if (json.is_null()) return std::nullopt;
  const JsonView view(json, name);
  if (!view.has("eos_token")) return std::nullopt;
  const JsonView token = view.at("eos_token");
  return token.value().is_object() ? token.at("content").text() : token.text();
}

// The value of "eos_token_id", an id or a list of ids. Models of several kinds of input have it in their part for text.
std::optional<int32_t> end_id(const nlohmann::json& json, const char* name, int64_t vocab_size) {
  if (json.is_null()) return std::nullopt;
  const JsonView view(json, name);
  if (!view.has("eos_token_id")) {
    if (!view.has("text_config") || !view.at("text_config").value().is_object()) return std::nullopt;
    return end_id(view.at("text_config").value(), name, vocab_size);
  }
  const JsonView found = view.at("eos_token_id");
  std::vector<int64_t> ids = found.value().is_array() ? found.integers() : std::vector{found.integer()};
  std::erase_if(ids, [&](int64_t id) { return id < 0 || id >= vocab_size; });
  if (ids.empty()) return std::nullopt;
  return static_cast<int32_t>(ids.front());
}

std::optional<int32_t> id_of_config(const std::string& model_file, int64_t vocab_size) {
  for (const char* name : {"config.json", "generation_config.json"})
    if (const auto id = end_id(json_beside(model_file, name), name, vocab_size)) return id;
  return std::nullopt;
}

}  // namespace

bool only_config_names_end(const std::string& model_file, int64_t vocab_size) {
  for (const char* name : kTokenizerFiles)
    if (end_text(json_beside(model_file, name), name)) return false;
  return id_of_config(model_file, vocab_size).has_value();
}

std::optional<int32_t> find_end_token(const std::string& model_file, const std::optional<std::string>& named,
                                      const TokenIds& ids) {
  if (named) {
    const std::optional<int32_t> id = ids.of(*named);
    if (!id) bad_input("--eod-token {}: {} has no such token", printable(*named), model_file);
    return id;
  }
  for (const char* name : kTokenizerFiles)
    if (const auto text = end_text(json_beside(model_file, name), name))
      if (const auto id = ids.of(*text)) return id;
  return id_of_config(model_file, ids.vocab_size);
}

}  // namespace trifold
