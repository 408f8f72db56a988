#include "models/language_family.h"

#include "core/error.h"

namespace trifold {

extern const LanguageFamily kGptParts, kBertParts, kGraphParts;

namespace {

constexpr const LanguageFamily* kFamilies[] = {&kGptParts, &kBertParts, &kGraphParts};

}  // namespace

const LanguageFamily& language_family(const ModelConfig& config) {
  for (const LanguageFamily* family : kFamilies)
    if (family->type == config.model_type) return *family;
  fail("a model of a family that is not in the table");
}

std::unique_ptr<DataSource> synthetic_data(const ModelConfig& model, uint64_t seed) {
  return language_family(model).synthetic(model, seed);
}

}  // namespace trifold
