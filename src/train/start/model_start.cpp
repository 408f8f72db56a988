#include "train/start/model_start.h"

#include <algorithm>

#include "checkpoint/collective.h"
#include "checkpoint/reader.h"
#include "checkpoint/tensor_kind.h"
#include "config/commands/json.h"
#include "config/fields/batch_sizes.h"
#include "core/read_json.h"
#include "models/folders/open_model.h"
#include "optim/update_rule.h"
#include "run/checkpoint_data.h"
#include "run/job.h"
#include "train/start/checkpoint_model.h"

namespace trifold {

namespace {

// BadInput if only one of the runs consists of whole passes, which have another order of samples. `name` is the
// checkpoint's.
void check_length(const RunStart& start, const PretrainConfig& config, const CheckpointMeta& meta,
                  const std::string& name) {
  const bool passes = meta.config.contains("train_epochs") && !meta.config["train_epochs"].is_null();
  const BatchConfig& batch = config.batch;
  if (meta.step > 0 && passes != batch.train_epochs.has_value())
    bad_input("{} was trained with --{}, which orders samples differently: resume with it, not with --{}",
              name, passes ? "train-epochs" : "train-iters", passes ? "train-iters" : "train-epochs");
  if (batch.train_epochs && !batch.pass_samples) return;  // a mistake in the data, which is already reported
  if (meta.step < batch.train_iters || lacks_evaluation(start, config.checkpoint) ||
      lacks_model(start, config.checkpoint))
    return;
  if (batch.train_epochs)
    bad_input("{} has done all of --train-epochs {} already; give more epochs to continue", name,
              *batch.train_epochs);
  bad_input("{} has done {} steps already; --train-iters {} leaves nothing to train: give more than {}", name,
            meta.step, batch.train_iters, meta.step);
}

// Whether the batches of the checkpoint's run grew.
bool grew(const CheckpointMeta& meta) {
  const auto ramp = meta.config.find("rampup_batch_size");
  return ramp != meta.config.end() && ramp->is_array() && !ramp->empty();
}

// True for the checkpoint of a model without the head of a task.
bool lacks_task_head(const std::string& checkpoint) {
  return !has_task_head(describe_checkpoint(open_model(checkpoint)).model);
}

// True for a checkpoint whose weights are frozen when adapters are added.
bool lacks_adapters(const std::string& checkpoint) {
  return !describe_checkpoint(open_model(checkpoint)).model.adapters.lora_rank;
}

}  // namespace

RunStart choose_start(const CheckpointConfig& config, const ModelConfig& model) {
  RunStart start = choose_start(config);
  const bool continues = start.may_fall_back;
  if (!continues && start.from && has_task_head(model) && lacks_task_head(*start.from))
    start.part = LoadPart::Encoder;
  else if (!continues && start.from && model.adapters.lora_rank && lacks_adapters(*start.from))
    start.part = LoadPart::Weights;
  return start;
}

int64_t check_start(const RunStart& start, const PretrainConfig& config, const DataSource* train,
                    const DataFingerprint& data) {
  const CheckpointReader reader = checkpoint_of(start);
  const CheckpointMeta& meta = reader.meta();
  const std::string name = reader.directory().string();
  expect_language_model(reader);
  check_not_marked(start, config.checkpoint);
  try {
    compare_checkpoint_model(meta.model, to_json(config.model), start.part);
  } catch (Error& error) {
    error.add_context(name);
    throw;
  }
  if (start.part != LoadPart::All) return 0;
  if (!start.new_optimizer &&
      std::all_of(reader.tensors().begin(), reader.tensors().end(),
                  [](const TensorInfo& tensor) { return is_weight(tensor.name); }) &&
      !make_update_rule(config.optimizer)->state_names().empty())
    bad_input(
        "{} holds weights, but no state of the optimizer: give --finetune to start from these weights, or "
        "--no-load-optim to continue with them",
        name);
  const JsonView run(meta.config, name + ": config");
  const int64_t batch = meta.step == 0                 ? 0
                        : run.has("global_batch_size") ? run.at("global_batch_size").integer(1)
                                                       : meta.consumed_samples / meta.step;
  if (meta.step > 0 && batch != *config.batch.global_batch_size)
    bad_input("{} was trained with global batches of {}: resume with --global-batch-size {}, not {}", name,
              batch, batch, *config.batch.global_batch_size);
  if (!is_finished(start, config)) check_length(start, config, meta, name);
  // Only the last batch of whole passes may be smaller.
  const bool passes = config.batch.pass_samples || config.batch.train_epochs;
  const BatchSizes sizes(ramp_of(config.batch), *config.batch.global_batch_size);
  const int64_t consumed = sizes.samples_of(meta.step);
  constexpr const char* kRamp = "rampup_batch_size";
  if (passes && meta.step > 0 && (sizes.grows() || grew(meta)) &&
      meta.config.value(kRamp, nlohmann::json()) != to_json(config).value(kRamp, nlohmann::json()))
    bad_input("{} was trained with another --rampup-batch-size: resume with the one of its run", name);
  if (!passes && meta.consumed_samples != consumed && (sizes.grows() || grew(meta)))
    bad_input(
        "{} has consumed {} samples in {} steps, not {}: resume with the --rampup-batch-size of its run",
        name, meta.consumed_samples, meta.step, consumed);
  if (!passes && meta.consumed_samples != consumed)
    bad_input("{} is damaged: its manifest says {} samples for {} steps of {}", name, meta.consumed_samples,
              meta.step, *config.batch.global_batch_size);
  const bool may_differ = config.checkpoint.allow_changed_data;
  if (!is_finished(start, config)) check_training_data(meta, name, data, may_differ);
  if (train != nullptr) open_at_bookmark(meta, *train, may_differ);
  return meta.step;
}

void check_same_data(Communicator& world, const DataSource& train) {
  const std::vector<std::string> bookmarks =
      gather_texts(world, "comparing the data of the ranks", [&] { return train.bookmark(0); });
  for (size_t rank = 1; rank < bookmarks.size(); ++rank)
    if (bookmarks[rank] != bookmarks[0])
      throw Error(fmt::format("the training data of rank {} are not those of rank 0: the names, sizes or "
                              "tokenizers of their files differ; give every host the same files",
                              rank),
                  ErrorKind::Agreed);
}

bool is_finished(const RunStart& start, const PretrainConfig& config) {
  return start.may_fall_back && position_of(start).steps >= config.batch.train_iters &&
         !lacks_evaluation(start, config.checkpoint) && !lacks_model(start, config.checkpoint);
}

}  // namespace trifold
