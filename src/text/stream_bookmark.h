// The bookmark of a streamed corpus: the start of a block, as text that a checkpoint keeps.
//
// A position is valid only for the stream it was taken from: the same files, tokenizer, --split, --json-key,
// --seed and --seq-length. The bookmark records them, and any other stream rejects it.
#pragma once

#include <string>

#include "text/token_blocks.h"

namespace trifold {

std::string write_bookmark(const BlockStart& start, const StreamOptions& options);

// BadInput, naming the difference, if the bookmark belongs to another stream; Failure if it cannot be parsed.
BlockStart read_bookmark(const std::string& bookmark, const StreamOptions& options);

}  // namespace trifold
