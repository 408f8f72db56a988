#include "models/adapters/frozen_weights.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "checkpoint/convert_floats.h"
#include "checkpoint/tensor_kind.h"
#include "config/commands/json.h"
#include "core/error.h"
#include "core/read_json.h"
#include "models/adapters/adapter_modules.h"
#include "models/adapters/dequantized.h"
#include "models/folders/open_model.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Reads each tensor from the adapters' checkpoint if that has it, otherwise from the frozen weights.
class JoinedSource final : public TensorSource {
 public:
  JoinedSource(CheckpointReader adapters, CheckpointReader frozen)
      : adapters_(std::move(adapters)), frozen_(std::move(frozen)) {}

  void read(std::span<const NamedTensor> wanted) override {
    std::vector<NamedTensor> here, there;
    for (const NamedTensor& tensor : wanted)
      (adapters_.find(tensor.spec.name) != nullptr ? here : there).push_back(tensor);
    adapters_.load(here, FloatConversion::Allow);
    frozen_.load(there, FloatConversion::Allow);
  }

 private:
  CheckpointReader adapters_, frozen_;
};

// Adds the adapters to the rows of the weights that are read.
class MergedSource final : public TensorSource {
 public:
  MergedSource(CheckpointReader from, const ModelConfig& model)
      : from_(std::move(from)), scale_(adapter_scale(model.adapters)), has_magnitudes_(model.adapters.dora) {
    for (AdaptedModule& module : adapted_modules(model)) {
      const std::string weight = module.stored_weight();
      modules_[weight].push_back(std::move(module));
    }
  }

  void read(std::span<const NamedTensor> wanted) override {
    std::vector<NamedTensor> plain;
    for (const NamedTensor& tensor : wanted) {
      const auto found = modules_.find(tensor.spec.name);
      if (found == modules_.end())
        plain.push_back(tensor);
      else if (tensor.data.elements() > 0)
        read_adapted(tensor, found->second);
    }
    from_.load(plain, FloatConversion::Allow);
  }

 private:
  // The factors of one module, kept while its weight is read.
  struct Factors {
    std::string module;
    ReadMatrix a, b;
    std::vector<double> magnitude;
  };

  void read_adapted(const NamedTensor& box, const std::vector<AdaptedModule>& modules) {
    const Shape& global = box.spec.global;
    const Rect& local = box.spec.local;
    const int last = global.rank() - 1;
    const int64_t columns = global[last], width = local.extent[last];
    const int64_t all_rows = global.elements() / columns, count = local.elements() / width;
    std::vector<double> out(static_cast<size_t>(width));
    const auto size = size_of(box.data.dtype);
    for (int64_t index = 0; index < count; ++index) {
      int64_t row = 0, rest = index, scale = 1;
      for (int dim = last - 1; dim >= 0; --dim) {
        row += (local.offset[dim] + rest % local.extent[dim]) * scale;
        rest /= local.extent[dim];
        scale *= global[dim];
      }
      const std::vector<double> whole = adapted_row(box.spec.name, row, all_rows, modules);
      std::copy_n(whole.begin() + local.offset[last], width, out.begin());
      convert_floats(static_cast<std::byte*>(box.data.data) + static_cast<size_t>(index * width) * size,
                     box.data.dtype, reinterpret_cast<const std::byte*>(out.data()), DType::F64, width);
    }
  }

  // Rows are read in blocks, because each read has a cost of its own.
  std::vector<double> adapted_row(const std::string& tensor, int64_t row, int64_t all_rows,
                                  const std::vector<AdaptedModule>& modules) {
    constexpr int64_t kRows = 256;
    if (rows_of_ != tensor || row < first_row_ || row >= first_row_ + rows_.rows) {
      rows_of_ = tensor;
      first_row_ = row;
      rows_ = read_rows(from_, tensor, row, std::min(all_rows, row + kRows));
    }
    std::vector<double> sum(rows_.row(row - first_row_), rows_.row(row - first_row_) + rows_.columns);
    for (const AdaptedModule& module : modules) {
      const int64_t rows = module.group ? all_rows / module.groups : all_rows;
      const int64_t first = module.group ? *module.group * rows : 0;
      if (row < first || row >= first + rows) continue;
      const Factors& factors = factors_of(module);
      const double* b = factors.b.row(row - first);
      for (int64_t k = 0; k < factors.a.rows; ++k)
        for (int64_t i = 0; i < factors.a.columns; ++i)
          sum[static_cast<size_t>(i)] += scale_ * b[k] * factors.a.row(k)[i];
      if (!has_magnitudes_) continue;
      const double factor =
          factors.magnitude[static_cast<size_t>(row - first)] / row_norm(sum.data(), std::ssize(sum));
      for (double& value : sum) value *= factor;
    }
    return sum;
  }

  const Factors& factors_of(const AdaptedModule& module) {
    auto found = std::find_if(factors_.begin(), factors_.end(),
                              [&](const Factors& each) { return each.module == module.name; });
    if (found != factors_.end()) return *found;
    constexpr size_t kMost = 4;  // the modules of one weight, and one more
    if (factors_.size() == kMost) factors_.erase(factors_.begin());
    Factors made{module.name, read_matrix(from_, module.a()), read_matrix(from_, module.b()), {}};
    if (has_magnitudes_) made.magnitude = read_matrix(from_, module.magnitude()).values;
    factors_.push_back(std::move(made));
    return factors_.back();
  }

  CheckpointReader from_;
  double scale_;
  bool has_magnitudes_;
  std::map<std::string, std::vector<AdaptedModule>> modules_;  // by the weight's name in checkpoints
  std::vector<Factors> factors_;
  std::string rows_of_;
  int64_t first_row_ = 0;
  ReadMatrix rows_;
};

void sort_by_name(std::vector<TensorInfo>& tensors) {
  std::sort(tensors.begin(), tensors.end(),
            [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
}

}  // namespace

std::string identity_of_weights(const CheckpointReader& from) {
  if (!is_hugging_face_folder(from.directory())) return from.manifest().save_id;
  return fmt::format("{:08x}", SafetensorsModel(from.directory()).digest());
}

json frozen_weights_of(const CheckpointReader& from) {
  const json& state = from.meta().state;
  if (state.is_object() && state.contains(kFrozenWeights)) return state[kFrozenWeights];
  return {{"path", fs::absolute(from.directory()).lexically_normal().string()},
          {"id", identity_of_weights(from)}};
}

CheckpointReader joined(CheckpointReader adapters, CheckpointReader frozen) {
  Manifest manifest = adapters.manifest();
  manifest.meta.state[kFrozenWeights] = frozen_weights_of(frozen);
  for (const TensorInfo& tensor : frozen.tensors())
    if (is_weight(tensor.name) && adapters.find(tensor.name) == nullptr)
      manifest.tensors.push_back({tensor.name, tensor.dtype, tensor.global, {}});
  sort_by_name(manifest.tensors);
  fs::path directory = adapters.directory(), attachments = adapters.attachments();
  return CheckpointReader(std::move(directory), std::move(manifest),
                          std::make_shared<JoinedSource>(std::move(adapters), std::move(frozen)),
                          std::move(attachments));
}

CheckpointReader with_frozen_weights(CheckpointReader adapters) {
  const json& state = adapters.meta().state;
  if (!state.is_object() || !state.contains(kFrozenWeights)) return adapters;
  const std::string where = adapters.directory().string();
  const JsonView frozen = JsonView(state, where + ": state").at(kFrozenWeights);
  const std::string path = frozen.at("path").text();
  if (std::error_code missing; !fs::exists(path, missing))
    bad_input("{} holds adapters of the frozen weights in {}, which does not exist here: move them back",
              where, path);
  CheckpointReader base = open_weights(path);
  if (const std::string id = identity_of_weights(base); id != frozen.at("id").text())
    bad_input(
        "{} holds adapters of frozen weights in {}, which has other weights now: their identity is {}, and was {}",
        where, path, id, frozen.at("id").text());
  return joined(std::move(adapters), std::move(base));
}

CheckpointReader merged(CheckpointReader from) {
  ModelConfig model = model_from_json(from.meta().model);
  if (!model.adapters.lora_rank) return from;
  Manifest manifest = from.manifest();
  const std::vector<AdaptedModule> modules = adapted_modules(model);
  std::erase_if(manifest.tensors, [&](const TensorInfo& tensor) {
    return !is_weight(tensor.name) ||
           std::any_of(modules.begin(), modules.end(), [&](const AdaptedModule& module) {
             return tensor.name == module.a() || tensor.name == module.b() ||
                    tensor.name == module.magnitude();
           });
  });
  for (TensorInfo& tensor : manifest.tensors) tensor.pieces.clear();
  ModelConfig plain = model;
  plain.adapters = {};
  manifest.meta.model = to_json(plain);
  manifest.meta.state.erase(kFrozenWeights);
  fs::path directory = from.directory(), attachments = from.attachments();
  return CheckpointReader(std::move(directory), std::move(manifest),
                          std::make_shared<MergedSource>(dequantized(std::move(from), model), model),
                          std::move(attachments));
}

}  // namespace trifold
