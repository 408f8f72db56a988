// The options of each command and of a model, bound to the fields of configurations (commands.h). This is the only
// place that defines option names, spellings and help texts. Defaults are the initial values of the structs in
// config.h.
#pragma once

#include "config/commands/commands.h"

namespace trifold {

// The options of the model alone, including its head: the part of a configuration that a checkpoint stores.
OptionTable options_of(ModelConfig& config);

// The rates from which the costs of a recommender's rank are taken. Starts a group.
void add_click_costs(OptionTable& table, PlanRecommenderConfig& config);

// A recommender that is planned or rehearsed without its data: nothing is evaluated.
RecommendConfig without_data(RecommendConfig config);

}  // namespace trifold
