// Options of saving, evaluating and reporting.
#include <utility>

#include "config/subjects/option_groups.h"

namespace trifold {

void add_saving(OptionTable& table, CheckpointConfig& checkpoint) {
  table.group("Checkpoint");
  table.add("save", &checkpoint.save, "Folder for checkpoints of this run; runs must not share one.")
      .names("DIR", FileUse::Filled)
      .absent("nothing is saved")
      .of_execution();
  table.add("save-interval", &checkpoint.save_interval, "Save every N steps, and at the end.")
      .range(1, kMaxCount)
      .absent("only at the end")
      .of_execution();
  table
      .add("load", &checkpoint.load,
           "Folder of checkpoints to resume from; it must exist and may be that of --save.")
      .names("DIR", FileUse::Loaded)
      .absent("start from random weights")
      .of_execution();
  table
      .add("auto-resume", &checkpoint.auto_resume,
           "Resume from the newest usable checkpoint in the folder of --save; if it has none, use --load.")
      .of_execution();
  table
      .add("allow-changed-data", &checkpoint.allow_changed_data,
           "Resume even if the training data differ from the checkpoint's in size or content.")
      .of_execution();
  table
      .add("async-save", &checkpoint.async_save,
           "Copy the state and write it in the background while training continues.")
      .of_execution();
  table.add("save-retain", &checkpoint.save_retain, "Keep only this many of the newest valid checkpoints.")
      .range(2, 1 << 20)
      .absent("all are kept")
      .of_execution();
  table
      .add("save-best", &checkpoint.save_best,
           "Also save after each evaluation that is better than all before, and let the file BEST in the "
           "folder name that checkpoint, which then stays: --load DIR/BEST takes it.")
      .of_execution();
  table
      .add("on-save-error", &checkpoint.on_save_error,
           "Reaction to a checkpoint that cannot be saved; "
           "failing to save the last one always ends the run with an error.")
      .of_execution();
  table
      .add(
          "check-replicas", &checkpoint.check_replicas,
          "Compare replicas of weights and optimizer state every N steps and before each save, and "
          "end the run if they differ; with sharded optimizer state also before the update of these steps; 0: never.")
      .range(0, kMaxCount)
      .absent("before each save")
      .of_execution();
}

void add_checkpoint(OptionTable& table, CheckpointConfig& checkpoint) {
  add_saving(table, checkpoint);
  table
      .add("finetune", &checkpoint.finetune,
           "Load only the weights of --load; steps, data and optimizer start from the beginning.")
      .of_execution();
}

void add_eval(OptionTable& table, EvalConfig& eval) {
  table.group("Evaluation");
  table.add("eval-interval", &eval.eval_interval, "Evaluate every N steps.")
      .range(1, kMaxCount)
      .absent("no evaluation while training");
  table
      .add("eval-iters", &eval.eval_iters,
           "Batches per evaluation, the same ones each time, "
           "at most one pass over the validation data; 0: no evaluation.")
      .range(0, kMaxCount);
  add_early_stop(table, eval.early_stop_patience);
}

void add_early_stop(OptionTable& table, std::optional<int64_t>& patience) {
  table
      .add("early-stop-patience", &patience,
           "Stop, with a checkpoint, after N evaluations in a row "
           "that were no better than the best before them.")
      .range(1, kMaxCount)
      .absent("train to the end")
      .of_execution();
}

void add_reports(OptionTable& table, LogConfig& log) {
  table.group("Logging");
  table.add("log-interval", &log.log_interval, "Report progress every N steps.")
      .range(1, kMaxCount)
      .of_execution();
  table.add("log-json", &log.log_json, "Append one JSON object per step to this file.")
      .names("FILE", FileUse::Appended)
      .absent("none")
      .of_host()
      .of_execution();
}

void add_log(OptionTable& table, LogConfig& log) {
  add_reports(table, log);
  table
      .add("check-overlap", &log.check_overlap,
           "Compute the first N steps twice, once without overlap, and end the run if a bit differs.")
      .range(0, kMaxCount);
}

void add_seed(OptionTable& table, uint64_t& seed, std::string help) {
  table.add("seed", &seed, std::move(help));
}

}  // namespace trifold
