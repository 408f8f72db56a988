#include "train/checkpoint_model.h"

#include <vector>

#include "config/json.h"
#include "train/checkpoint_boxes.h"

namespace trifold {

CheckpointModel describe_checkpoint(const std::string& path) {
  const CheckpointReader reader(path);
  CheckpointModel found;
  found.directory = reader.directory().string();
  try {
    found.model = model_from_json(reader.meta().model);
    tokenizer_from_json(reader.meta().state.at("tokenizer"), found.data);
    found.dtype = dtype_named(reader.meta().state.at("dtype").get<std::string>());
  } catch (const nlohmann::json::exception& error) {
    bad_input("{} is not a checkpoint of a language model: {}", found.directory, error.what());
  }
  found.step = reader.meta().step;
  return found;
}

void inherit_tokenizer(DataConfig& data, const CheckpointModel& from, bool is_text) {
  if (data.tokenizer_type) return;
  if (!from.data.tokenizer_type && is_text)
    bad_input("{} does not say how text became its tokens: give --tokenizer-type and --tokenizer-model",
              from.directory);
  data.tokenizer_type = from.data.tokenizer_type;
  data.tokenizer_model = from.data.tokenizer_model;
}

std::string data_bookmark(const CheckpointMeta& meta) {
  const auto found = meta.state.find("data");
  if (found == meta.state.end()) return {};
  check(found->is_string(), "the checkpoint's place in the data cannot be read: it is not a text");
  return found->get<std::string>();
}

void compare_checkpoint_model(nlohmann::json stored, nlohmann::json wanted, ModelUse use) {
  std::vector<const char*> free{"make_vocab_size_divisible_by"};
  if (use != ModelUse::SameRun)
    free.insert(free.end(), {"seq_length", "hidden_dropout", "attention_dropout", "init_method_std"});
  if (use == ModelUse::Encoder) free.insert(free.end(), {"bert_head", "class_names", "bert_no_binary_head"});
  // A field that is younger than the checkpoint: what was done before there was a choice.
  const nlohmann::json defaults = to_json(ModelConfig());
  if (stored.is_object())
    for (const auto& field : defaults.items())
      if (!stored.contains(field.key())) stored[field.key()] = field.value();
  for (nlohmann::json* model : {&stored, &wanted})
    if (model->is_object())
      for (const char* field : free) model->erase(field);
  compare_models(stored, wanted);
}

void load_weights(Replica& replica, const std::string& path) {
  const ParamList& params = replica.model().params;
  std::vector<NamedTensor> wanted;
  for (int i = 0; i < params.size(); ++i) {
    if (!params.stored({i})) continue;
    const ParamId original = params[{i}].tied_to.value_or(ParamId{i});
    const Tensor weight = replica.weights().weight({i});
    const FlatLayout::Segment whole{original, 0, weight.elements()};
    for (const StoredBox& box : stored_boxes(params, "param", whole)) {
      const Shape& extent = box.spec.local.extent;
      wanted.push_back(
          {box.spec, weight.flat().rows(box.first, box.first + extent.elements()).reshape(extent)});
    }
  }
  CheckpointReader(path).load(wanted, FloatConversion::Allow);
}

}  // namespace trifold
