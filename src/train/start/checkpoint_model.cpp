#include "train/start/checkpoint_model.h"

#include <utility>
#include <vector>

#include "config/commands/json.h"
#include "config/commands/option_tables.h"
#include "config/commands/validate.h"
#include "config/options/problems.h"
#include "config/subjects/mesh.h"
#include "config/subjects/model.h"
#include "config/subjects/model_family.h"
#include "config/subjects/text.h"
#include "config/subjects/tuning/adapters.h"
#include "core/read_json.h"
#include "layout/checkpoint_boxes.h"
#include "models/adapters/adapter_modules.h"
#include "models/folders/open_model.h"
#include "run/tensors_on_host.h"
#include "train/start/quantized_weights.h"

namespace trifold {

namespace {

// BadInput unless derived fields are present and consistent, as in the resolved models that runs write.
void check_resolved(ModelConfig& model) {
  const std::pair<const char*, bool> needed[] = {
      {"vocab_size", model.vocab_size.has_value()},
      {"ffn_hidden_size", model.ffn_hidden_size.has_value()},
      {"max_position_embeddings", model.max_position_embeddings.has_value()}};
  for (const auto& [field, given] : needed)
    if (!given) bad_input("model: '{}' has no value", field);
  ModelConfig given = without_sizes_of_file(model);
  Problems problems = problems_of_options(given);
  if (!model.model) check_model(model, problems);
  throw_problems(problems.take());
}

}  // namespace

void expect_language_model(const CheckpointReader& reader) {
  const nlohmann::json& model = reader.meta().model;
  if (model.is_object() && model.contains("kind"))
    bad_input(
        "{} is a checkpoint of a recommender, not of a language model: trifold recommend --load continues "
        "it, trifold evaluate --data measures it, trifold score predicts, and trifold inspect shows it",
        reader.directory().string());
}

ModelConfig language_model_of(const CheckpointReader& reader) {
  expect_language_model(reader);
  try {
    ModelConfig model = model_from_json(reader.meta().model);
    check_resolved(model);
    return model;
  } catch (const Error& error) {
    bad_input("{} does not describe a model of this program: {}", reader.directory().string(), error.what());
  }
}

void read_tokenizer_of(const CheckpointReader& reader, DataConfig& data) {
  const std::string where = reader.directory().string();
  const JsonView state(reader.meta().state, where);
  try {
    tokenizer_from_json(state.at("tokenizer").value(), data);
  } catch (Error& error) {
    if (!std::string_view(error.what()).starts_with(where)) error.add_context(where + ": state");
    throw;
  }
  // A run stores absolute paths; a file kept in the checkpoint is stored by name only.
  for (std::optional<std::string>* file :
       {&data.tokenizer_model, &data.tokenizer_merges, &data.chat_template})
    if (*file) *file = (reader.attachments() / **file).string();
}

CheckpointModel describe_checkpoint(const CheckpointReader& reader) {
  CheckpointModel found;
  found.directory = reader.directory().string();
  found.attachments = reader.attachments().string();
  found.model = language_model_of(reader);
  read_tokenizer_of(reader, found.data);
  found.dtype = dtype_named(JsonView(reader.meta().state, found.directory).at("dtype").text());
  found.step = reader.meta().step;
  return found;
}

void expect_text_model(const CheckpointModel& from) {
  const ModelFamily& family = family_of_model(from.model);
  if (!family.reads_text)
    bad_input("{} has a model from a file, whose output is a loss: give a checkpoint of a GPT",
              from.directory);
  if (!family.causal)
    bad_input(
        "{} is a BERT, which predicts masked tokens and cannot continue a text: give a checkpoint of a GPT",
        from.directory);
}

void set_length(CheckpointModel& from, const std::optional<int64_t>& length) {
  ModelConfig& model = from.model;
  model.seq_length = length.value_or(model.seq_length);
  if (model.seq_length <= *model.max_position_embeddings) return;
  if (model.position_embedding_type == PositionEmbedding::LearnedAbsolute)
    bad_input("--seq-length {} is more than the model's {} learned positions", model.seq_length,
              *model.max_position_embeddings);
  model.max_position_embeddings = model.seq_length;
}

std::unique_ptr<Tokenizer> tokenizer_of(const CheckpointModel& from, DataConfig given) {
  inherit_tokenizer(given, from, true);
  std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(given, true);
  if (tokenizer->vocab_size() > *from.model.vocab_size)
    bad_input(
        "the model of {} has {} tokens, its tokenizer {}: name the tokenizer it was trained with, "
        "--tokenizer-type and --tokenizer-model",
        from.directory, *from.model.vocab_size, tokenizer->vocab_size());
  return tokenizer;
}

void expect_layout(const CheckpointModel& from, const MeshConfig& mesh, int64_t micro_batch_size) {
  PlanConfig plan;
  PretrainConfig& run = plan.run;
  run.model = from.model;
  run.model.moe_expert_capacity_factor.reset();  // only training drops tokens
  run.model.moe_token_drop_policy = {};
  run.mesh = mesh;
  run.mesh.data_parallel_size = static_cast<int>(data_parallel_size(mesh));
  run.batch.micro_batch_size = micro_batch_size;
  // Enough micro-batches for the default schedule.
  run.batch.global_batch_size =
      int64_t{2} * mesh.pipeline_model_parallel_size * micro_batch_size * *run.mesh.data_parallel_size;
  try {
    resolve(std::move(plan));
  } catch (Error& error) {
    error.add_context(from.directory);
    throw;
  }
}

void inherit_tokenizer(DataConfig& data, const CheckpointModel& from, bool is_text) {
  if (data.tokenizer_type) return;
  if (!from.data.tokenizer_type && is_text)
    bad_input("{} does not record its tokenizer: give --tokenizer-type and --tokenizer-model",
              from.directory);
  const DataConfig given = data;
  copy_tokenizer(from.data, data);
  if (given.eod_token) data.eod_token = given.eod_token;
  if (given.chat_template) data.chat_template = given.chat_template;
  data.chat_date = given.chat_date;
}

namespace {

// Fields that may differ between a checkpoint and a run that loads this part of it. `rope`: the run's model has rotary
// positions.
std::vector<const char*> free_fields(LoadPart part, bool rope) {
  // A file may lie elsewhere; its checksum says whether it is the same.
  std::vector<const char*> free{"model", "make_vocab_size_divisible_by", "moe_router_bias_update_rate",
                                "moe_expert_capacity_factor", "moe_token_drop_policy"};
  if (part != LoadPart::All)
    free.insert(free.end(), {"model_digest", "freeze", "seq_length", "hidden_dropout", "attention_dropout",
                             "init_method_std", "moe_aux_loss_coeff", "moe_z_loss_coeff",
                             "moe_router_load_balancing_type", "moe_input_jitter_eps",
                             "moe_router_force_load_balancing", "mtp_loss_scaling_factor"});
  if (part != LoadPart::All && rope)
    free.insert(
        free.end(),
        {"max_position_embeddings", "rotary_base", "use_rope_scaling", "rope_scaling_factor",
         "rope_scaling_low_freq_factor", "rope_scaling_high_freq_factor", "rope_scaling_original_positions",
         "rotary_seq_len_interpolation_factor", "rope_type", "rotary_scaling_factor",
         "original_max_position_embeddings", "beta_fast", "beta_slow", "mscale", "mscale_all_dim",
         "rotary_attention_factor", "rope_no_truncate", "rope_short_factor", "rope_long_factor"});
  if (part == LoadPart::Encoder) free.insert(free.end(), {"bert_head", "class_names", "bert_no_binary_head"});
  if (part == LoadPart::Dense)
    free.insert(free.end(), {"num_experts", "moe_layer_freq", "moe_ffn_hidden_size", "moe_router_topk",
                             "moe_router_score_function", "moe_router_num_groups", "moe_router_group_topk",
                             "moe_router_enable_expert_bias"});
  return free;
}

// BadInput if the run's model is in a file that is not the checkpoint's.
void compare_model_files(const nlohmann::json& stored, const nlohmann::json& wanted) {
  const auto text = [](const nlohmann::json& model, const char* field) {
    const auto value = model.is_object() ? model.find(field) : model.end();
    return value != model.end() && value->is_string() ? value->get<std::string>() : std::string();
  };
  const std::string before = text(stored, "model_digest"), now = text(wanted, "model_digest");
  if (before.empty() || now.empty() || before == now) return;
  bad_input(
      "--model {} has the checksum {}, but the checkpoint was trained with {}, which had {}: give the file of that run, "
      "or begin a new run with the checkpoint's weights by --finetune",
      text(wanted, "model"), now, text(stored, "model"), before);
}

// The fields of adapters (config/subjects/tuning/adapters.h).
const std::vector<std::string>& adapter_fields() {
  static const std::vector<std::string> kFields = [] {
    std::vector<std::string> names;
    AdapterConfig none;
    OptionTable table;
    add_adapters(table, none);
    for (const Option& option : table.options()) names.push_back(json_key(option));
    return names;
  }();
  return kFields;
}

// A run may add adapters to a model that has none, or continue with all that it has, for which targets may be written in
// other ways and frozen weights be stored in other ways. Erases their fields if one of these holds. BadInput if the run would leave the adapters out.
void compare_adapters(nlohmann::json& stored, nlohmann::json& wanted) {
  const auto has_adapters = [](const nlohmann::json& model) {
    return model.is_object() && !model.value("lora_rank", nlohmann::json()).is_null();
  };
  if (has_adapters(stored) && !has_adapters(wanted))
    bad_input(
        "the checkpoint has low-rank adapters of rank {}: continue with --lora-rank {} and its other options of adapters, "
        "or add the adapters to the weights first, by trifold convert --merge-adapters",
        json_text(stored["lora_rank"]), json_text(stored["lora_rank"]));
  if (has_adapters(stored)) {
    const auto names = [](const nlohmann::json& json) {
      std::vector<std::string> all;
      for (const AdaptedModule& module : adapted_modules(model_from_json(json))) all.push_back(module.name);
      return all;
    };
    if (names(stored) != names(wanted)) return;
    for (nlohmann::json* model : {&stored, &wanted}) {
      model->erase("lora_targets");
      model->erase("lora_dropout");
      model->erase("quantize_base");
      model->erase("lora_init");  // the checkpoint has the values
    }
    return;
  }
  for (const std::string& field : adapter_fields())
    for (nlohmann::json* model : {&stored, &wanted})
      if (model->is_object()) model->erase(field);
}

void erase(const std::vector<const char*>& fields, nlohmann::json& model) {
  if (!model.is_object()) return;
  for (const char* field : fields) model.erase(field);
}

}  // namespace

void compare_checkpoint_model(nlohmann::json stored, nlohmann::json wanted, LoadPart part) {
  if (part == LoadPart::Dense && stored.is_object() &&
      !stored.value("num_experts", nlohmann::json()).is_null())
    bad_input("--moe-use-upcycling: the checkpoint's model has experts already: leave the option out");
  const bool rope = wanted.is_object() && wanted.value("position_embedding_type", "") == "rope";
  // A field newer than the checkpoint: its default is the earlier behaviour.
  const nlohmann::json defaults = to_json(ModelConfig());
  if (stored.is_object())
    for (const auto& field : defaults.items())
      if (!stored.contains(field.key())) stored[field.key()] = field.value();
  if (part == LoadPart::All)
    compare_model_files(stored, wanted);
  else
    compare_adapters(stored, wanted);
  for (nlohmann::json* model : {&stored, &wanted}) erase(free_fields(part, rope), *model);
  try {
    compare_models(stored, wanted);
  } catch (const Error& error) {
    if (part != LoadPart::All) throw;
    for (nlohmann::json* model : {&stored, &wanted}) erase(free_fields(LoadPart::Weights, rope), *model);
    if (!differing_fields(stored, wanted, "", "").empty()) throw;
    bad_input(
        "{}\nGive the same values to resume it; trifold pretrain --finetune begins a new run with its weights",
        error.what());
  }
}

namespace {

// Adds the boxes of a segment whose values are `weight`.
void add_boxes(const ParamList& params, const FlatLayout::Segment& segment, Tensor weight,
               std::vector<NamedTensor>& wanted) {
  for (const StoredBox& box : stored_boxes(params, "param", segment)) {
    const Shape& extent = box.spec.local.extent;
    wanted.push_back(
        {box.spec, weight.flat().rows(box.first, box.first + extent.elements()).reshape(extent)});
  }
}

// The slices that this rank holds of weights that are sharded over data-parallel ranks.
void add_slices(Replica& replica, bool frozen_only, std::vector<NamedTensor>& wanted) {
  const FlatLayout& flat = replica.layout().flat();
  for (const FlatLayout::Unit& unit : flat.units()) {
    if (unit.quantized) continue;  // load_quantized
    for (const FlatLayout::Segment& segment : flat.segments(unit, replica.groups().slice(unit.data)))
      if (!frozen_only || flat.params()[segment.id].frozen)
        add_boxes(flat.params(), segment, replica.weights().owned(segment), wanted);
  }
}

// With `frozen_only`, parameters that would be trained keep their values.
void load_from(Replica& replica, CheckpointReader reader, bool frozen_only) {
  const ParamList& params = replica.layout().params();
  const bool sharded = replica.weights().sharded();
  std::vector<NamedTensor> wanted;
  if (sharded) add_slices(replica, frozen_only, wanted);
  for (int i = 0; i < params.size(); ++i) {
    const ParamSpec& spec = params[{i}];
    if (!params.stored({i}) || spec.quantized) continue;
    if (frozen_only && !spec.frozen && !spec.is_buffer) continue;
    const FlatLayout::Segment whole{params[{i}].tied_to.value_or(ParamId{i}), 0,
                                    params[{i}].shard.local.elements()};
    if (!sharded) add_boxes(params, whole, replica.weights().weight({i}), wanted);
    // Buffers are also held exactly, if weights have 16 bits.
    if (params[{i}].is_buffer && size_of(replica.dtype()) == 2)
      add_boxes(params, whole, replica.weights().exact({i}), wanted);
  }
  TensorsOnHost host(std::move(wanted), replica.ops(), replica.compute());
  reader.load(host.tensors(), FloatConversion::Allow);
  host.put_back();
  load_quantized(replica, reader);
}

}  // namespace

void load_weights(Replica& replica, const std::string& path, bool averages) {
  CheckpointReader reader = open_weights(path);
  load_from(replica, averages ? reader.with_averages() : std::move(reader), false);
}

void load_frozen_weights(Replica& replica, const std::string& path) {
  load_from(replica, open_weights(path), true);
}

}  // namespace trifold
