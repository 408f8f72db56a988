#include "config/subjects/checkpoint.h"

#include "config/options/bounds.h"

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
      .of_execution()
      .only_with("save")
      .as_note();
  table
      .add(
          "load", &checkpoint.load,
          "Folder of checkpoints to resume from; it must exist and may be that of --save. Or, for a language "
          "model, a Hugging Face folder, whose weights the run begins with.")
      .names("DIR", FileUse::Loaded)
      .absent("start from random weights")
      .of_execution();
  table
      .add("auto-resume", &checkpoint.auto_resume,
           "Resume from the newest usable checkpoint in the folder of --save; if it has none, use --load.")
      .of_execution()
      .only_with("save");
  table
      .add("allow-changed-data", &checkpoint.allow_changed_data,
           "Resume even if the training data differ from the checkpoint's in size or content.")
      .of_execution()
      .only_with(When("load").or_when("auto-resume"), "because this run does not resume from a checkpoint")
      .as_note()
      .no_effect_with("finetune", "because this run does not resume from a checkpoint")
      .unless("auto-resume")
      .as_note();
  table
      .add("async-save", &checkpoint.async_save,
           "Copy the state and write it in the background while training continues.")
      .of_execution()
      .only_with("save")
      .as_note();
  table.add("save-retain", &checkpoint.save_retain, "Keep only this many of the newest valid checkpoints.")
      .range(2, 1 << 20)
      .absent("all are kept")
      .of_execution()
      .only_with(When("save").or_when("save-hf"))
      .as_note();
  table
      .add("save-best", &checkpoint.save_best,
           "Also save after each evaluation that is better than all before, and let the file BEST in the "
           "folder name that checkpoint, which then stays: --load DIR/BEST takes it.")
      .of_execution()
      .only_with("save")
      .only_with({"eval-interval", AtLeast{1}}, "because the run is not evaluated while it trains",
                 "give --eval-interval N, and samples to evaluate on")
      .no_effect_with({"eval-iters", "0"}, "which disables evaluation", "give at least --eval-iters 1");
  table
      .add("on-save-error", &checkpoint.on_save_error,
           "Reaction to a checkpoint that cannot be saved; "
           "failing to save the last one always ends the run with an error.")
      .of_execution()
      .only_with(When("save").or_when("save-hf"))
      .as_note();
  table
      .add(
          "check-replicas", &checkpoint.check_replicas,
          "Compare replicas of weights and optimizer state every N steps and before each save, and "
          "end the run if they differ; with sharded optimizer state also before the update of these steps; 0: never.")
      .range(0, kMaxCount)
      .absent("before each save")
      .of_execution()
      .only_with("save")
      .as_note()
      .only_for("0");
}

void add_checkpoint(OptionTable& table, CheckpointConfig& checkpoint) {
  add_saving(table, checkpoint);
  table
      .add("finetune", &checkpoint.finetune,
           "Load only the weights of --load; steps, data and optimizer start from the beginning.")
      .of_execution()
      .only_with("load");
  table.add("ckpt-step", &checkpoint.ckpt_step, "Step of the checkpoint in the folder of --load to read.")
      .range(0, kMaxCount)
      .absent("the newest")
      .of_execution()
      .only_with("load");
}

void add_optimizer_state(OptionTable& table, CheckpointConfig& checkpoint) {
  table
      .add("no-load-optim", &checkpoint.no_load_optim,
           "Continue from --load with its weights, step and data, but begin with a new optimizer state.")
      .of_execution()
      .only_with("load")
      .as_note()
      .no_effect_with("finetune", "which loads the weights alone")
      .as_note();
  table
      .add(
          "no-save-optim", &checkpoint.no_save_optim,
          "Save no optimizer state: smaller checkpoints, from which a run continues with --no-load-optim alone.")
      .of_execution()
      .only_with("save")
      .as_note()
      .excludes("auto-resume", "which continues a run with its optimizer state", "leave one of them out");
}

void add_load_ema(OptionTable& table, bool& load_ema) {
  table.add(
      "load-ema", &load_ema,
      "Take the exponential average of the weights, which a run with --ema keeps, instead of the weights.");
}

void add_model_folders(OptionTable& table, CheckpointConfig& checkpoint) {
  table
      .add("save-hf", &checkpoint.save_hf,
           "Folder for the Hugging Face models of --save-hf-interval; runs must not share one.")
      .names("DIR", FileUse::Filled)
      .absent("none is written")
      .of_execution()
      .only_with("save-hf-interval", "because no step is chosen to write one", "give --save-hf-interval N");
  table
      .add("save-hf-interval", &checkpoint.save_hf_interval,
           "Every N steps, write the model in the background as a Hugging Face folder, DIR/hf_iter_<step>; "
           "--save-retain applies to them too.")
      .range(1, kMaxCount)
      .absent("none is written")
      .of_execution()
      .only_with("save-hf", "because no folder is named for the models", "give --save-hf DIR");
  table.add("save-hf-dtype", &checkpoint.save_hf_dtype, "Data type of their tensors, rounded to nearest.")
      .absent("that of the checkpoints: f32, or f64 with --f64")
      .of_execution()
      .only_with("save-hf-interval");
  table
      .add("hugging-face-family", &checkpoint.hugging_face_family,
           "Their model_type, such as mistral, if several families have the model.")
      .takes("TYPE")
      .absent(
          "the family of the folder or checkpoint in --load, or else the most common one that has the model")
      .of_execution()
      .only_with("save-hf-interval");
}

}  // namespace trifold
