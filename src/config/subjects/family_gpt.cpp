// GPT-2 and Llama: their properties, and the options that they exclude.
#include "config/subjects/model_family.h"

namespace trifold {

namespace {

constexpr std::string_view kGptIgnores[] = {"bert-no-binary-head", "num-tokentypes",     "pre-norm",
                                            "add-head-bias",       "embedding-size",     "mask-prob",
                                            "short-seq-prob",      "whole-word-masking", "split-sentences"};

}  // namespace

extern const ModelFamily kGptFamily;
constexpr ModelFamily kGptFamily{.type = ModelType::Gpt,
                                 .causal = true,
                                 .has_pairs = false,
                                 .normalizes_sums = false,
                                 .cuts_head = true,
                                 .has_tasks = false,
                                 .reads_token_files = true,
                                 .excluded = {},
                                 .unused = kGptIgnores,
                                 .unused_because = {},
                                 .unused_remedy = "it needs --model-type bert"};

}  // namespace trifold
