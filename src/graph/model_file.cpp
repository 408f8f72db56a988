#include "graph/model_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/printable.h"
#include "graph/freeze.h"
#include "graph/lower/constants.h"
#include "graph/pt2/read_array.h"
#include "graph/pt2/read_pt2.h"

namespace trifold::graph {

namespace {

// Samples are read from arrays, one for each input.
void check_inputs(const Graph& graph, std::vector<std::string>& problems) {
  int inputs = 0;
  for (const Input& input : graph.inputs) {
    if (input.kind != InputKind::Data) continue;
    ++inputs;
    if (const std::vector<Extent>& dims = graph.at(input.value).dims; !counts_samples(dims))
      problems.push_back(
          fmt::format("the input '{}' has shape {}, but its first dim, and no other, must be the batch: "
                      "export the model with a dynamic dimension 0 of every input",
                      printable(input.name), to_text(dims)));
  }
  if (inputs == 0) problems.emplace_back("the model takes no arrays, so there are no samples to train on");
}

LoweredGraph lower_file(const Archive& archive, const std::vector<StoredTensor>& tensors, const Graph& graph,
                        std::vector<std::string>& problems) {
  check_inputs(graph, problems);
  const auto read = [&](const Input& input) { return read_array(archive, tensors, input.name); };
  Constants constants(graph, read);
  LoweredGraph lowered = lower(
      graph, [&](ValueId value) { return constants(value); }, problems);
  for (std::string& problem : preparation_problems(lowered.graph, lowered.prepared))
    problems.push_back(std::move(problem));
  return lowered;
}

}  // namespace

std::vector<std::string> training_problems(const Archive& archive, const Graph& graph) {
  std::vector<std::string> problems;
  lower_file(archive, archive.tensors(), graph, problems);
  return problems;
}

ModelFile::ModelFile(const std::string& path, std::span<const std::string> frozen)
    : archive_(path), tensors_(archive_.tensors()) {
  Graph graph = read_pt2(archive_.model_text(), archive_.model_where(), tensors_).graph;
  frozen_ = freeze(graph, frozen);
  std::vector<std::string> problems;
  lowered_ = lower_file(archive_, tensors_, graph, problems);
  if (!problems.empty()) bad_input("{}: {}", path, refusal_text(problems));
}

Array ModelFile::stored(const Input& input) const { return read_array(archive_, tensors_, input.name); }

Preparation ModelFile::preparation(DType floats) const {
  return {lowered_.graph, lowered_.prepared, floats, [this](const Input& input) { return stored(input); },
          lowered_.id_checks};
}

std::vector<std::string> ModelFile::other_names(const std::string& name) const {
  const std::vector<Input>& inputs = lowered_.graph.inputs;
  std::vector<std::string> names;
  for (const Input& input : inputs)
    if (input.tied_to >= 0 && inputs[static_cast<size_t>(input.tied_to)].name == name)
      names.push_back(input.name);
  return names;
}

std::string ModelFile::first_name(const std::string& name) const {
  const std::vector<Input>& inputs = lowered_.graph.inputs;
  for (const Input& input : inputs)
    if (input.name == name && input.tied_to >= 0) return inputs[static_cast<size_t>(input.tied_to)].name;
  return name;
}

std::vector<const StoredTensor*> ModelFile::state() const {
  std::vector<const StoredTensor*> state;
  for (const StoredTensor& tensor : tensors_)
    if (tensor.in_state_dict) state.push_back(&tensor);
  return state;
}

void ModelFile::read(const std::string& name, const Rect& box, Tensor values) const {
  const auto at =
      std::lower_bound(tensors_.begin(), tensors_.end(), name,
                       [](const StoredTensor& tensor, const std::string& n) { return tensor.name < n; });
  check(at != tensors_.end() && at->name == name, "{} has no parameter '{}'", path(), name);
  StoredTensor part = *at;
  if (!part.sizes.empty())  // a number has no axes, and its parameter one
    for (size_t axis = 0; axis < part.sizes.size(); ++axis) {
      part.sizes[axis] = box.extent[static_cast<int>(axis)];
      part.offset += box.offset[static_cast<int>(axis)] * part.strides[axis];
    }
  const Array array = read_array(archive_, part);
  dispatch_float(values.dtype, [&]<class T>(T) {
    dispatch_stored(array.type, [&]<class From>(From) {
      const From* from = array.as<From>();
      T* to = values.as<T>();
      for (int64_t i = 0; i < values.elements(); ++i)
        to[i] = static_cast<T>(static_cast<Accumulate<T>>(from[i]));
    });
  });
}

namespace {

struct Opened {
  std::filesystem::file_time_type time;
  std::uintmax_t bytes = 0;
  std::shared_ptr<const ModelFile> file;
};

}  // namespace

std::shared_ptr<const ModelFile> open_model_file(const std::string& path,
                                                 std::span<const std::string> frozen) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, std::vector<std::string>>, Opened> all;
  const std::lock_guard lock(mutex);
  std::error_code none;
  const auto time = std::filesystem::last_write_time(path, none);
  const auto bytes = std::filesystem::file_size(path, none);
  Opened& opened = all[{path, {frozen.begin(), frozen.end()}}];
  if (opened.file == nullptr || opened.time != time || opened.bytes != bytes)
    opened = {time, bytes, std::make_shared<const ModelFile>(path, frozen)};
  return opened.file;
}

std::shared_ptr<const ModelFile> open_model_file(const std::string& path,
                                                 const std::optional<std::string>& digest,
                                                 std::span<const std::string> frozen) {
  std::error_code none;
  if (digest && !std::filesystem::exists(path, none))
    bad_input("{}, the file of the checkpoint's model, does not exist: put it back there", path);
  std::shared_ptr<const ModelFile> file = open_model_file(path, frozen);
  if (digest && *digest != file->digest())
    bad_input(
        "{} has the checksum {}, but the checkpoint's model has {}: "
        "put back the file with which the model was trained",
        path, file->digest(), *digest);
  return file;
}

}  // namespace trifold::graph
