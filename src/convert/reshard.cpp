#include "convert/reshard.h"

#include <algorithm>
#include <map>
#include <set>

#include "checkpoint/new_checkpoint.h"
#include "checkpoint/run_identity.h"
#include "checkpoint/save_folder.h"
#include "checkpoint/tensor_kind.h"
#include "config/commands/json.h"
#include "config/commands/validate.h"
#include "layout/checkpoint_boxes.h"
#include "layout/rank_layout.h"
#include "layout/zero_sharing.h"
#include "mesh/mesh_sizes.h"
#include "plan/step_plan.h"
#include "recommend/recommender.h"
#include "train/start/checkpoint_model.h"

namespace trifold {

namespace {

// A run on the target mesh, complete enough to decide where tensors are stored.
PretrainConfig run_on(const ModelConfig& model, const ReshardConfig& target) {
  PlanConfig plan;
  PretrainConfig& run = plan.run;
  run.model = model;
  run.mesh = target.mesh;
  run.pipeline = target.pipeline;
  run.zero = target.zero;
  run.mesh.data_parallel_size = target.mesh.data_parallel_size.value_or(1);
  run.mesh.ranks = mesh_sizes(run.mesh).ranks();
  // Enough micro-batches for every schedule.
  run.batch.micro_batch_size = 1;
  run.batch.global_batch_size =
      int64_t{2} * run.mesh.pipeline_model_parallel_size * *run.mesh.data_parallel_size;
  run.optimizer.clip_grad = 0;
  return resolve(std::move(plan)).run;
}

// Whether the rank may save anything, of any stage.
bool saves_something(const ParamList& params, const MeshCoords& coords, const MeshSizes& sizes,
                     const ZeroSharing& zero) {
  const auto specs = params.specs();
  return std::any_of(specs.begin(), specs.end(), [&](const ParamSpec& spec) {
    const int slices = zero.stage.optimizer ? slices_of(spec.shard.data_axes(), sizes, zero.group) : 1;
    return counts_here(spec.shard, coords, sizes, slices);
  });
}

// The boxes that a rank stores, as in Trainer::checkpoint_tensors. `adapters`: the model has some.
std::vector<ShardBox> boxes_of_rank(const RankLayout& layout, const std::vector<std::string>& kinds,
                                    DType dtype, bool adapters) {
  std::vector<ShardBox> boxes;
  for (const FlatLayout::Unit& unit : layout.flat().units())
    for (const FlatLayout::Segment& segment : layout.owned(unit)) {
      const bool frozen = layout.params()[segment.id].frozen;
      if (!layout.saves(segment.id) || (frozen && adapters)) continue;
      for (const std::string& kind : kinds)
        if (!frozen || kind == kWeightKind)  // it has no state otherwise
          for (const StoredBox& box : stored_boxes(layout.params(), kind, segment))
            boxes.push_back({box.spec.name, dtype, box.spec.global, box.spec.local});
    }
  return boxes;
}

// Copies the elements of tensors from a checkpoint to the boxes of new files. Each chunk of a tensor, in memory order,
// is read once, and its parts are appended to the target boxes in each box's own order.
class Passage {
 public:
  Passage(CheckpointReader& from, std::vector<ShardFile>& files, int64_t bytes)
      : from_(from), files_(files), bytes_(bytes) {
    for (size_t file = 0; file < files.size(); ++file)
      for (size_t box = 0; box < files[file].boxes().size(); ++box)
        targets_[files[file].boxes()[box].tensor].push_back({file, box});
  }

  void pass(const TensorInfo& tensor) {
    const std::vector<Target>& targets = targets_[tensor.name];
    if (targets.empty()) bad_input("the target has no tensor {}", tensor.name);
    const ShardBox& first = files_[targets[0].file].boxes()[targets[0].box];
    if (first.global != tensor.global)
      bad_input("tensor {} is {} in the checkpoint, and {} in the model", tensor.name,
                to_string(tensor.global), to_string(first.global));
    const auto size = static_cast<int64_t>(size_of(first.dtype));
    const int64_t chunk = std::max<int64_t>(1, bytes_ / (2 * size));
    const int64_t elements = tensor.global.elements();
    for (int64_t begin = 0; begin < elements; begin += chunk)
      for (const Rect& rect :
           rects_of_range(Rect::whole(tensor.global), begin, std::min(elements, begin + chunk)))
        pass(tensor, rect, first.dtype, targets);
  }

 private:
  struct Target {
    size_t file, box;
  };

  void pass(const TensorInfo& tensor, const Rect& rect, DType dtype, const std::vector<Target>& targets) {
    const size_t size = size_of(dtype);
    const auto bytes = static_cast<size_t>(rect.elements()) * size;
    for (Buffer* buffer : {&chunk_, &part_})
      if (buffer->bytes() < bytes) *buffer = Buffer(bytes);
    NamedTensor wanted;
    wanted.spec.name = tensor.name;
    wanted.spec.global = tensor.global;
    wanted.spec.local = rect;
    wanted.data = chunk_.tensor(dtype, rect.extent);
    from_.load({&wanted, 1}, FloatConversion::Allow);
    for (const Target& target : targets) {
      const std::optional<Rect> part = intersect(rect, files_[target.file].boxes()[target.box].rect);
      if (!part) continue;
      copy_rect(part_.data(), *part, chunk_.data(), rect, *part, size);
      files_[target.file].append(target.box, part_.data(), static_cast<size_t>(part->elements()) * size);
    }
  }

  CheckpointReader& from_;
  std::vector<ShardFile>& files_;
  int64_t bytes_;  // bytes of both buffers
  std::map<std::string, std::vector<Target>> targets_;
  Buffer chunk_, part_;
};

std::vector<TensorInfo> tensors_to_keep(const CheckpointReader& from, const ReshardConfig& config) {
  std::vector<TensorInfo> tensors;
  for (TensorInfo tensor : from.tensors()) {
    if (config.no_save_optim && !is_of_model(tensor.name)) continue;
    if (config.dtype && tensor.dtype != DType::I64 && tensor.dtype != DType::U8)  // not keys and codes
      tensor.dtype = *config.dtype;
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

// Leaves out boxes of tensors that the checkpoint does not have: a rule may keep other state of matrices than of other
// parameters. The others have the checkpoint's types.
void keep_stored(ShardLayout& layout, const std::vector<TensorInfo>& tensors) {
  std::map<std::string, DType> types;
  for (const TensorInfo& tensor : tensors) types[tensor.name] = tensor.dtype;
  for (std::vector<ShardBox>& boxes : layout) {
    std::erase_if(boxes, [&](const ShardBox& box) { return !types.contains(box.tensor); });
    for (ShardBox& box : boxes) box.dtype = types.at(box.tensor);
  }
}

ShardLayout layout_of(const CheckpointReader& from, const std::vector<TensorInfo>& tensors,
                      const ReshardConfig& config) {
  if (config.files) return layout_of_files(tensors, *config.files);
  std::vector<std::string> kinds{"param"};
  std::set<std::string> others;
  for (const TensorInfo& tensor : tensors)
    if (!is_weight(tensor.name)) others.emplace(kind_of_tensor(tensor.name));
  kinds.insert(kinds.end(), others.begin(), others.end());
  ShardLayout layout = layout_of_run(language_model_of(from), config, kinds, tensors.at(0).dtype);
  keep_stored(layout, tensors);
  return layout;
}

CheckpointMeta meta_of(const CheckpointReader& from, const ReshardConfig& config) {
  CheckpointMeta meta = from.meta();
  if (!config.files) meta.mesh = to_json(mesh_sizes(config.mesh));
  if (config.dtype) meta.state["dtype"] = std::string(name_of(*config.dtype));
  return meta;
}

// The result is the same state of the same run, so its folder must be that run's, but not the folder that is read. If
// the run is unknown, the same step may be rewritten.
void check_target(const CheckpointReader& from, const std::string& save) {
  const std::filesystem::path target = std::filesystem::path(save) / step_directory_name(from.meta().step);
  if (std::error_code missing; std::filesystem::equivalent(target, from.directory(), missing))
    bad_input("--save {}: the new checkpoint would replace {}, which this command reads: name another folder",
              save, from.directory().string());
  const RunIdentity run{from.manifest().run_id, from.directory()};
  const auto there = checkpoints_in(save);
  const bool repeats = std::all_of(there.begin(), there.end(),
                                   [&](const auto& each) { return each.first == from.meta().step; });
  if (!run.id.empty() || !repeats) check_owner(save, run);
}

// The memory left for element buffers after the reader's block and the tables.
int64_t buffer_bytes(double max_memory) {
  constexpr double kMiB = 1 << 20;
  return static_cast<int64_t>(std::clamp(max_memory * 0.5, 1.0, 64.0) * kMiB);
}

}  // namespace

ShardLayout layout_of_run(const ModelConfig& model, const ReshardConfig& target,
                          const std::vector<std::string>& kinds, DType dtype) {
  const RunSpec run = run_spec(run_on(model, target));
  const StepOrder order = step_order(run);
  const MeshSizes sizes = mesh_sizes(run.mesh);
  const ZeroSharing zero = zero_sharing(run);
  std::map<std::pair<int, int>, CutModel> models;  // by place on the axes that cut parameters
  ShardLayout layout;
  for (int rank = 0; rank < sizes.ranks(); ++rank) {
    const MeshCoords coords = coords_of(rank, sizes);
    layout.emplace_back();
    const std::pair place{coords[Axis::Tp], place_along({Axis::Etp, Axis::Ep}, coords, sizes)};
    const CutModel& here =
        models.try_emplace(place, run.model, run.mesh, Mesh(sizes, coords), run.seed, order.stage_ranks())
            .first->second;
    if (!saves_something(here.model.params, coords, sizes, zero)) continue;
    layout.back() = boxes_of_rank(RankLayout(here, sizes, coords, run.zero, zero), kinds, dtype,
                                  model.adapters.lora_rank.has_value());
  }
  return layout;
}

ShardLayout layout_of_files(const std::vector<TensorInfo>& tensors, int files) {
  ShardLayout layout(static_cast<size_t>(files));
  for (const TensorInfo& tensor : tensors) {
    const int64_t elements = tensor.global.elements();
    const auto cut = [&](size_t file) {
      return static_cast<int64_t>(static_cast<double>(elements) * static_cast<double>(file) / files);
    };
    for (size_t file = 0; file < layout.size(); ++file) {
      const int64_t end = file + 1 == layout.size() ? elements : cut(file + 1);
      for (const Rect& rect : rects_of_range(Rect::whole(tensor.global), cut(file), end))
        layout[file].push_back({tensor.name, tensor.dtype, tensor.global, rect});
    }
  }
  return layout;
}

std::filesystem::path reshard(CheckpointReader& from, const ReshardConfig& config,
                              const std::function<void(std::string)>& warn) {
  const std::vector<TensorInfo> tensors = tensors_to_keep(from, config);
  if (tensors.empty()) bad_input("{} holds nothing to write", from.directory().string());
  const ShardLayout layout = layout_of(from, tensors, config);
  int64_t bytes = 0;
  for (const TensorInfo& tensor : tensors) bytes += tensor.bytes();
  check_target(from, config.save);
  const SaveFolder folder(config.save);
  const SaveOptions options{.run_id = from.manifest().run_id, .folder = &folder, .warn = warn};
  for (const std::string& warning : folder.warnings()) options.report(warning);
  NewCheckpoint checkpoint(config.save, from.meta().step, bytes, options);
  std::vector<ShardFile> files;
  for (size_t rank = 0; rank < layout.size(); ++rank)
    if (!layout[rank].empty())
      files.emplace_back(checkpoint.folder() / fmt::format("shard_{:05}.h5", rank), from.meta().step,
                         layout[rank]);
  Passage stream(from, files, buffer_bytes(config.max_memory));
  for (const TensorInfo& tensor : tensors) stream.pass(tensor);
  ManifestBuilder tables;
  for (ShardFile& file : files) {
    file.finish();
    std::vector<TensorInfo> boxes;
    for (size_t box = 0; box < file.boxes().size(); ++box) {
      const ShardBox& place = file.boxes()[box];
      boxes.push_back({place.tensor, place.dtype, place.global, {file.piece(box)}});
    }
    tables.add(file.info(), boxes);
  }
  for (const FileInfo& file : from.manifest().files)
    if (file.role == FileInfo::Role::Attachment)
      tables.add(checkpoint.attach(from.attachments() / file.name), {});
  checkpoint.commit(meta_of(from, config), tables);
  checkpoint.tidy_up();
  return std::filesystem::path(config.save) / step_directory_name(from.meta().step);
}

}  // namespace trifold
