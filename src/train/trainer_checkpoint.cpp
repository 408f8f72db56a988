// The trainer's checkpoints: the tensors of a run, and its other state. Learning rate and dropout follow from the
// number of steps, the position in the data from the samples consumed, so these two numbers suffice.
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "checkpoint/collective.h"
#include "checkpoint/convert_floats.h"
#include "checkpoint/reader.h"
#include "checkpoint/tensor_kind.h"
#include "config/commands/json.h"
#include "config/commands/option_tables.h"
#include "config/fields/schedule.h"
#include "core/read_json.h"
#include "layout/checkpoint_boxes.h"
#include "mesh/mesh_sizes.h"
#include "models/adapters/adapter_modules.h"
#include "models/adapters/dequantized.h"
#include "models/adapters/frozen_weights.h"
#include "models/folders/open_model.h"
#include "run/changed_options.h"
#include "run/checkpoint_data.h"
#include "run/checks/replica_check.h"
#include "run/tensors_on_host.h"
#include "tokenize/chat/chat_template.h"
#include "train/start/checkpoint_model.h"
#include "train/start/quantized_weights.h"
#include "train/start/upcycling.h"
#include "train/stored_state.h"
#include "train/trainer.h"

namespace trifold {

namespace {

void keep_weights(std::vector<NamedTensor>& tensors) {
  std::erase_if(tensors, [](const NamedTensor& tensor) { return !is_weight(tensor.spec.name); });
}

}  // namespace

std::vector<NamedTensor> Trainer::checkpoint_tensors(bool to_load) {
  replica_.weights().finish(replica_.compute());
  const RankLayout& layout = replica_.layout();
  // Adapters are saved without the frozen weights, which stay where they were loaded from.
  std::vector<NamedTensor> tensors = stored_tensors(layout.params(), optimizer_, [&](ParamId id) {
    return to_load || (layout.saves(id) && !(has_adapters() && layout.params()[id].frozen));
  });
  if (!to_load && config_.checkpoint.no_save_optim) keep_weights(tensors);
  return tensors;
}

std::vector<NamedTensor> Trainer::held_tensors() {
  std::vector<NamedTensor> tensors = checkpoint_tensors(true);
  replica_.compute().synchronize();
  return tensors;
}

CheckpointMeta Trainer::checkpoint_meta() const {
  CheckpointMeta meta;
  meta.step = steps_done_;
  meta.consumed_samples = consumed_samples_;
  meta.model = to_json(config_.model);
  meta.mesh = to_json(replica_.mesh().sizes());
  meta.config = to_json(config_);
  DataConfig data = config_.data;
  if (data.chat_template_text) data.chat_template = kChatTemplateFile;  // with_attachments
  meta.state = {{"tokenizer", tokenizer_to_json(data)},
                // The type of saved weights: masters, if the weights have 16 bits.
                {"dtype", std::string(name_of(accumulate_type(replica_.dtype())))},
                {"skipped_steps", skipped_},
                {"best", best_.state()},
                {"losses", losses_.state()},
                {"loss_scaler",
                 {{"dynamic", scaler_.dynamic()},
                  {"scale", scaler_.state().scale},
                  {"steps_without_overflow", scaler_.state().steps_without_overflow},
                  {"overflows_left", scaler_.state().overflows_left}}}};
  if (run_.batch_sizes.grows()) meta.state["skipped_samples"] = skipped_samples_;
  if (optimizer_began_ > 0) meta.state["optimizer_began"] = optimizer_began_;
  if (!hugging_face_.is_null()) meta.state[kKeptFields] = hugging_face_;
  if (has_adapters()) meta.state[kFrozenWeights] = frozen_weights_;
  if (loads_ && loads_->keeps_choices()) meta.state["expert_choices"] = loads_->state();
  const std::string bookmark = train_.bookmark(consumed_samples_);
  if (!bookmark.empty()) meta.state["data"] = bookmark;
  if (data_ != nullptr) note_data(meta, *data_);
  return meta;
}

void Trainer::check_replicas(const std::string& when) {
  compare_copies(replica_.world(), replica_.ops(), replica_.compute(),
                 held_copies(replica_.mesh(), replica_.layout().flat(), replica_.weights(), optimizer_,
                             grads_, replica_.compute()),
                 when);
  optimizer_.release();
}

std::vector<NamedTensor> Trainer::tensors_to_save(const SaveOptions& options) {
  std::vector<NamedTensor> tensors = checkpoint_tensors(false);
  if (options.only_weights) keep_weights(tensors);
  return tensors;
}

namespace {

// The options with the files that belong to the model.
SaveOptions with_attachments(SaveOptions options, const DataConfig& data) {
  if (data.chat_template_text) options.attached.push_back({kChatTemplateFile, *data.chat_template_text});
  return options;
}

}  // namespace

std::string Trainer::save(const std::string& root, const SaveOptions& options) {
  TensorsOnHost host(tensors_to_save(options), replica_.ops(), replica_.compute());
  host.fetch();
  std::string directory = save_checkpoint(root, checkpoint_meta(), host.tensors(), replica_.world(),
                                          replica_.mesh().coords(), with_attachments(options, config_.data))
                              .string();
  optimizer_.release();
  return directory;
}

std::string Trainer::save_in_background(BackgroundSaver& saver, const std::string& root,
                                        const SaveOptions& options) {
  TensorsOnHost host(tensors_to_save(options), replica_.ops(), replica_.compute());
  host.fetch();
  std::string shortage = saver.start(root, checkpoint_meta(), host.tensors(), replica_.mesh().coords(),
                                     with_attachments(options, config_.data));
  optimizer_.release();
  return shortage;
}

namespace {

bool updates_inside_pipeline(const nlohmann::json& config) {
  const auto schedule = config.find("schedule");
  if (schedule == config.end() || !schedule->is_string()) return false;
  const auto known = find_schedule(schedule->get<std::string>());
  return known && is_async(*known);
}

}  // namespace

namespace {

// A task's head, the model's last block, is newly initialised except for parameters in the checkpoint: the pooler,
// unless the BERT was trained without pairs.
void leave_out_head(std::vector<NamedTensor>& wanted, const ParamList& params, const CheckpointReader& from) {
  const auto specs = params.specs();
  const int head = std::max_element(specs.begin(), specs.end(), [](const ParamSpec& a, const ParamSpec& b) {
                     return a.block < b.block;
                   })->block;
  std::set<std::string> missing;
  for (const ParamSpec& spec : specs)
    if (spec.block == head) missing.insert(fmt::format("{}/{}", kWeightKind, spec.shard.name));
  for (const TensorInfo& tensor : from.tensors()) missing.erase(tensor.name);
  std::erase_if(wanted, [&](const NamedTensor& tensor) { return missing.count(tensor.spec.name) > 0; });
}

// Whether averages of weights are wanted and stored; leaves them out of `wanted` if they are not stored.
bool leave_out_missing_average(std::vector<NamedTensor>& wanted, const CheckpointReader& from) {
  const auto is_average = [](const std::string& name) { return kind_of_tensor(name) == kAverageKind; };
  const bool stored = std::any_of(from.tensors().begin(), from.tensors().end(),
                                  [&](const TensorInfo& tensor) { return is_average(tensor.name); });
  if (!stored) std::erase_if(wanted, [&](const NamedTensor& tensor) { return is_average(tensor.spec.name); });
  return std::any_of(wanted.begin(), wanted.end(),
                     [&](const NamedTensor& tensor) { return is_average(tensor.spec.name); });
}

// BadInput if moments of 8 bits, codes with scales that no conversion reads, are stored for numbers or wanted of them.
void compare_moments(const std::vector<NamedTensor>& wanted, const CheckpointReader& from) {
  constexpr std::pair<std::string_view, const char*> kMoments[] = {{"adam_m", "--exp-avg-dtype"},
                                                                   {"adam_v", "--exp-avg-sq-dtype"}};
  std::set<std::string> options;
  bool stored_in_8bit = false;
  for (const NamedTensor& tensor : wanted)
    for (const auto& [kind, option] : kMoments) {
      if (kind_of_tensor(tensor.spec.name) != kind) continue;
      const TensorInfo* stored = from.find(tensor.spec.name);
      if (stored == nullptr || (stored->dtype == DType::U8) == (tensor.data.dtype == DType::U8)) continue;
      stored_in_8bit = stored->dtype == DType::U8;
      options.insert(fmt::format("{} {}", option, stored_in_8bit ? "fp8" : "fp32"));
    }
  if (options.empty()) return;
  bad_input("{} has moments {} 8 bits: resume with {}, or begin them anew with --no-load-optim",
            from.directory().string(), stored_in_8bit ? "of" : "of more than", fmt::join(options, " "));
}

}  // namespace

void Trainer::begin_adapters(std::vector<NamedTensor>& wanted, CheckpointReader& from) const {
  std::map<std::string, AdaptedModule> new_magnitudes;
  std::set<std::string> others;
  for (const AdaptedModule& module : adapted_modules(config_.model)) {
    if (from.find(module.a()) != nullptr) continue;
    new_magnitudes.emplace(module.magnitude(), module);
    others.insert({module.a(), module.b()});
  }
  std::erase_if(wanted, [&](const NamedTensor& tensor) {
    const auto found = new_magnitudes.find(tensor.spec.name);
    if (found == new_magnitudes.end()) return others.count(tensor.spec.name) > 0;
    // Boxes of a magnitude [outputs] or [groups, outputs]: a run of elements of each group.
    const Rect& box = tensor.spec.local;
    const int last = tensor.spec.global.rank() - 1;
    const int64_t width = tensor.spec.global[last], count = box.extent[last];
    std::vector<double> norms;
    for (int64_t group = 0; group < (last == 0 ? 1 : box.extent[0]); ++group) {
      const int64_t begin = (last == 0 ? 0 : (box.offset[0] + group) * width) + box.offset[last];
      const std::vector<double> run = first_magnitudes(from, found->second, begin, begin + count);
      norms.insert(norms.end(), run.begin(), run.end());
    }
    convert_floats(tensor.data.data, tensor.data.dtype, norms.data(), DType::F64, box.elements());
    return true;
  });
}

std::vector<std::string> Trainer::load(const std::string& path, LoadPart part, bool new_optimizer,
                                       bool other_batch) {
  std::optional<CheckpointReader> reader;
  bool averaged = false;
  gather_texts(replica_.world(), "loading " + path, [&]() -> std::string {
    reader.emplace(open_weights(path));
    compare_checkpoint_model(reader->meta().model, to_json(config_.model), part);
    if (part == LoadPart::All) check_state(reader->meta(), config_.model, reader->directory().string());
    // Only whole passes may have ended with a smaller batch.
    check(other_batch || part != LoadPart::All || config_.batch.pass_samples ||
              reader->meta().consumed_samples == run_.batch_sizes.samples_of(reader->meta().step),
          "{} was trained with another global batch size", reader->directory().string());
    TensorsOnHost host(checkpoint_tensors(true), replica_.ops(), replica_.compute());
    host.fetch();  // tensors missing in the checkpoint keep their values
    std::vector<NamedTensor> wanted = host.tensors();
    if (part != LoadPart::All || new_optimizer) keep_weights(wanted);
    if (part == LoadPart::Encoder) leave_out_head(wanted, replica_.model().params, *reader);
    if (part == LoadPart::Dense) wanted = wanted_of_dense(wanted);
    compare_moments(wanted, *reader);
    averaged = leave_out_missing_average(wanted, *reader);
    if (has_adapters() && part != LoadPart::All) {
      CheckpointReader base = dequantized(*reader, config_.model);
      begin_adapters(wanted, base);
    }
    reader->load(wanted, FloatConversion::Allow);
    load_quantized(replica_, optimizer_.quantized(), *reader);
    host.put_back();
    hugging_face_ = reader->meta().state.value(kKeptFields, nlohmann::json());
    if (has_adapters()) frozen_weights_ = frozen_weights_of(*reader);
    return {};
  });
  optimizer_.refresh_weights(replica_.compute());
  if (!averaged) optimizer_.restart_average(replica_.compute());
  optimizer_.release();
  if (loads_) loads_->take_biases();
  const std::string from = reader->directory().string();
  const CheckpointConfig& options = config_.checkpoint;
  if (part == LoadPart::Weights && options.no_load_optim && !options.finetune)
    return {"only the weights were taken from " + from +
            ", which has nothing else: --no-load-optim has no effect"};
  if (part == LoadPart::Weights && has_adapters()) {
    int64_t trained = 0;
    for (const ParamSpec& spec : replica_.model().params.specs())
      if (!spec.frozen) trained += spec.shard.elements_of_part();
    return {fmt::format("the frozen weights were taken from {}: {} of {} parameters are trained", from,
                        trained, replica_.model().params.global_elements())};
  }
  if (part == LoadPart::Weights) return {"only the weights were taken from " + from};
  if (part == LoadPart::Dense) return {"every expert is a copy of a feed-forward network of " + from};
  if (part == LoadPart::Encoder) return {"the weights before the head were taken from " + from};
  std::vector<std::string> changes = changes_since(reader->meta());
  resume_at(reader->meta(), changes);
  if (config_.optimizer.ema && !averaged)
    changes.push_back("--ema: the average of the weights begins with the weights of " + from);
  if (new_optimizer) {
    optimizer_began_ = updates_before(steps_done_);
    changes.emplace_back("--no-load-optim: the optimizer state begins anew");
  }
  return changes;
}

void Trainer::resume_at(const CheckpointMeta& meta, std::vector<std::string>& changes) {
  steps_done_ = meta.step;
  consumed_samples_ = meta.consumed_samples;
  const JsonView state(meta.state, "the checkpoint's state");
  skipped_ = state.has("skipped_steps") ? state.at("skipped_steps").integer(0) : 0;
  skipped_samples_ = state.has("skipped_samples") ? state.at("skipped_samples").integer(0)
                                                  : skipped_ * run_.batch_sizes.full();
  optimizer_began_ = state.has("optimizer_began") ? state.at("optimizer_began").integer(0) : 0;
  if (state.has("best")) best_.restore(state.at("best"), meta.step);
  if (state.has("losses")) losses_.restore(state.at("losses"));
  // A run without a dynamic loss scale has no state to restore.
  if (state.has("loss_scaler") && state.at("loss_scaler").flag("dynamic", false)) {
    const JsonView scaler = state.at("loss_scaler");
    scaler_.restore({scaler.at("scale").number(), scaler.at("steps_without_overflow").integer(0),
                     scaler.at("overflows_left").integer(-meta.step)});
  }
  if (loads_ && loads_->keeps_choices()) {
    loads_->forget();
    if (state.has("expert_choices")) loads_->restore(state.at("expert_choices"));
    loads_->write_choices(executor_->host_values());
  }
  if (data_ != nullptr)
    if (const std::string changed = data_difference(meta, *data_); !changed.empty())
      changes.push_back("the training data: " + changed);
  open_at_bookmark(meta, train_, config_.checkpoint.allow_changed_data);
  batches_.reset();
}

std::vector<std::string> Trainer::changes_since(const CheckpointMeta& meta) const {
  PretrainConfig config = config_;
  const nlohmann::json now = to_json(config_);
  const bool async = updates_inside_pipeline(meta.config) || updates_inside_pipeline(now);
  // Most schedules give the same results; asynchronous ones do not.
  return changed_options(meta.config, now, options_of(config),
                         [&](const Option& option) { return async && option.name == "schedule"; });
}

}  // namespace trifold
