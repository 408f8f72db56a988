#include "recommend/weights/first_weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "checkpoint/tensor_kind.h"
#include "core/not_finite.h"

namespace trifold {

namespace {

constexpr std::string_view kTorchRec = "sparse_arch.";
constexpr std::string_view kPrefixes[] = {"module.", "model."};

std::string_view without_prefixes(std::string_view name) {
  for (const std::string_view prefix : kPrefixes)
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  return name;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::vector<int64_t> dims_of(const Shape& shape) {
  std::vector<int64_t> dims;
  for (int d = 0; d < shape.rank(); ++d) dims.push_back(shape[d]);
  return dims;
}

// Reads numbers as doubles.
template <class T>
void widen(const SafetensorsFile& file, const SafeTensor& tensor, int64_t first,
           std::vector<double>& numbers) {
  std::vector<T> read(numbers.size());
  file.read(tensor, first * static_cast<int64_t>(sizeof(T)), read.data(), read.size() * sizeof(T));
  std::copy(read.begin(), read.end(), numbers.begin());
}

}  // namespace

FirstWeights::FirstWeights(const std::filesystem::path& path, const RecommenderSetup& setup) : file_(path) {
  if (setup.schema.keyed())
    bad_input(
        "--init-weights {}: rows of tables whose ids are keys are initialised when their key first appears: leave it "
        "out, or use --finetune --load",
        path.string());
  std::map<std::string, const SafeTensor*, std::less<>> there;
  std::vector<std::string> problems;
  bool torchrec = false;
  for (const SafeTensor& tensor : file_.tensors()) {
    const std::string_view name = without_prefixes(tensor.name);
    torchrec = torchrec || name.starts_with(kTorchRec);
    if (!there.emplace(name, &tensor).second) problems.push_back(fmt::format("{} occurs twice", name));
  }
  for (FileWeight& weight : torchrec ? torchrec_weights(setup, path.string()) : own_weights(setup)) {
    const auto found = there.find(weight.name);
    if (found == there.end()) {
      problems.push_back(fmt::format("{} {} is missing", weight.name, shape_text(dims_of(weight.shape))));
      continue;
    }
    const SafeTensor& tensor = *found->second;
    if (tensor.shape != dims_of(weight.shape))
      problems.push_back(fmt::format("{} has the shape {} in the file, and {} in the model", tensor.name,
                                     shape_text(tensor.shape), shape_text(dims_of(weight.shape))));
    else if (tensor.dtype != "F32" && tensor.dtype != "F64")
      problems.push_back(
          fmt::format("{} has elements of type {}; F32 and F64 can be read", tensor.name, tensor.dtype));
    found_.push_back({std::move(weight), &tensor});
    there.erase(found);
  }
  for (const auto& [name, tensor] : there)
    problems.push_back(
        fmt::format("{} {} is not a weight of the model", tensor->name, shape_text(tensor->shape)));
  if (!problems.empty())
    bad_input("{} does not hold the weights of the model that the options describe:\n  {}", path.string(),
              fmt::join(problems, "\n  "));
}

void FirstWeights::load(const std::vector<NamedTensor>& boxes) const {
  for (const NamedTensor& box : boxes) {
    const auto found = std::find_if(found_.begin(), found_.end(), [&](const Found& one) {
      return box.spec.name == fmt::format("{}/{}", one.weight.kind, one.weight.weight);
    });
    check(found != found_.end(), "the file of weights has no tensor for {}", box.spec.name);
    load(box, *found);
  }
}

// One row at a time: a matrix whose columns are in another order has whole rows.
void FirstWeights::load(const NamedTensor& box, const Found& found) const {
  const bool matrix = box.spec.global.rank() == 2;
  const Rect& local = box.spec.local;
  const int64_t rows = matrix ? local.extent[0] : 1;
  const int64_t width = matrix ? local.extent[1] : local.extent[0];
  const int64_t all = matrix ? box.spec.global[1] : box.spec.global[0];
  const int64_t first = local.offset[matrix ? 1 : 0];
  // Rows that are stored go there many at a time.
  constexpr int64_t kStored = 1 << 14;
  const int64_t at_a_time = box.stored == nullptr ? rows : std::min(rows, kStored);
  const Buffer copy(box.stored == nullptr ? 0 : static_cast<size_t>(at_a_time) * box.row_bytes());
  std::vector<double> file(static_cast<size_t>(all)), ours(file.size());
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t at = (matrix ? local.offset[0] + r : 0) * all;
    if (found.tensor->dtype == "F32")
      widen<float>(file_, *found.tensor, at, file);
    else
      widen<double>(file_, *found.tensor, at, file);
    if (found.weight.columns.empty())
      ours = file;
    else
      for (size_t c = 0; c < file.size(); ++c) ours[static_cast<size_t>(found.weight.columns[c])] = file[c];
    dispatch_wide_float(box.data.dtype, [&](auto zero) {
      using T = decltype(zero);
      T* const to = box.stored == nullptr ? box.data.as<T>() + r * width
                                          : reinterpret_cast<T*>(copy.data()) + r % at_a_time * width;
      for (int64_t c = 0; c < width; ++c) to[c] = static_cast<T>(ours[static_cast<size_t>(first + c)]);
      const auto bad = first_not_finite(to, box.data.dtype, width);
      if (bad)
        bad_input("{}: {} has the value {} in row {}, column {}, as {}: a weight must be a finite number",
                  file_.path().string(), found.weight.weight, bad->what, local.offset[0] + (matrix ? r : 0),
                  first + bad->index, name_of(box.data.dtype));
    });
    const int64_t copied = r % at_a_time + 1;
    if (box.stored != nullptr && (copied == at_a_time || r + 1 == rows))
      box.stored->write(r + 1 - copied, copied, copy.data());
  }
}

}  // namespace trifold
