// BERT: its properties, and the options that it excludes.
#include "config/subjects/model_family.h"

namespace trifold {

namespace {

// Options for variants of a GPT do not apply to BERT as published.
constexpr std::string_view kBertExcludes[] = {"position-embedding-type",
                                              "group-query-attention",
                                              "qk-layernorm",
                                              "multi-latent-attention",
                                              "normalization",
                                              "swiglu",
                                              "geglu",
                                              "quick-geglu",
                                              "activation-func-clamp-value",
                                              "glu-linear-offset",
                                              "relu",
                                              "squared-relu",
                                              "disable-bias-linear",
                                              "apply-layernorm-1p",
                                              "norm-position",
                                              "parallel-residual",
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
                                  .scales_residual_init = false,
                                  .normalizes_sums = true,
                                  .cuts_head = false,
                                  .has_tasks = true,
                                  .reads_token_files = false,
                                  .excluded = kBertExcludes,
                                  .unused = kBertIgnores,
                                  .unused_because = "whose samples are pairs of sentences",
                                  .unused_remedy = "leave it out"};

}  // namespace trifold
