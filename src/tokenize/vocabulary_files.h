// Tokenizers whose parts are plain files, as GPT-2 and BERT were published, in the form of a tokenizer.json of Hugging
// Face. The ids equal the ids of the tokenizer.json of the same model.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace trifold {

struct TokenizerParts {
  std::string file;         // the vocabulary, for messages
  nlohmann::json json;      // as in a tokenizer.json
  std::string fingerprint;  // identifies the contents of all files
};

inline constexpr const char* kMergesName = "merges.txt";
// The file of the merges: the one given, or by default kMergesName in the folder of the vocabulary.
std::string merges_beside(const std::string& vocabulary, const std::optional<std::string>& merges);

// Byte-level BPE: `vocabulary` is a JSON object of tokens and ids (vocab.json); `merges`, as merges_beside finds it,
// has a pair of tokens a line, the first merge first, after an optional line "#version". The token
// <|endoftext|> is special. BadInput, naming the file, for a file that cannot be read or has another form.
TokenizerParts read_gpt2_files(const std::string& vocabulary, const std::optional<std::string>& merges);

// WordPiece: `vocabulary` has a token a line, in the order of their ids (vocab.txt). `lower`: text becomes lower case
// without accents. The tokens [PAD], [UNK], [CLS], [SEP] and [MASK] are special; BadInput if [UNK] is missing.
TokenizerParts read_word_pieces(const std::string& vocabulary, bool lower);

}  // namespace trifold
