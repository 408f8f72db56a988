// The trainer's checkpoints: which tensors a run consists of, and what else it must remember. Position,
// learning rate and dropout follow from the number of steps, so that number is all.
#include "checkpoint/reader.h"
#include "config/json.h"
#include "train/trainer.h"

namespace trifold {

namespace {

NamedTensor named(const std::string& kind, const ShardSpec& spec, Tensor data) {
  NamedTensor tensor{spec, data};
  tensor.spec.name = kind + "/" + spec.name;
  return tensor;
}

}  // namespace

std::vector<NamedTensor> Trainer::checkpoint_tensors() {
  const ParamList& params = replica_.model().params;
  std::vector<NamedTensor> tensors;
  for (ParamId id : params.by_name()) {
    tensors.push_back(named("param", params[id].shard, replica_.weights().weight(id)));
    tensors.push_back(named("adam_m", params[id].shard, optimizer_.first_moment(id)));
    tensors.push_back(named("adam_v", params[id].shard, optimizer_.second_moment(id)));
  }
  return tensors;
}

CheckpointMeta Trainer::checkpoint_meta() const {
  const MeshSizes& sizes = replica_.mesh().sizes();
  CheckpointMeta meta;
  meta.step = steps_done_;
  meta.consumed_samples = steps_done_ * *config_.batch.global_batch_size;
  meta.model = to_json(config_.model);
  meta.mesh = {{"tp", sizes.tp}, {"dp", sizes.dp}, {"pp", sizes.pp}};
  meta.config = to_json(config_);
  meta.state = {{"tokenizer", tokenizer_to_json(config_.data)},
                {"dtype", std::string(name_of(replica_.dtype()))}};
  return meta;
}

std::string Trainer::save(const std::string& root) {
  return save_checkpoint(root, checkpoint_meta(), checkpoint_tensors(), replica_.world(),
                         replica_.mesh().coords())
      .string();
}

void Trainer::load(const std::string& path) {
  CheckpointReader reader(path);
  compare_models(reader.meta().model, to_json(config_.model));
  const int64_t batch = *config_.batch.global_batch_size;
  if (reader.meta().consumed_samples % batch != 0)
    bad_input(
        "{} has consumed {} samples, which is not a whole number of global batches of {}: resume with the "
        "--global-batch-size it was written with",
        reader.directory().string(), reader.meta().consumed_samples, batch);
  reader.load(checkpoint_tensors());
  steps_done_ = reader.meta().consumed_samples / batch;
  batches_.reset();
}

}  // namespace trifold
