// The trainer's checkpoints: which tensors a run consists of, and what else it must remember. Position,
// learning rate and dropout follow from the number of steps, so that number is all.
#include <algorithm>

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

// What this rank stores. A copy of a tied weight goes by the name of its original; it is read but never
// saved.
std::vector<NamedTensor> Trainer::checkpoint_tensors(bool with_copies) {
  const ParamList& params = replica_.model().params;
  std::vector<NamedTensor> tensors;
  for (int i = 0; i < params.size(); ++i) {
    const ParamId id{i};
    const std::optional<ParamId>& original = params[id].tied_to;
    if (!params.stored(id) || (original && !with_copies)) continue;
    const ShardSpec& shard = params[original.value_or(id)].shard;
    tensors.push_back(named("param", shard, replica_.weights().weight(id)));
    tensors.push_back(named("adam_m", shard, optimizer_.first_moment(id)));
    tensors.push_back(named("adam_v", shard, optimizer_.second_moment(id)));
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
  return save_checkpoint(root, checkpoint_meta(), checkpoint_tensors(false), replica_.world(),
                         replica_.mesh().coords())
      .string();
}

namespace {

// Options that say where and how a run happens, not what it computes. Schedules are among them, but for the
// asynchronous ones.
bool is_incidental(const std::string& difference) {
  if (difference.find("\"pipedream") != std::string::npos) return false;
  for (const char* option : {"save", "load", "log_", "ranks", "parallel", "schedule", "virtual_stages",
                             "virtual_pipeline", "recompute", "threads_per_rank", "device",
                             "distributed_timeout", "micro_batch_size", "exit_interval", "tokenizer_model"})
    if (difference.find(option) < difference.find(':')) return true;
  return false;
}

}  // namespace

std::vector<std::string> Trainer::load(const std::string& path) {
  CheckpointReader reader(path);
  const CheckpointMeta& meta = reader.meta();
  compare_models(meta.model, to_json(config_.model));
  check(meta.consumed_samples == meta.step * *config_.batch.global_batch_size,
        "{} was trained with another global batch size", reader.directory().string());
  reader.load(checkpoint_tensors(true));
  steps_done_ = meta.step;
  batches_.reset();
  std::vector<std::string> changes = differing_fields(meta.config, to_json(config_), "checkpoint", "now");
  changes.erase(std::remove_if(changes.begin(), changes.end(), is_incidental), changes.end());
  return changes;
}

}  // namespace trifold
