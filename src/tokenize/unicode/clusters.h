// Extended grapheme clusters: what readers take for one character, such as a letter with its accents (Unicode Standard
// Annex 29). They end where Rust's crate unicode-segmentation ends them for Hugging Face's `tokenizers`, except that pairs
// of regional indicators and Indic conjuncts, which have six bytes and more, are several clusters.
#pragma once

#include <cstddef>
#include <string_view>

namespace trifold {

// The end of the cluster that begins at byte `begin` of `text` (UTF-8), which must not be its end.
size_t cluster_end(std::string_view text, size_t begin);

}  // namespace trifold
