// GPT-2 and Llama: their properties, and the options that they exclude.
#include "config/subjects/model_family.h"
#include "config/subjects/validate_data.h"

namespace trifold {

namespace {

void check_gpt(const ModelConfig& model, Problems& problems) {
  if (model.bert_no_binary_head)
    problems.about("bert-no-binary-head", "model-type")
        .wrong("--bert-no-binary-head has no effect")
        .right("it needs --model-type bert");
}

void check_gpt_data(const DataConfig& data, Problems& problems) {
  if (const auto option = given_option_of_pairs(data))
    problems.about(*option, "model-type")
        .wrong("--{} has no effect", *option)
        .right("it needs --model-type bert");
}

}  // namespace

extern const ModelFamily kGptFamily;
constexpr ModelFamily kGptFamily{.type = ModelType::Gpt,
                                 .causal = true,
                                 .has_pairs = false,
                                 .scales_residual_init = true,
                                 .normalizes_sums = false,
                                 .cuts_head = true,
                                 .has_tasks = false,
                                 .reads_token_files = true,
                                 .check_model = check_gpt,
                                 .check_data = check_gpt_data};

}  // namespace trifold
