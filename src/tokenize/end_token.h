// Finds the token that ends a document if a tokenizer's own file does not name it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "core/function_ref.h"

namespace trifold {

inline constexpr const char* kTokenizerConfig = "tokenizer_config.json";
// The path of the file `name` in the folder of `file`, and its parsed content; null if there is none. BadInput if it is
// not a JSON object.
std::string path_beside(const std::string& file, std::string_view name);
nlohmann::json json_beside(const std::string& file, std::string_view name);

// The ids of a tokenizer's tokens.
struct TokenIds {
  FunctionRef<std::optional<int32_t>(const std::string&)> of;  // the id of a token's text, if it exists
  int64_t vocab_size = 0;
};

// The id of the token that ends a document, by the first of these that names a token in the vocabulary:
//   - `named`, the value of --eod-token, which must exist (BadInput),
//   - in the folder of `model_file`: "eos_token" in tokenizer_config.json, then in special_tokens_map.json,
//     "eos_token_id" in config.json, then in generation_config.json (the first id of a list).
// BadInput for such a file that is not JSON or whose value is of another type.
std::optional<int32_t> find_end_token(const std::string& model_file, const std::optional<std::string>& named,
                                      const TokenIds& ids);

// Whether only config.json or generation_config.json name the token: converted checkpoints do not keep the first, which
// counts before the second.
bool only_config_names_end(const std::string& model_file, int64_t vocab_size);

}  // namespace trifold
