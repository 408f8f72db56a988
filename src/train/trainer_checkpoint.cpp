// The trainer's checkpoints: which tensors a run consists of, and what else it must remember. Learning rate
// and dropout follow from the number of steps, the place in the data from the samples consumed: these two are
// all.
#include <algorithm>

#include "checkpoint/reader.h"
#include "config/json.h"
#include "train/trainer.h"

namespace trifold {

namespace {

AxisSet without_data_axis(AxisSet axes) { return axes.has(Axis::Tp) ? AxisSet{Axis::Tp} : AxisSet{}; }

}  // namespace

namespace {

// Adds the boxes of a piece of a parameter, which ranks of other slices do not hold, under its name. A copy
// of a tied weight goes by the name of its original.
void add_pieces(std::vector<NamedTensor>& to, std::string_view kind, const ParamList& params,
                const FlatLayout::Segment& segment, Tensor values) {
  ShardSpec shard = params[params[segment.id].tied_to.value_or(segment.id)].shard;
  shard.name = fmt::format("{}/{}", kind, shard.name);
  const Rect local = shard.local;
  int64_t done = 0;
  for (const Rect& rect : rects_of_range(local, segment.first, segment.first + segment.count)) {
    shard.local = rect;
    to.push_back({shard, values.rows(done, done + rect.elements()).reshape(rect.extent)});
    done += rect.elements();
  }
}

}  // namespace

// To load, every rank names all it holds. To save, what several hold is named by the first of them: the rules
// of ShardSpec say so for the tensor axis; along the data axis it is the first of those that own the piece. A
// copy of a tied weight is never saved.
std::vector<NamedTensor> Trainer::checkpoint_tensors(bool to_load) {
  const ParamList& params = replica_.model().params;
  const bool first =
      grads_.slice() ? replica_.groups().replicas().rank() == 0 : replica_.mesh().coord(Axis::Dp) == 0;
  std::vector<NamedTensor> tensors;
  const auto wanted = [&](ParamId id) { return to_load || (first && !params[id].tied_to); };
  const auto add = [&](std::string_view kind, const FlatLayout::Segment& segment, Tensor values) {
    if (wanted(segment.id)) add_pieces(tensors, kind, params, segment, values);
  };
  for (const ShardedOptimizer::Piece& piece : optimizer_.pieces())
    add(piece.kind, piece.segment, piece.values);
  for (NamedTensor& tensor : tensors) tensor.spec.replicated = without_data_axis(tensor.spec.replicated);
  return tensors;
}

CheckpointMeta Trainer::checkpoint_meta() const {
  const MeshSizes& sizes = replica_.mesh().sizes();
  CheckpointMeta meta;
  meta.step = steps_done_;
  meta.consumed_samples = consumed_samples_;
  meta.model = to_json(config_.model);
  meta.mesh = {{"tp", sizes.tp}, {"dp", sizes.dp}, {"pp", sizes.pp}};
  meta.config = to_json(config_);
  meta.state = {{"tokenizer", tokenizer_to_json(config_.data)},
                // Of what is saved: masters, where the weights are in 16 bits.
                {"dtype", std::string(name_of(accumulate_type(replica_.dtype())))},
                {"skipped_steps", skipped_},
                {"loss_scaler",
                 {{"scale", scaler_.state().scale},
                  {"steps_without_overflow", scaler_.state().steps_without_overflow},
                  {"overflows_left", scaler_.state().overflows_left}}}};
  return meta;
}

std::string Trainer::save(const std::string& root) {
  std::string directory = save_checkpoint(root, checkpoint_meta(), checkpoint_tensors(false),
                                          replica_.world(), replica_.mesh().coords())
                              .string();
  optimizer_.release();
  return directory;
}

namespace {

// Options that say where and how a run happens, not what it computes. Schedules are among them, but for the
// asynchronous ones.
bool is_incidental(const std::string& difference) {
  if (difference.find("\"pipedream") != std::string::npos) return false;
  for (const char* option :
       {"save", "load", "log_", "ranks", "parallel", "schedule", "virtual_stages", "virtual_pipeline",
        "recompute", "zero_", "offload", "threads_per_rank", "device", "distributed_timeout",
        "micro_batch_size", "exit_interval", "tokenizer_model"})
    if (difference.find(option) < difference.find(':')) return true;
  return false;
}

}  // namespace

std::vector<std::string> Trainer::load(const std::string& path) {
  CheckpointReader reader(path);
  const CheckpointMeta& meta = reader.meta();
  compare_models(meta.model, to_json(config_.model));
  // Only whole passes may have ended with a smaller batch.
  check(config_.batch.train_samples || meta.consumed_samples == meta.step * *config_.batch.global_batch_size,
        "{} was trained with another global batch size", reader.directory().string());
  reader.load(checkpoint_tensors(true));
  optimizer_.refresh_weights(replica_.compute());
  optimizer_.release();
  steps_done_ = meta.step;
  consumed_samples_ = meta.consumed_samples;
  skipped_ = meta.state.value("skipped_steps", int64_t{0});
  if (meta.state.contains("loss_scaler")) {
    const auto& scaler = meta.state.at("loss_scaler");
    scaler_.restore({scaler.at("scale").get<double>(), scaler.at("steps_without_overflow").get<int64_t>(),
                     scaler.at("overflows_left").get<int64_t>()});
  }
  batches_.reset();
  std::vector<std::string> changes = differing_fields(meta.config, to_json(config_), "checkpoint", "now");
  changes.erase(std::remove_if(changes.begin(), changes.end(), is_incidental), changes.end());
  return changes;
}

}  // namespace trifold
