#include "train/stored_state.h"

#include <fmt/format.h>

#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/read_json.h"
#include "run/best_evaluation.h"

namespace trifold {

namespace {

void check_loss_scaler(const JsonView& scaler, int64_t steps) {
  if (!scaler.flag("dynamic", false)) return;
  if (scaler.at("scale").number() <= 0) scaler.at("scale").refuse("a number above 0");
  scaler.at("steps_without_overflow").integer(0, steps);
  scaler.at("overflows_left").integer(-steps);  // below 1: every overflow lowers the scale
}

// Checks the stored choices: every token makes the same number of choices in each layer.
void check_choices(const JsonView& choices, const ModelConfig& model) {
  const int64_t count = count_expert_layers(model) + count_expert_modules(model);
  if (std::ssize(choices.list()) != count) choices.refuse(fmt::format("a list for each of {} layers", count));
  std::vector<int64_t> sums;
  choices.each([&](const JsonView& layer) {
    const std::vector<int64_t> counts = layer.integers(0, std::numeric_limits<int32_t>::max());
    if (std::ssize(counts) != *model.num_experts)
      layer.refuse(fmt::format("a list of {} numbers", *model.num_experts));
    sums.push_back(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
    if (sums.back() != sums.front())
      layer.refuse(fmt::format("a sum of {}, as in the first layer with experts,", sums.front()));
  });
}

}  // namespace

void check_state(const CheckpointMeta& meta, const ModelConfig& model, const std::string& name) {
  const JsonView state(meta.state, name + ": state");
  if (state.has("skipped_steps")) state.at("skipped_steps").integer(0, meta.step);
  if (state.has("optimizer_began")) state.at("optimizer_began").integer(0, meta.step);
  if (state.has("best")) {
    BestEvaluation best("", BestEvaluation::Better::Higher);  // the direction does not matter here
    best.restore(state.at("best"), meta.step);
  }
  if (state.has("loss_scaler")) check_loss_scaler(state.at("loss_scaler"), meta.step);
  if (model.moe_router_load_balancing_type == RouterBalance::GlobalAuxLoss && meta.step > 0)
    check_choices(state.at("expert_choices"), model);
}

}  // namespace trifold
