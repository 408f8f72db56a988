#include "config/subjects/model_family.h"

#include "core/error.h"

namespace trifold {

extern const ModelFamily kGptFamily, kBertFamily;

namespace {

constexpr const ModelFamily* kFamilies[] = {&kGptFamily, &kBertFamily};

}  // namespace

const ModelFamily& family_of_model(const ModelConfig& config) {
  for (const ModelFamily* family : kFamilies)
    if (family->type == config.model_type) return *family;
  fail("a model of a family that is not in the table");
}

}  // namespace trifold
