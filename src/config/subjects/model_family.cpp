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

void add_family_rules(OptionTable& table) {
  for (const ModelFamily* family : kFamilies) {
    const When chosen("model-type", name_of(family->type));
    for (const std::string_view name : family->excluded)
      if (table.find(name) != nullptr) table.change(name).excludes(chosen, {}, "leave it out");
    for (const std::string_view name : family->unused)
      if (table.find(name) != nullptr)
        table.change(name).no_effect_with(chosen, family->unused_because, family->unused_remedy);
  }
}

}  // namespace trifold
