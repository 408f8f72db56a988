#include "config/subjects/model_family.h"

#include "core/error.h"

namespace trifold {

extern const ModelFamily kGptFamily, kBertFamily, kGraphFamily;

namespace {

constexpr const ModelFamily* kFamilies[] = {&kGptFamily, &kBertFamily, &kGraphFamily};

}  // namespace

const ModelFamily& family_of_model(const ModelConfig& config) {
  for (const ModelFamily* family : kFamilies)
    if (family->type == config.model_type) return *family;
  fail("a model of a family that is not in the table");
}

bool normalizes_sums(const ModelConfig& config) {
  return family_of_model(config).normalizes_sums && !config.pre_norm;
}

ModelType type_of_family(std::string_view chosen_by) {
  for (const ModelFamily* family : kFamilies)
    if (family->chosen_by == chosen_by) return family->type;
  fail("no family is chosen by --{}", chosen_by);
}

void add_family_rules(OptionTable& table) {
  for (const ModelFamily* family : kFamilies) {
    const bool by_option = !family->chosen_by.empty() && table.find(family->chosen_by) != nullptr;
    const When chosen =
        by_option ? When(family->chosen_by, std::string_view()) : When("model-type", name_of(family->type));
    for (const std::string_view name : family->excluded)
      if (table.find(name) != nullptr) table.change(name).excludes(chosen, {}, "leave it out");
    for (const std::string_view name : family->unused)
      if (table.find(name) != nullptr)
        table.change(name).no_effect_with(chosen, family->unused_because, family->unused_remedy);
  }
}

}  // namespace trifold
