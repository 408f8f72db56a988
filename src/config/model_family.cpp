#include "config/model_family.h"

#include "core/error.h"

namespace trifold {
namespace {

constexpr ModelFamily kFamilies[] = {
    {.type = ModelType::Gpt, .causal = true, .has_pairs = false, .scales_residual_init = true},
    {.type = ModelType::Bert, .causal = false, .has_pairs = true, .scales_residual_init = false}};

}  // namespace

const ModelFamily& family_of_model(const ModelConfig& config) {
  for (const ModelFamily& family : kFamilies)
    if (family.type == config.model_type) return family;
  fail("a model of a family that is not in the table");
}

}  // namespace trifold
