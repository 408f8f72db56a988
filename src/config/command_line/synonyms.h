// Options that people know from other programs (Hugging Face's Trainer, torchrun, DeepSpeed, nanoGPT,
// Megatron-LM in older versions), and what they are called here.
#pragma once

#include <string_view>

namespace trifold {

struct Synonym {
  std::string_view theirs;  // canonical spelling, without "--"
  std::string_view ours;    // the option that does it; empty where there is none
  std::string_view note;    // what else there is to say; may be empty
};

// What the option `name` of another program is here; null where it is not known.
const Synonym* synonym_of(std::string_view name);

}  // namespace trifold
