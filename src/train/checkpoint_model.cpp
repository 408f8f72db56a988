#include "train/checkpoint_model.h"

#include <vector>

#include "config/json.h"

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

void load_weights(Replica& replica, const std::string& path) {
  const ParamList& params = replica.model().params;
  std::vector<NamedTensor> wanted;
  for (int i = 0; i < params.size(); ++i) {
    if (!params.stored({i})) continue;
    const ParamId original = params[{i}].tied_to.value_or(ParamId{i});
    NamedTensor tensor{params[original].shard, replica.weights().weight({i})};
    tensor.spec.name = "param/" + tensor.spec.name;
    wanted.push_back(tensor);
  }
  CheckpointReader(path).load(wanted);
}

}  // namespace trifold
