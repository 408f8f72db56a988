#include "recommend/run_options.h"

#include <algorithm>

#include "core/error.h"
#include "core/read_json.h"

namespace trifold {

namespace {

constexpr const char* kOrder = "sample_order";
constexpr const char* kDropLast = "drop_last";

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
  if (config.training.drop_last) state[kDropLast] = true;
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
  if (const bool drops = view.flag(kDropLast, false); drops != config.training.drop_last)
    bad_input("{} was trained {} --drop-last, which decides the samples of each step: continue {} it", name,
              drops ? "with" : "without", drops ? "with" : "without");
}

ClickFeed training_feed(const RecommendConfig& config, const ClickSource& samples) {
  return {samples, order_seed(config), config.training.global_batch_size, config.training.drop_last};
}

std::string check_short_batch(const RecommendConfig& config, const ClickFeed& feed, int64_t samples,
                              int64_t last_step) {
  const int64_t batch = config.training.global_batch_size, rest = feed.short_batch();
  if (feed.batches_per_epoch() == 0)
    bad_input(
        "--drop-last leaves out all {} samples, which are fewer than --global-batch-size {}: leave one of them out",
        samples, batch);
  if (rest == 0 || last_step < feed.batches_per_epoch()) return "";
  if (config.training.drop_last)
    return fmt::format("the last {} samples of each pass are left out (--drop-last)", rest);
  if (config.model.batch_norm && rest == 1)
    bad_input(
        "--batch-norm normalises over the samples of a step, and the last batch of a pass has one: {} samples in "
        "batches of {}: give --drop-last, or another --global-batch-size",
        samples, batch);
  return fmt::format(
      "the last batch of each pass has {} samples instead of {} and makes a full step; --drop-last leaves it out",
      rest, batch);
}

}  // namespace trifold
