#include "train/run_start.h"

#include <algorithm>
#include <sstream>

#include "checkpoint/collective.h"
#include "checkpoint/reader.h"
#include "checkpoint/save_folder.h"
#include "config/json.h"
#include "train/checkpoint_model.h"

namespace trifold {

namespace {

// The order of the samples is another one in a run of whole passes. `name` is the checkpoint's.
void check_length(const PretrainConfig& config, const CheckpointMeta& meta, const std::string& name) {
  const bool passes = meta.config.contains("train_epochs") && !meta.config["train_epochs"].is_null();
  const BatchConfig& batch = config.batch;
  if (meta.step > 0 && passes != batch.train_epochs.has_value())
    bad_input(
        "{} was trained with --{}, which takes the samples in another order: resume with it, not with --{}",
        name, passes ? "train-epochs" : "train-iters", passes ? "train-iters" : "train-epochs");
  if (batch.train_epochs && !batch.train_samples) return;  // the data are at fault, which is told already
  if (meta.step < batch.train_iters) return;
  if (batch.train_epochs)
    bad_input("{} has done all of --train-epochs {} already; more would leave something to train", name,
              *batch.train_epochs);
  bad_input("{} has done {} steps already; --train-iters {} leaves nothing to train, more than {} would",
            name, meta.step, batch.train_iters, meta.step);
}

// Whether the checkpoint is that of a model without the head of a task.
bool lacks_task_head(const std::string& checkpoint) {
  return !has_task_head(describe_checkpoint(checkpoint).model);
}

ModelUse use_of(Trainer::LoadPart part) {
  if (part == Trainer::LoadPart::Encoder) return ModelUse::Encoder;
  return part == Trainer::LoadPart::Weights ? ModelUse::WeightsOnly : ModelUse::SameRun;
}

}  // namespace

RunStart choose_start(const CheckpointConfig& config, const ModelConfig& model) {
  if (config.auto_resume && config.save && !checkpoints_in(*config.save).empty())
    return {config.save, Trainer::LoadPart::All, true};
  if (config.load && has_task_head(model) && lacks_task_head(*config.load))
    return {config.load, Trainer::LoadPart::Encoder, false};
  return {config.load, config.finetune ? Trainer::LoadPart::Weights : Trainer::LoadPart::All, false};
}

RunPosition position_of(const RunStart& start) {
  if (!start.from || start.part != Trainer::LoadPart::All) return {};
  try {
    const CheckpointReader reader(*start.from);
    return {reader.meta().step, reader.meta().consumed_samples};
  } catch (const Error&) {
    return {};  // check_start says what is wrong
  }
}

int64_t check_start(const RunStart& start, const PretrainConfig& config, const DataSource* train) {
  const CheckpointReader reader(*start.from);
  const CheckpointMeta& meta = reader.meta();
  const std::string name = reader.directory().string();
  compare_checkpoint_model(meta.model, to_json(config.model), use_of(start.part));
  if (start.part != Trainer::LoadPart::All) return 0;
  if (std::all_of(reader.tensors().begin(), reader.tensors().end(),
                  [](const TensorInfo& tensor) { return tensor.name.starts_with("param/"); }) &&
      !(config.optimizer.optimizer == "sgd" && config.optimizer.sgd_momentum == 0))
    bad_input("{} holds weights, but no state of the optimizer: give --finetune to start from these weights",
              name);
  const int64_t batch =
      meta.step == 0 ? 0 : meta.config.value("global_batch_size", meta.consumed_samples / meta.step);
  if (meta.step > 0 && batch != *config.batch.global_batch_size)
    bad_input("{} was trained with global batches of {}: resume with --global-batch-size {}, not {}", name,
              batch, batch, *config.batch.global_batch_size);
  if (!is_finished(start, config)) check_length(config, meta, name);
  const std::string bookmark = data_bookmark(meta);
  if (train != nullptr && !bookmark.empty())
    train->open_at(bookmark);
  else if (train != nullptr && meta.consumed_samples > 0 && !train->bookmark(0).empty())
    bad_input(
        "the checkpoint has no place in these training data, it was trained on others: give the same, or "
        "start "
        "anew from its weights with --finetune");
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
  return start.may_fall_back && position_of(start).steps >= config.batch.train_iters;
}

std::vector<std::string> load_start(Trainer& trainer, const RunStart& start, Communicator& world,
                                    std::vector<std::string>& warnings) {
  if (!start.from) return {};
  if (!start.may_fall_back) return trainer.load(*start.from, start.part);
  // The list of rank 0 counts: folders that come or go meanwhile must not divide the ranks.
  std::istringstream folders(gather_texts(world, "looking for checkpoints", [&] {
                               std::string lines;
                               for (const auto& [step, folder] : checkpoints_in(*start.from))
                                 lines += folder.string() + "\n";
                               return lines;
                             }).front());
  for (std::string folder; std::getline(folders, folder);) {
    try {
      return trainer.load(folder);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::Aborted) throw;
      warnings.push_back(fmt::format("passed over {}: {}", folder, error.what()));
    }
  }
  bad_input("no checkpoint in {} can be used:\n{}", *start.from, fmt::join(warnings, "\n"));
}

}  // namespace trifold
