// Tokenizers whose parts are plain files, as GPT-2 and BERT were published, in the form of a tokenizer.json of Hugging
// Face. The ids equal the ids of the tokenizer.json of the same model.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "core/function_ref.h"
#include "tokenize/byte_pairs.h"
#include "tokenize/patterns/text_pattern.h"

namespace trifold {

struct TokenizerParts {
  std::string file;         // the vocabulary, for messages
  nlohmann::json json;      // as in a tokenizer.json
  std::string fingerprint;  // identifies the contents of all files
  MergeOrder merges = MergeOrder::Listed;
  PatternDialect dialect = PatternDialect::Ruby;
};

// Calls body(line, number from 1) for each line of a file, without its end.
void each_line(std::string_view text, const std::string& file,
               FunctionRef<void(std::string_view, size_t)> body);
// BadInput if a vocabulary of byte-level BPE lacks a byte, which would vanish from a text.
void expect_all_bytes(const nlohmann::json::object_t& vocabulary, const std::string& file);
// An entry of "added_tokens" for a special token.
nlohmann::json special_token(int64_t id, std::string_view token);
// Adds the tokens that "added_tokens_decoder" of the tokenizer_config.json in the folder of `file` lists, if there is
// one, as entries of "added_tokens".
void add_tokens_beside(const std::string& file, nlohmann::json& added);

inline constexpr const char* kMergesName = "merges.txt";
// The file of the merges: the one given, or by default kMergesName in the folder of the vocabulary.
std::string merges_beside(const std::string& vocabulary, const std::optional<std::string>& merges);

// Byte-level BPE: `vocabulary` is a JSON object of tokens and ids (vocab.json); `merges`, as merges_beside finds it,
// has a pair of tokens a line, the first merge first, after an optional line "#version". The token
// <|endoftext|> is special; a tokenizer_config.json next to the vocabulary may add tokens, and its class says whether text is
// cut as by GPT-2 or by Qwen2. BadInput, naming the file, for a file that cannot be read or has another form or no token for
// one of the 256 bytes, and for a tokenizer_config.json of a class of tokenizers that cuts text in another way.
TokenizerParts read_gpt2_files(const std::string& vocabulary, const std::optional<std::string>& merges);

// WordPiece: `vocabulary` has a token a line, in the order of their ids (vocab.txt). `lower`: text becomes lower case
// without accents. The tokens [PAD], [UNK], [CLS], [SEP] and [MASK] are special; BadInput if [UNK] is missing.
TokenizerParts read_word_pieces(const std::string& vocabulary, bool lower);

}  // namespace trifold
