#include "recommend/run_options.h"

#include <algorithm>

#include "core/error.h"
#include "core/read_json.h"

namespace trifold {

namespace {

constexpr const char* kOrder = "sample_order";

}  // namespace

int64_t last_step(const RecommendConfig& config, int64_t steps_per_epoch) {
  if (config.training.train_iters) return *config.training.train_iters;
  return config.training.train_epochs.value_or(1) * steps_per_epoch;
}

LrConfig table_rates(const RecommendConfig& config) {
  LrConfig rates = config.lr;
  rates.lr = config.training.embedding_lr.value_or(config.lr.lr);
  const double ratio = rates.lr / config.lr.lr;
  rates.min_lr = std::min(rates.lr, ratio * config.lr.min_lr);
  rates.lr_warmup_init = std::min(rates.lr, ratio * config.lr.lr_warmup_init);
  return rates;
}

std::optional<uint64_t> order_seed(const RecommendConfig& config) {
  if (config.training.sample_order == SampleOrder::Stored) return std::nullopt;
  return config.seed;
}

void note_order(const RecommendConfig& config, nlohmann::json& state) {
  if (config.training.sample_order != SampleOrder::Shuffled)
    state[kOrder] = name_of(config.training.sample_order);
}

void check_order(const RecommendConfig& config, const nlohmann::json& state, const std::string& name) {
  const JsonView view(state, name);
  const uint64_t seed = view.has("seed") ? view.at("seed").whole_number() : config.seed;
  if (seed != config.seed)
    bad_input(
        "{} was trained with --seed {}, which decides the order of the samples: continue with that, not with {}",
        name, seed, config.seed);
  const std::string order = view.text(kOrder, name_of(SampleOrder::Shuffled));
  if (order != name_of(config.training.sample_order))
    bad_input("{} was trained with --sample-order {}: continue with that, not with {}", name, order,
              name_of(config.training.sample_order));
}

}  // namespace trifold
