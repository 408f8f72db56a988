// BERT: its properties, and the options that it excludes.
#include <utility>

#include "config/subjects/model_family.h"
#include "config/subjects/validate_data.h"

namespace trifold {

namespace {

// Options for variants of a GPT do not apply to BERT as published.
void check_bert(const ModelConfig& model, Problems& problems) {
  const ModelConfig defaults;
  const std::pair<const char*, bool> options[] = {
      {"position-embedding-type", model.position_embedding_type != defaults.position_embedding_type},
      {"group-query-attention", model.group_query_attention},
      {"qk-layernorm", model.qk_layernorm},
      {"multi-latent-attention", model.multi_latent_attention},
      {"normalization", model.normalization != defaults.normalization},
      {"swiglu", model.swiglu},
      {"disable-bias-linear", model.disable_bias_linear},
      {"num-experts", model.num_experts.has_value()},
      {"untie-embeddings-and-output-weights", model.untie_embeddings_and_output_weights}};
  for (const auto& [option, changed] : options)
    if (changed && problems.sound({option}))
      problems.about(option, "model-type")
          .wrong("--{} is not possible with --model-type bert", option)
          .right("leave it out");
}

void check_bert_data(const DataConfig& data, Problems& problems) {
  if (const auto option = given_option_of_documents(data))
    problems.about(*option, "model-type")
        .wrong("--{} has no effect with --model-type bert, whose samples are pairs of sentences", *option)
        .right("leave it out");
}

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
                                  .check_model = check_bert,
                                  .check_data = check_bert_data};

}  // namespace trifold
