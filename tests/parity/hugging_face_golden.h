// The golden models of tests/golden/hf_*: folders of Hugging Face with what transformers computes from them, and the
// first steps of a training run here.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/convert_floats.h"
#include "checkpoint/safetensors.h"
#include "models/hugging_face/hugging_face.h"
#include "support/test_data.h"
#include "support/training.h"

namespace trifold::test {

// The names of the golden models that have this file, such as "hf_llama".
inline std::vector<std::string> golden_models(const char* with_file) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(test_data()) / "golden"))
    if (std::filesystem::exists(entry.path() / with_file)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

inline std::filesystem::path golden_model(const std::string& name) {
  return std::filesystem::path(test_data()) / "golden" / name;
}

inline nlohmann::json golden_json(const std::string& name, const char* file) {
  return nlohmann::json::parse(std::ifstream(golden_model(name) / file));
}

// The golden text and its next tokens; more samples are the same. For an encoder it is one sentence without padding.
class OneText final : public DataSource {
 public:
  explicit OneText(std::vector<int32_t> ids) : ids_(std::move(ids)) {}
  int64_t seq_length() const override { return static_cast<int64_t>(ids_.size()) - 1; }
  int64_t samples() const override { return int64_t{1} << 20; }
  void read(Batch& batch, int64_t) const override {
    for (int64_t sample = 0; sample < batch.samples(); ++sample) {
      batch.lengths.as<int32_t>()[sample] = static_cast<int32_t>(seq_length());
      batch.pair_labels.as<int32_t>()[sample] = 0;
      batch.pair_weight.as<float>()[sample] = 1;
      for (int64_t t = 0; t < seq_length(); ++t) {
        const int64_t at = sample * seq_length() + t;
        batch.tokens.as<int32_t>()[at] = ids_[static_cast<size_t>(t)];
        batch.labels.as<int32_t>()[at] = ids_[static_cast<size_t>(t + 1)];
        batch.positions.as<int32_t>()[at] = static_cast<int32_t>(t);
        batch.loss_weight.as<float>()[at] = 1;
        batch.token_types.as<int32_t>()[at] = 0;
      }
    }
  }

 private:
  std::vector<int32_t> ids_;
};

using Gradients = std::map<std::string, std::vector<double>>;

// PyTorch's, put together as our parameters.
inline Gradients golden_gradients(const std::string& name, const ModelConfig& model) {
  const SafetensorsFile file(golden_model(name) / "gradients.safetensors");
  Gradients all;
  for (const WeightMap& map : weight_map(model, family_of_config(golden_json(name, "config.json"), name))) {
    if (map.exact) continue;  // the bias of a router has none
    std::vector<double>& whole = all[map.ours];
    for (const TensorRows& rows : map.theirs) {
      const auto tensor = std::find_if(file.tensors().begin(), file.tensors().end(),
                                       [&](const SafeTensor& t) { return t.name == rows.tensor; });
      if (tensor == file.tensors().end()) throw std::out_of_range(rows.tensor);
      const DType type = *dtype_of_safetensors(tensor->dtype);
      std::vector<std::byte> stored(static_cast<size_t>(tensor->bytes()));
      file.read(*tensor, 0, stored.data(), stored.size());
      std::vector<double> values(stored.size() / size_of(type));
      convert_floats(values.data(), DType::F64, stored.data(), type, std::ssize(values));
      for (int64_t row = 0; row < rows.rows(); ++row) {
        const int64_t place = rows.run_at(row).first, all = rows.matrix_rows();
        const int64_t matrix = place / all * all * map.columns();
        for (int64_t column = 0; column < map.columns(); ++column)
          whole.push_back(values[static_cast<size_t>(map.transposed ? matrix + column * all + place % all
                                                                    : place * map.columns() + column)]);
      }
    }
  }
  return all;
}

struct FirstStep {
  double loss = 0;
  std::vector<double> later_losses;  // losses of modules that predict further tokens
  Gradients gradients;
};

// Of the first step from these weights, in whole parameters.
inline FirstStep first_step(PretrainConfig config, const std::string& checkpoint, const DataSource& data) {
  FirstStep result;
  std::mutex mutex;
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, data, nullptr);
    trainer.load(checkpoint, LoadPart::Weights);
    const StepReport step = trainer.step();
    const std::lock_guard lock(mutex);
    result.loss = step.loss;
    result.later_losses.assign(step.later_losses.begin(),
                               step.later_losses.begin() + step.later_losses_count);
    const ParamList& params = trainer.replica().layout().params();
    for (int i = 0; i < params.size(); ++i) {
      const ParamSpec& spec = params[{i}];
      if (!params.stored({i}) || spec.is_buffer || spec.tied_to) continue;
      const Tensor gradient = trainer.grads().grad({i});
      std::vector<double>& whole = result.gradients[spec.shard.name];
      whole.resize(static_cast<size_t>(spec.shard.global.elements()));
      std::vector<double> mine(static_cast<size_t>(gradient.elements()));
      for (size_t e = 0; e < mine.size(); ++e)
        mine[e] = gradient.dtype == DType::F64 ? gradient.as<double>()[e]
                                               : static_cast<double>(gradient.as<float>()[e]);
      copy_rect(reinterpret_cast<std::byte*>(whole.data()), Rect::whole(spec.shard.global),
                reinterpret_cast<const std::byte*>(mine.data()), spec.shard.local, spec.shard.local,
                sizeof(double));
      if (spec.rows)
        whole.resize(static_cast<size_t>(*spec.rows * spec.shard.global.elements() / spec.shard.global[0]));
    }
  });
  return result;
}

}  // namespace trifold::test
