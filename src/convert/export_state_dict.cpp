#include "convert/export_state_dict.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <utility>

#include "checkpoint/safetensors.h"
#include "checkpoint/tensor_kind.h"
#include "convert/tensor_files.h"
#include "files/scratch_folder.h"
#include "graph/model_file.h"
#include "train/start/checkpoint_model.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;

// A tensor of the state dictionary.
struct StateTensor {
  SafeTensor written;
  const graph::StoredTensor* stored = nullptr;
  std::optional<DType> dtype;           // as written; none: it is no float and is copied from the file
  const TensorInfo* trained = nullptr;  // in the checkpoint; null: it is in the file only

  int64_t bytes() const { return stored->elements() * element_bytes(); }
  int64_t element_bytes() const {
    return dtype ? static_cast<int64_t>(size_of(*dtype)) : graph::size_of(stored->type);
  }
};

std::string format_name(graph::ElementType type) {
  std::string name(graph::name_of(type));
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

// The checkpoint's tensor has the shape of the file's, but one axis if that is a number.
void check_shape(const TensorInfo& trained, const graph::StoredTensor& stored) {
  const std::vector<int64_t> sizes = stored.sizes.empty() ? std::vector<int64_t>{1} : stored.sizes;
  if (trained.global != Shape(std::span<const int64_t>(sizes)))
    bad_input("{} has shape {} in the checkpoint, but its model's file has {}", trained.name,
              to_string(trained.global), to_string(Shape(std::span<const int64_t>(sizes))));
}

std::vector<StateTensor> tensors_of(const CheckpointReader& from, const graph::ModelFile& file,
                                    const std::optional<DType>& dtype) {
  std::map<std::string, const TensorInfo*> trained;
  for (const TensorInfo& tensor : from.tensors()) trained[tensor.name] = &tensor;
  std::vector<StateTensor> tensors;
  for (const graph::StoredTensor* stored : file.state()) {
    StateTensor tensor;
    tensor.stored = stored;
    tensor.dtype = graph::dtype_of(stored->type);
    if (tensor.dtype && dtype) tensor.dtype = dtype;
    tensor.written = {stored->name,
                      tensor.dtype ? std::string(safetensors_name(*tensor.dtype)) : format_name(stored->type),
                      stored->sizes, 0, 0};
    const auto at = trained.find(fmt::format("{}/{}", kWeightKind, file.first_name(stored->name)));
    if (at != trained.end()) {
      tensor.trained = at->second;
      check_shape(*tensor.trained, *stored);
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

// Writes the files of a state dictionary, with at most `bytes` bytes of the checkpoint in memory.
class StateWriter {
 public:
  StateWriter(CheckpointReader& from, const graph::ModelFile& file, int64_t bytes)
      : from_(from), file_(file), bytes_(bytes) {}

  // Writes tensors `chosen` to a new file.
  void write(const fs::path& path, const std::vector<StateTensor>& tensors,
             const std::vector<size_t>& chosen) {
    std::vector<SafeTensor> written;
    for (const size_t tensor : chosen) written.push_back(tensors[tensor].written);
    SafetensorsWriter file(path, std::move(written));
    for (size_t i = 0; i < chosen.size(); ++i) {
      const StateTensor& tensor = tensors[chosen[i]];
      if (tensor.trained != nullptr)
        write_trained(file, i, tensor);
      else
        write_stored(file, i, tensor);
    }
    file.finish();
  }

 private:
  void write_trained(const SafetensorsWriter& file, size_t index, const StateTensor& tensor) {
    const Shape& shape = tensor.trained->global;
    const int64_t size = tensor.element_bytes(), step = std::max<int64_t>(1, bytes_ / size);
    for (int64_t first = 0; first < shape.elements(); first += step) {
      const int64_t count = std::min(step, shape.elements() - first);
      reserve(count * size);
      std::vector<NamedTensor> wanted;
      int64_t at = 0;
      for (const Rect& rect : rects_of_range(Rect::whole(shape), first, first + count)) {
        NamedTensor box;
        box.spec.name = tensor.trained->name;
        box.spec.global = shape;
        box.spec.local = rect;
        box.data = {memory_.data() + at * size, *tensor.dtype, rect.extent};
        at += rect.elements();
        wanted.push_back(std::move(box));
      }
      from_.load(wanted, FloatConversion::Allow);
      file.write(index, first * size, memory_.data(), static_cast<size_t>(count * size));
    }
  }

  // Buffers are as large as a layer's weights at most, and are read whole.
  void write_stored(const SafetensorsWriter& file, size_t index, const StateTensor& tensor) {
    const int64_t bytes = tensor.bytes();
    if (bytes == 0) return;
    reserve(bytes);
    const auto size = static_cast<size_t>(bytes);
    if (tensor.dtype && tensor.dtype != graph::dtype_of(tensor.stored->type)) {
      const std::vector<int64_t> sizes =
          tensor.stored->sizes.empty() ? std::vector<int64_t>{1} : tensor.stored->sizes;
      const Shape shape{std::span<const int64_t>(sizes)};
      file_.read(tensor.stored->name, Rect::whole(shape), {memory_.data(), *tensor.dtype, shape});
    } else {
      file_.read(*tensor.stored, {memory_.data(), size});
    }
    file.write(index, 0, memory_.data(), size);
  }

  void reserve(int64_t bytes) {
    if (memory_.bytes() < static_cast<size_t>(bytes)) memory_ = Buffer(static_cast<size_t>(bytes));
  }

  CheckpointReader& from_;
  const graph::ModelFile& file_;
  int64_t bytes_;
  Buffer memory_;
};

}  // namespace

Converted export_state_dict(CheckpointReader& from, const ConvertConfig& config) {
  const ModelConfig model = language_model_of(from);
  const std::shared_ptr<const graph::ModelFile> file =
      graph::open_model_file(*model.model, model.model_digest);
  const std::vector<StateTensor> tensors = tensors_of(from, *file, config.dtype);
  std::vector<WrittenTensor> written;
  for (const StateTensor& tensor : tensors) written.push_back({tensor.written.name, tensor.bytes()});
  const TensorFiles files(written, config.max_file_size);

  const fs::path place = new_folder(config.save);
  const ScratchFolder scratch(place);
  const fs::path folder = scratch.file("model");
  fs::create_directory(folder);
  StateWriter writer(from, *file, static_cast<int64_t>(config.max_memory * (1 << 20) / 4));
  for (size_t number = 0; number < files.size(); ++number)
    writer.write(folder / files.name(number), tensors, files.tensors(number));
  files.write_index(folder);
  sync_to_disk(folder);
  scratch.move_out("model", place);
  sync_to_disk(place.parent_path());
  Converted done;
  done.from = from.directory().string();
  done.to = config.save;
  done.tensors = static_cast<int64_t>(tensors.size());
  done.files = static_cast<int64_t>(files.size());
  done.bytes = files.bytes();
  done.model = model;
  return done;
}

}  // namespace trifold
