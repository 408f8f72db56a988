// Models from files: their properties, and the options that they exclude.
#include "config/subjects/model_family.h"

namespace trifold {

namespace {

// The file says what the model is, and its blocks are not cut over other axes than stages and copies.
constexpr std::string_view kGraphExcludes[] = {"num-layers",
                                               "hidden-size",
                                               "num-attention-heads",
                                               "ffn-hidden-size",
                                               "seq-length",
                                               "max-position-embeddings",
                                               "kv-channels",
                                               "group-query-attention",
                                               "num-query-groups",
                                               "qk-layernorm",
                                               "window-size",
                                               "window-attn-skip-freq",
                                               "window-rotary-base",
                                               "softmax-type",
                                               "attn-logit-softcapping",
                                               "no-rope-freq",
                                               "multi-latent-attention",
                                               "position-embedding-type",
                                               "rotary-base",
                                               "rotary-percent",
                                               "use-rope-scaling",
                                               "rope-type",
                                               "rotary-seq-len-interpolation-factor",
                                               "normalization",
                                               "apply-layernorm-1p",
                                               "norm-position",
                                               "parallel-residual",
                                               "softmax-scale",
                                               "embedding-multiplier",
                                               "residual-multiplier",
                                               "logits-scaling",
                                               "final-logit-softcapping",
                                               "swiglu",
                                               "squared-relu",
                                               "gelu",
                                               "disable-bias-linear",
                                               "num-experts",
                                               "vocab-size",
                                               "make-vocab-size-divisible-by",
                                               "untie-embeddings-and-output-weights",
                                               "norm-epsilon",
                                               "init-method-std",
                                               "hidden-dropout",
                                               "attention-dropout",
                                               "tensor-model-parallel-size",
                                               "context-parallel-size",
                                               "expert-model-parallel-size",
                                               "sequence-parallel",
                                               "tiled-mlp",
                                               "pipeline-vocab-parts",
                                               "num-layers-per-virtual-pipeline-stage",
                                               "decoder-first-pipeline-num-layers",
                                               "decoder-last-pipeline-num-layers",
                                               "pipeline-model-parallel-layout",
                                               "moe-use-upcycling",
                                               "fp8",
                                               "sample-prompt"};
constexpr std::string_view kGraphIgnores[] = {
    "data-path",      "tokenizer-type",       "tokenizer-model",    "eod-token",           "json-key",
    "mock-data",      "train-data-path",      "valid-data-path",    "tokenizer-merges",    "on-bad-record",
    "eod-mask-loss",  "reset-attention-mask", "reset-position-ids", "bert-no-binary-head", "mask-prob",
    "short-seq-prob", "whole-word-masking",   "split-sentences"};

}  // namespace

extern const ModelFamily kGraphFamily;
constexpr ModelFamily kGraphFamily{.type = ModelType::Graph,
                                   .chosen_by = "model",
                                   .causal = false,
                                   .has_pairs = false,
                                   .scales_residual_init = false,
                                   .normalizes_sums = false,
                                   .cuts_head = false,
                                   .has_tasks = false,
                                   .reads_token_files = false,
                                   .reads_text = false,
                                   .unit = "samples",
                                   .loss_unit = "elements",
                                   .excluded = kGraphExcludes,
                                   .unused = kGraphIgnores,
                                   .unused_because = "whose data are arrays",
                                   .unused_remedy = "leave it out; --arrays names the arrays"};

}  // namespace trifold
