// BERT: its properties, and the options that it excludes.
#include "config/subjects/model_family.h"

namespace trifold {

namespace {

// Layers may be any that attend to all positions; the embedding and the head are BERT's.
constexpr std::string_view kBertExcludes[] = {"multi-latent-attention",
                                              "embedding-multiplier",
                                              "logits-scaling",
                                              "mup-base-hidden-size",
                                              "final-logit-softcapping",
                                              "num-experts",
                                              "mtp-num-layers",
                                              "untie-embeddings-and-output-weights",
                                              "sample-prompt"};
constexpr std::string_view kBertIgnores[] = {"data-schedule", "eod-mask-loss", "reset-attention-mask",
                                             "reset-position-ids"};

}  // namespace

extern const ModelFamily kBertFamily;
constexpr ModelFamily kBertFamily{.type = ModelType::Bert,
                                  .causal = false,
                                  .has_pairs = true,
                                  .normalizes_sums = true,
                                  .dense_in_head = true,
                                  .cuts_head = false,
                                  .has_tasks = true,
                                  .reads_token_files = false,
                                  .excluded = kBertExcludes,
                                  .unused = kBertIgnores,
                                  .unused_because = "whose samples are pairs of sentences",
                                  .unused_remedy = "leave it out"};

}  // namespace trifold
