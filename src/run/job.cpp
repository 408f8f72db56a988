#include "run/job.h"

#include <fmt/format.h>

#include "checkpoint/reader.h"
#include "core/read_json.h"
#include "files/output_files.h"
#include "run/best_evaluation.h"

namespace trifold {

void RunJob::add_terms(const OptionTable& options) {
  terms.add(options);
  if (start.from && !start.may_fall_back) terms.add_checkpoint(*start.from);
}

std::string all_steps_done(int64_t steps) { return fmt::format("all {} steps are done already", steps); }

namespace {

BestEvaluation best_of(const CheckpointReader& reader) {
  const JsonView state(reader.meta().state, reader.directory().string());
  BestEvaluation best("", BestEvaluation::Better::Higher);  // the direction does not matter here
  if (state.has("best")) best.restore(state.at("best"), reader.meta().step);
  return best;
}

}  // namespace

bool lacks_evaluation(const RunStart& start, const CheckpointConfig& config) {
  if (!config.save_best || !start.from || start.part != LoadPart::All) return false;
  const CheckpointReader reader = checkpoint_of(start);
  return reader.meta().step > 0 && best_of(reader).left_out() == reader.meta().step;
}

std::string ended_early(const RunStart& start, const RunLimits& limits) {
  if (!limits.early_stop_patience || !start.from || start.part != LoadPart::All) return {};
  const CheckpointReader reader = checkpoint_of(start);
  const std::string name = reader.directory().string();
  const BestEvaluation best = best_of(reader);
  if (!best.ends_early(limits.early_stop_patience)) return {};
  if (!start.may_fall_back)
    bad_input("{}: the run ended early: {}: give more than --early-stop-patience {} to train on", name,
              best.text(), *limits.early_stop_patience);
  return "the run ended early: " + best.text();
}

void Preparation::check_outputs(const RunStart& start, const CheckpointConfig& checkpoint,
                                const LogConfig& log, std::optional<int64_t> first_step) {
  if (checkpoint.save) attempt([&] { check_save(checkpoint, start, first_step); });
  if (checkpoint.save_hf) attempt([&] { check_model_folder(checkpoint, start); });
  if (log.log_json) attempt([&] { check_writable_file("--log-json", *log.log_json); });
  if (log.watch.trace) attempt([&] { check_writable_file("--trace", *log.watch.trace); });
  if (log.tensorboard_dir) attempt([&] { check_writable_folder("--tensorboard-dir", *log.tensorboard_dir); });
}

}  // namespace trifold
