#include "models/adapters/adapter_modules.h"

#include <cmath>

#include "config/fields/adapter_targets.h"
#include "core/error.h"

namespace trifold {

std::vector<AdaptedModule> adapted_modules(const ModelConfig& model) {
  std::vector<AdaptedModule> modules;
  if (!model.adapters.lora_rank) return modules;
  for (const LinearModules& layer : linear_modules(model))
    for (const std::string& name : adapted_modules(model.adapters, layer)) {
      AdaptedModule module{name, layer.layer + ".weight", std::ssize(layer.parts), {}};
      for (size_t part = 0; part < layer.parts.size() && name != layer.whole; ++part)
        if (layer.parts[part] == name) module.group = static_cast<int64_t>(part);
      modules.push_back(std::move(module));
    }
  return modules;
}

ReadMatrix read_rows(CheckpointReader& from, const std::string& tensor, int64_t begin, int64_t end) {
  const TensorInfo* info = from.find(tensor);
  if (info == nullptr) bad_input("{} has no tensor {}", from.directory().string(), tensor);
  const Shape& global = info->global;
  ReadMatrix matrix{end - begin, global[global.rank() - 1], {}};
  matrix.values.resize(static_cast<size_t>(matrix.rows * matrix.columns));
  std::vector<NamedTensor> wanted;
  int64_t at = 0;
  for (const Rect& rect : rects_of_range(Rect::whole(global), begin * matrix.columns, end * matrix.columns)) {
    NamedTensor box;
    box.spec.name = tensor;
    box.spec.global = global;
    box.spec.local = rect;
    box.data = {matrix.values.data() + at, DType::F64, rect.extent};
    at += rect.elements();
    wanted.push_back(std::move(box));
  }
  from.load(wanted, FloatConversion::Allow);
  return matrix;
}

ReadMatrix read_matrix(CheckpointReader& from, const std::string& tensor) {
  const TensorInfo* info = from.find(tensor);
  if (info == nullptr) bad_input("{} has no tensor {}", from.directory().string(), tensor);
  return read_rows(from, tensor, 0, info->global.elements() / info->global[info->global.rank() - 1]);
}

double row_norm(const double* row, int64_t columns) {
  double sum = 0;
  for (int64_t i = 0; i < columns; ++i) sum += row[i] * row[i];
  return std::sqrt(sum);
}

std::vector<double> first_magnitudes(CheckpointReader& from, const AdaptedModule& module, int64_t begin,
                                     int64_t end) {
  const TensorInfo* info = from.find(module.stored_weight());
  if (info == nullptr) bad_input("{} has no tensor {}", from.directory().string(), module.stored_weight());
  const int64_t rows = info->global.elements() / info->global[info->global.rank() - 1];
  const int64_t first = module.group ? rows / module.groups * *module.group : 0;
  const ReadMatrix weight = read_rows(from, module.stored_weight(), first + begin, first + end);
  std::vector<double> norms;
  for (int64_t row = 0; row < weight.rows; ++row) norms.push_back(row_norm(weight.row(row), weight.columns));
  return norms;
}

}  // namespace trifold
