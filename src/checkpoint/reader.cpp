#include "checkpoint/reader.h"

#include <algorithm>
#include <map>
#include <set>

#include "checkpoint/convert_floats.h"
#include "checkpoint/manifest_file.h"
#include "checkpoint/save_folder.h"
#include "checkpoint/shard_source.h"
#include "checkpoint/tensor_kind.h"
#include "core/read_json.h"
#include "files/file.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;

constexpr size_t kMostListed = 20;  // the most problems listed in one message

std::string list_of(const std::vector<std::string>& problems) {
  std::string text;
  for (size_t i = 0; i < std::min(problems.size(), kMostListed); ++i) text += "\n  " + problems[i];
  if (problems.size() > kMostListed) text += fmt::format("\n  and {} more", problems.size() - kMostListed);
  return text;
}

// Whether the same elements have another number of dims, as in another version of the program; another model has other
// extents.
bool is_regrouped(const Shape& stored, const Shape& wanted) {
  return stored.rank() != wanted.rank() && stored.elements() == wanted.elements();
}

// The reason why `wanted` cannot be loaded from `stored`; empty if it can.
std::string misfit(const NamedTensor& wanted, const TensorInfo* stored, FloatConversion conversion) {
  const ShardSpec& spec = wanted.spec;
  if (stored == nullptr) return fmt::format("tensor {} is missing", spec.name);
  if (is_regrouped(stored->global, spec.global))
    return fmt::format(
        "tensor {}: written by an earlier version as {}, now {}: with the version that wrote it, convert the "
        "weights to Hugging Face's files (trifold convert), and import those with this one",
        spec.name, to_string(stored->global), to_string(spec.global));
  if (stored->global != spec.global)
    return fmt::format("tensor {}: checkpoint {}, requested {}", spec.name, to_string(stored->global),
                       to_string(spec.global));
  const DType dtype = wanted.data.dtype;
  if (stored->dtype == dtype) return {};
  if (!is_float(stored->dtype) || !is_float(dtype))
    return fmt::format("tensor {}: checkpoint {}, requested {}", spec.name, name_of(stored->dtype),
                       name_of(dtype));
  if (conversion == FloatConversion::Allow) return {};
  return fmt::format("tensor {}: checkpoint {}, requested {}, and a conversion was not asked for", spec.name,
                     name_of(stored->dtype), name_of(dtype));
}

// The step in the name of a checkpoint's directory; -1 for any other name.
int64_t step_of_directory(const fs::path& directory) {
  const fs::path absolute = (fs::absolute(directory) / "").lexically_normal();
  return step_of_name(absolute.parent_path().filename().string());
}

// The folder that contains a checkpoint's directory.
fs::path folder_of(const fs::path& directory) {
  const fs::path folder = (directory.has_filename() ? directory : directory.parent_path()).parent_path();
  return folder.empty() ? "." : folder;
}

// The remedy for the damaged checkpoint of `step` in `root`.
std::string way_on(const fs::path& root, int64_t step) {
  for (const auto& [older, directory] : checkpoints_in(root)) {
    if (older >= step) continue;
    try {
      if (!CheckpointReader(directory).files_are_complete()) continue;
    } catch (const Error&) {  // the next one then
      continue;
    }
    return fmt::format(
        "the newest complete checkpoint before it is {}: name that one to use it; "
        "--auto-resume goes back to it by itself",
        directory.string());
  }
  return fmt::format("{} holds no complete checkpoint before it", root.string());
}

// BadInput if `latest`, the step of LATEST, exceeds `step`, the newest checkpoint present.
void check_none_is_gone(const fs::path& root, int64_t latest, int64_t step) {
  if (latest <= step) return;
  const std::string file = (root / kLatestName).string();
  bad_input(
      "{}, the newest checkpoint according to {}, is gone: put it back, or remove {} if it is not needed; {}",
      (root / step_directory_name(latest)).string(), file, file, way_on(root, latest));
}

}  // namespace

CheckpointReader::CheckpointReader(const fs::path& named, Newest newest) {
  std::error_code error, ignored;
  if (!fs::exists(named, error)) {
    if (error) bad_input("checkpoint {} cannot be read: {}", named.string(), error.message());
    bad_input("checkpoint {} does not exist", named.string());
  }
  const bool is_best = named.filename() == kBestName && fs::is_regular_file(named, ignored);
  const fs::path path = is_best ? best_checkpoint(named) : named;
  if (!fs::exists(path, ignored))
    bad_input("{} names the checkpoint {}, which does not exist", named.string(), path.string());
  if (!fs::is_directory(path, ignored)) bad_input("{} is not the directory of a checkpoint", path.string());
  const bool is_one = fs::exists(path / kManifestName, error);
  if (error) bad_input("checkpoint {} cannot be read: {}", path.string(), error.message());
  if (is_one)
    open_directory(path);
  else
    open_newest(path, newest);
}

CheckpointReader::CheckpointReader(fs::path directory, Manifest manifest,
                                   std::shared_ptr<TensorSource> source, fs::path attachments)
    : directory_(std::move(directory)),
      attachments_(std::move(attachments)),
      manifest_(std::make_shared<const Manifest>(std::move(manifest))),
      source_(std::move(source)) {}

void CheckpointReader::open_directory(const fs::path& directory) {
  directory_ = directory;
  manifest_ = std::make_shared<const Manifest>(read_manifest(directory / kManifestName));
  const int64_t step = step_of_directory(directory);
  if (step >= 0 && manifest_->meta.step != step)
    bad_input("{} holds step {}, which contradicts its name", directory.string(), manifest_->meta.step);
  source_ = std::make_shared<ShardSource>(directory_, manifest_);
}

void CheckpointReader::open_newest(const fs::path& root, Newest newest) {
  const int64_t latest = latest_step(root);  // before the list: a save may be committed meanwhile
  const auto checkpoints = checkpoints_in(root);
  if (checkpoints.empty())
    bad_input("{} holds no checkpoint: neither {} nor a directory step_...", root.string(), kManifestName);
  if (newest == Newest::OrError) check_none_is_gone(root, latest, checkpoints.front().first);
  std::vector<std::string> damaged;
  for (const auto& [step, directory] : checkpoints) {
    try {
      return open_directory(directory);
    } catch (const Error& error) {
      damaged.emplace_back(error.what());
    }
    if (newest == Newest::OrError)
      bad_input("the newest checkpoint in {} cannot be used: {}; {}", root.string(), damaged.front(),
                way_on(root, step));
  }
  bad_input("{} holds no valid checkpoint:{}", root.string(), list_of(damaged));
}

namespace {

std::string average_name(std::string_view weight) {
  return std::string(kAverageKind) + std::string(weight.substr(kWeightKind.size()));
}

// Reads averages for weights.
class Averages final : public TensorSource {
 public:
  // `averaged`: the names of the weights that have one; others, which are frozen, are read themselves.
  Averages(std::shared_ptr<TensorSource> stored, std::set<std::string> averaged)
      : stored_(std::move(stored)), averaged_(std::move(averaged)) {}

  void read(std::span<const NamedTensor> wanted) override {
    std::vector<NamedTensor> named(wanted.begin(), wanted.end());
    for (NamedTensor& tensor : named)
      if (averaged_.contains(tensor.spec.name)) tensor.spec.name = average_name(tensor.spec.name);
    stored_->read(named);
  }

 private:
  std::shared_ptr<TensorSource> stored_;
  std::set<std::string> averaged_;
};

}  // namespace

CheckpointReader CheckpointReader::with_averages() const {
  Manifest manifest = *manifest_;
  const auto is_average = [](const TensorInfo& tensor) {
    return kind_of_tensor(tensor.name) == kAverageKind;
  };
  const auto weight_of = [](const TensorInfo& average) {
    return std::string(kWeightKind) + average.name.substr(kAverageKind.size());
  };
  std::set<std::string> averaged;
  for (const TensorInfo& tensor : manifest.tensors)
    if (is_average(tensor)) averaged.insert(weight_of(tensor));
  std::erase_if(manifest.tensors, [&](const TensorInfo& tensor) { return averaged.contains(tensor.name); });
  for (TensorInfo& tensor : manifest.tensors)
    if (is_average(tensor)) tensor.name = weight_of(tensor);
  if (averaged.empty())
    bad_input("{} has no exponential average of the weights: leave --load-ema out, or train with --ema",
              directory_.string());
  std::sort(manifest.tensors.begin(), manifest.tensors.end(),
            [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
  return CheckpointReader(directory_, std::move(manifest),
                          std::make_shared<Averages>(source_, std::move(averaged)), attachments_);
}

const TensorInfo* CheckpointReader::find(const std::string& name) const {
  return stored_tensor(*manifest_, name);
}

void CheckpointReader::load(std::span<const NamedTensor> wanted, FloatConversion conversion) {
  std::vector<std::string> problems;
  for (const NamedTensor& box : wanted) {
    if (std::string problem = misfit(box, find(box.spec.name), conversion); !problem.empty()) {
      if (problems.empty() || problems.back() != problem) problems.push_back(std::move(problem));
      continue;
    }
    check(box.spec.local.elements() == box.data.elements(),
          "tensor {}: the buffer has {} elements, which do not match the box {}", box.spec.name,
          box.data.elements(), to_string(box.spec.local));
  }
  if (!problems.empty())
    bad_input("checkpoint {} does not hold what is needed:{}", directory_.string(), list_of(problems));

  try {
    source_->read(wanted);
  } catch (const Error& error) {
    const int64_t step = step_of_directory(directory_);
    if (step < 0 || error.kind() != ErrorKind::BadInput) throw;
    bad_input("{}; {}", error.what(), way_on(folder_of(directory_), step));
  }
}

bool CheckpointReader::files_are_complete() const {
  return std::all_of(manifest_->files.begin(), manifest_->files.end(), [&](const FileInfo& info) {
    std::error_code error;
    const auto bytes = fs::file_size(directory_ / info.name, error);
    return !error && static_cast<int64_t>(bytes) == info.bytes;
  });
}

std::vector<std::string> CheckpointReader::problems_of(int file) const {
  const FileInfo& info = manifest_->files[static_cast<size_t>(file)];
  const fs::path path = directory_ / info.name;
  std::error_code error;
  const auto bytes = static_cast<int64_t>(fs::file_size(path, error));
  if (error) return {fmt::format("{}: {}", info.name, error.message())};
  if (bytes != info.bytes)
    return {fmt::format("{} has {} bytes instead of {}; it holds {}", info.name, bytes, info.bytes,
                        tensors_in(*manifest_, file))};
  std::vector<std::string> problems;
  try {
    const File opened(path, File::Mode::Read);
    const uint32_t crc = crc_of_file(opened);
    if (crc == info.crc) return {};
    problems.push_back(
        fmt::format("{} was changed: its CRC32 is {:08x} instead of {:08x}", info.name, crc, info.crc));
    for (const TensorInfo& tensor : manifest_->tensors)
      for (const PieceInfo& piece : tensor.pieces) {
        if (piece.file != file) continue;
        const int64_t length = piece.rect.elements() * static_cast<int64_t>(size_of(tensor.dtype));
        if (crc_of_file_range(opened, piece.byte_offset, length) != piece.crc)
          problems.push_back(
              fmt::format("{}: tensor {}, box {} is damaged", info.name, tensor.name, to_string(piece.rect)));
      }
  } catch (const Error& unreadable) {
    problems.emplace_back(unreadable.what());
  }
  return problems;
}

VerifyReport CheckpointReader::verify() const {
  VerifyReport report;
  report.tensors = static_cast<int64_t>(manifest_->tensors.size());
  for (size_t file = 0; file < manifest_->files.size(); ++file) {
    ++report.files;
    report.bytes += manifest_->files[file].bytes;
    for (std::string& problem : problems_of(static_cast<int>(file)))
      report.problems.push_back(std::move(problem));
  }
  return report;
}

std::vector<std::string> differing_fields(const nlohmann::json& left, const nlohmann::json& right,
                                          const std::string& left_name, const std::string& right_name) {
  using nlohmann::json;
  // [path] Both values; "nothing" if absent.
  std::map<std::string, std::pair<std::string, std::string>> fields;
  const auto collect = [&](const json& value, std::string std::pair<std::string, std::string>::*side) {
    const json flat = value.flatten();
    if (!flat.is_object()) return;
    for (const auto& [path, leaf] : flat.items()) {
      std::string key = path.empty() ? path : path.substr(1);
      std::replace(key.begin(), key.end(), '/', '.');
      fields[key].*side = json_text(leaf);
    }
  };
  collect(left, &std::pair<std::string, std::string>::first);
  collect(right, &std::pair<std::string, std::string>::second);
  std::vector<std::string> out;
  for (const auto& [key, values] : fields) {
    if (values.first == values.second) continue;
    const auto shown = [](const std::string& value) {
      if (value.empty()) return std::string("nothing");
      return value == "null" ? std::string("none") : value;
    };
    out.push_back(fmt::format("{}: {} {}, {} {}", key, left_name, shown(values.first), right_name,
                              shown(values.second)));
  }
  return out;
}

void compare_models(const nlohmann::json& stored, const nlohmann::json& wanted) {
  const std::vector<std::string> fields = differing_fields(stored, wanted, "checkpoint", "requested");
  if (!fields.empty()) bad_input("the checkpoint is of another model:{}", list_of(fields));
}

}  // namespace trifold
