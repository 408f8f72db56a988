// The bookmark of a streamed corpus: where a block begins, as text that a checkpoint keeps.
//
// A place in the stream means something only for the stream it was taken from: the same files, tokenizer,
// --split, --json-key, --seed and --seq-length. They stand in the bookmark, and another stream refuses it.
#pragma once

#include <string>

#include "data/token_blocks.h"

namespace trifold {

std::string write_bookmark(const BlockStart& start, const StreamOptions& options);

// BadInput, naming what differs, where the bookmark is another stream's; Failure where it cannot be read.
BlockStart read_bookmark(const std::string& bookmark, const StreamOptions& options);

}  // namespace trifold
