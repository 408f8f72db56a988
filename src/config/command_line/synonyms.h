// Options of other programs (Hugging Face's Trainer, torchrun, DeepSpeed, nanoGPT, older versions of Megatron-LM) and
// their names here.
#pragma once

#include <string_view>

namespace trifold {

struct Synonym {
  std::string_view theirs;  // canonical spelling, without "--"
  std::string_view ours;    // the equivalent option; empty if there is none
  std::string_view note;    // further advice; may be empty
};

// The entry for the option `name` of another program; null if it is not known.
const Synonym* synonym_of(std::string_view name);

}  // namespace trifold
