// Converts checkpoints of adapters to and from the format of the peft library.
#include <algorithm>

#include "checkpoint/new_checkpoint.h"
#include "checkpoint/save_folder.h"
#include "checkpoint/shard_file.h"
#include "convert/convert.h"
#include "convert/tensor_files.h"
#include "core/error.h"
#include "files/file.h"
#include "files/scratch_folder.h"
#include "models/adapters/adapter_modules.h"
#include "models/adapters/peft_folder.h"
#include "models/folders/open_model.h"
#include "train/start/checkpoint_model.h"

namespace trifold {

namespace fs = std::filesystem;

Converted export_adapters(CheckpointReader& from, const ConvertConfig& config) {
  const ModelConfig model = language_model_of(from);
  const std::vector<AdaptedModule> modules = adapted_modules(model);
  if (modules.empty()) bad_input("{} has no adapters", from.directory().string());
  const DType dtype = config.dtype.value_or(from.find(modules.front().a())->dtype);
  const fs::path place = new_folder(config.save);
  const ScratchFolder scratch(place);
  const fs::path folder = scratch.file("adapters");
  fs::create_directory(folder);
  const WrittenAdapters written = write_peft_folder(from, folder, dtype, config.hugging_face_family);
  sync_to_disk(folder);
  scratch.move_out("adapters", place);
  sync_to_disk(place.parent_path());
  Converted done;
  done.from = from.directory().string();
  done.to = config.save;
  done.tensors = written.tensors;
  done.files = 1;
  done.bytes = written.bytes;
  done.model = model;
  return done;
}

Converted import_adapters(const ConvertConfig& config) {
  CheckpointReader from = open_model(config.load);
  const ModelConfig model = language_model_of(from);
  std::vector<ShardBox> boxes;
  int64_t bytes = 0;
  const auto add = [&](const std::string& name) {
    const TensorInfo& tensor = *from.find(name);
    boxes.push_back({name, config.dtype.value_or(tensor.dtype), tensor.global, Rect::whole(tensor.global)});
    bytes += boxes.back().bytes();
  };
  for (const AdaptedModule& module : adapted_modules(model)) {
    add(module.a());
    add(module.b());
    if (model.adapters.dora) add(module.magnitude());
  }
  check_conversion_target(config.save);
  const SaveFolder target(config.save);
  const SaveOptions options{.run_id = random_id(), .folder = &target};
  NewCheckpoint checkpoint(config.save, 0, bytes, options);
  ShardFile file(checkpoint.folder() / "shard_00000.h5", 0, boxes);
  std::vector<TensorInfo> tensors;
  for (size_t i = 0; i < boxes.size(); ++i) {
    Buffer values(static_cast<size_t>(boxes[i].bytes()));
    NamedTensor whole;
    whole.spec.name = boxes[i].tensor;
    whole.spec.global = boxes[i].global;
    whole.spec.local = boxes[i].rect;
    whole.data = values.tensor(boxes[i].dtype, boxes[i].global);
    from.load({&whole, 1}, FloatConversion::Allow);
    file.append(i, values.data(), values.bytes());
  }
  file.finish();
  for (size_t i = 0; i < boxes.size(); ++i)
    tensors.push_back({boxes[i].tensor, boxes[i].dtype, boxes[i].global, {file.piece(i)}});
  ManifestBuilder tables;
  tables.add(file.info(), tensors);
  CheckpointMeta meta = from.meta();
  meta.step = meta.consumed_samples = 0;
  for (const FileInfo& attached : from.manifest().files)
    if (attached.role == FileInfo::Role::Attachment)
      tables.add(checkpoint.attach(from.attachments() / attached.name), {});
  checkpoint.commit(meta, tables);
  checkpoint.tidy_up();
  Converted done;
  done.from = config.load;
  done.to = (fs::path(config.save) / step_directory_name(0)).string();
  done.tensors = std::ssize(boxes);
  done.files = 1;
  done.bytes = bytes;
  done.model = model;
  return done;
}

}  // namespace trifold
