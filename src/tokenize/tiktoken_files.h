// Files of tokenizers whose vocabulary is tokens as bytes in the order of their ranks, as OpenAI's tiktoken has them, in
// the form of a tokenizer.json of Hugging Face. Two tokens are merged if their bytes together are a token; the one with
// the lowest rank comes first.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/fields/choices.h"
#include "tokenize/vocabulary_files.h"

namespace trifold {

// What a file itself does not say.
struct TiktokenChoice {
  std::optional<TiktokenPattern> pattern;
  std::optional<int64_t> num_special_tokens;
  std::vector<std::string> special_tokens;
};

// The pattern by which text is cut into words, in the dialect of Rust.
const char* text_of_pattern(TiktokenPattern pattern);

// Reads a file of one of these forms, which is known by its first character:
//   - A line for each token: its bytes in base64, a blank, its rank (".tiktoken"). Ids are ranks. The pattern and the
//     special tokens come from `choice`, or from "pat_str" and "special_tokens" (an object of texts and ids) of a
//     tiktoken.json in the folder, or "pat_str" and "added_tokens_decoder" of a tokenizer_config.json there. Special
//     tokens of `choice` get the ids after the last rank; with num_special_tokens they get the first ids, and ranks
//     come after these.
//   - Mistral's tekken.json: a JSON object. Ids are ranks after default_num_special_tokens special ones; tokens beyond
//     default_vocab_size are left out, as in mistral_common.
//   - Megatron-LM's: a JSON list of {"rank", "token_bytes", "token_str"}. The pattern comes from `choice`; 1000 special
//     tokens come first, or as `choice` says. Of the list those are used that fit into 131072 ids.
// BadInput, naming the file, for one that cannot be read or has another form, that lacks a token for one of the 256
// bytes, has a token or a rank twice, a special token that is empty, there twice or a rank's, a token of more than 512
// bytes or more than 65536 special tokens, without a pattern, and for a choice where the file itself decides.
TokenizerParts read_tiktoken(const std::string& file, const TiktokenChoice& choice);

}  // namespace trifold
