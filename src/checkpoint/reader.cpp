#include "checkpoint/reader.h"

#include <algorithm>
#include <map>

#include "checkpoint/files.h"
#include "checkpoint/hdf5_file.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostManifestBytes = int64_t{1} << 31;
constexpr size_t kMostListed = 20;  // problems told in one message

Manifest read_manifest(const fs::path& directory) {
  const fs::path path = directory / kManifestName;
  std::string text;
  try {
    text = read_text(path, kMostManifestBytes);
  } catch (const Error& error) {
    bad_input("{}", error.what());
  }
  return parse_manifest(text, path.string());
}

// The step of a directory called like a checkpoint; -1 for any other name.
int64_t step_of_name(const std::string& name) {
  constexpr std::string_view kPrefix = "step_";
  const std::string digits = name.substr(std::min(name.size(), kPrefix.size()));
  if (name.compare(0, kPrefix.size(), kPrefix) != 0 || digits.empty() || digits.size() > 18) return -1;
  if (digits.find_first_not_of("0123456789") != std::string::npos) return -1;
  return std::stoll(digits);
}

// Checkpoint directories in `root`, newest first.
std::vector<std::pair<int64_t, fs::path>> candidates_in(const fs::path& root) {
  std::vector<std::pair<int64_t, fs::path>> found;
  for (const auto& entry : fs::directory_iterator(root)) {
    const int64_t step = step_of_name(entry.path().filename().string());
    if (step >= 0 && entry.is_directory()) found.emplace_back(step, entry.path());
  }
  std::sort(found.rbegin(), found.rend());
  return found;
}

std::string list_of(const std::vector<std::string>& problems) {
  std::string text;
  for (size_t i = 0; i < std::min(problems.size(), kMostListed); ++i) text += "\n  " + problems[i];
  if (problems.size() > kMostListed) text += fmt::format("\n  and {} more", problems.size() - kMostListed);
  return text;
}

bool is_float(DType dtype) { return dtype == DType::F32 || dtype == DType::F64; }

// What keeps `wanted` from being loaded out of `stored`; empty when nothing does.
std::string misfit(const NamedTensor& wanted, const TensorInfo* stored, FloatConversion conversion) {
  const ShardSpec& spec = wanted.spec;
  if (stored == nullptr) return fmt::format("tensor {} is missing", spec.name);
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

// One read of a part of a stored box into a wanted one.
struct Read {
  const TensorInfo* tensor;
  const PieceInfo* piece;
  const NamedTensor* wanted;
  Rect part;
};

}  // namespace

CheckpointReader::CheckpointReader(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) bad_input("checkpoint {} does not exist", path.string());
  if (!fs::is_directory(path, ignored)) bad_input("{} is not the directory of a checkpoint", path.string());
  if (fs::exists(path / kManifestName, ignored)) {
    directory_ = path;
    manifest_ = read_manifest(path);
    return;
  }
  for (const auto& [step, directory] : candidates_in(path)) {
    try {
      manifest_ = read_manifest(directory);
      if (manifest_.meta.step != step)
        bad_input("{} holds step {}, not what its name says", directory.string(), manifest_.meta.step);
      directory_ = directory;
      return;
    } catch (const Error& error) {
      skipped_.emplace_back(error.what());
    }
  }
  if (skipped_.empty())
    bad_input("{} holds no checkpoint: neither {} nor a directory step_...", path.string(), kManifestName);
  bad_input("{} holds no valid checkpoint:{}", path.string(), list_of(skipped_));
}

const TensorInfo* CheckpointReader::find(const std::string& name) const {
  const auto at =
      std::lower_bound(manifest_.tensors.begin(), manifest_.tensors.end(), name,
                       [](const TensorInfo& tensor, const std::string& key) { return tensor.name < key; });
  return at != manifest_.tensors.end() && at->name == name ? &*at : nullptr;
}

void CheckpointReader::load(std::span<const NamedTensor> wanted, FloatConversion conversion) {
  std::vector<std::string> problems;
  std::map<int, std::vector<Read>> reads;  // by file
  for (const NamedTensor& box : wanted) {
    const TensorInfo* stored = find(box.spec.name);
    if (std::string problem = misfit(box, stored, conversion); !problem.empty()) {
      if (problems.empty() || problems.back() != problem) problems.push_back(std::move(problem));
      continue;
    }
    check(box.spec.local.elements() == box.data.elements(), "tensor {}: room for {} elements of the box {}",
          box.spec.name, box.data.elements(), to_string(box.spec.local));
    for (const PieceInfo& piece : stored->pieces)
      if (auto part = intersect(piece.rect, box.spec.local))
        reads[piece.file].push_back({stored, &piece, &box, *part});
  }
  if (!problems.empty())
    bad_input("checkpoint {} does not hold what is needed:{}", directory_.string(), list_of(problems));

  for (const auto& entry : reads) {
    check_file(entry.first);
    const Hdf5File file =
        Hdf5File::open_read(directory_ / manifest_.files[static_cast<size_t>(entry.first)].name);
    for (const Read& read : entry.second)
      file.read(dataset_path(read.tensor->name, read.piece->rect), read.piece->rect, read.part,
                read.wanted->data, read.wanted->spec.local);
  }
}

void CheckpointReader::check_file(int file) {
  if (checked_.contains(file)) return;
  const std::vector<std::string> problems = problems_of(file);
  if (!problems.empty()) bad_input("checkpoint {} is damaged:{}", directory_.string(), list_of(problems));
  checked_.insert(file);
}

std::vector<std::string> CheckpointReader::problems_of(int file) const {
  const FileInfo& info = manifest_.files[static_cast<size_t>(file)];
  const fs::path path = directory_ / info.name;
  std::error_code error;
  const auto bytes = static_cast<int64_t>(fs::file_size(path, error));
  if (error) return {fmt::format("{}: {}", info.name, error.message())};
  if (bytes != info.bytes)
    return {fmt::format("{} has {} bytes instead of {}", info.name, bytes, info.bytes)};
  std::vector<std::string> problems;
  try {
    const uint32_t crc = crc_of_file(path);
    if (crc == info.crc) return {};
    problems.push_back(
        fmt::format("{} was changed: its CRC32 is {:08x} instead of {:08x}", info.name, crc, info.crc));
    for (const TensorInfo& tensor : manifest_.tensors)
      for (const PieceInfo& piece : tensor.pieces) {
        if (piece.file != file) continue;
        const int64_t length = piece.rect.elements() * static_cast<int64_t>(size_of(tensor.dtype));
        if (crc_of_file_range(path, piece.byte_offset, length) != piece.crc)
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
  report.tensors = static_cast<int64_t>(manifest_.tensors.size());
  for (size_t file = 0; file < manifest_.files.size(); ++file) {
    ++report.files;
    report.bytes += manifest_.files[file].bytes;
    for (std::string& problem : problems_of(static_cast<int>(file)))
      report.problems.push_back(std::move(problem));
  }
  return report;
}

std::vector<std::string> differing_fields(const nlohmann::json& left, const nlohmann::json& right,
                                          const std::string& left_name, const std::string& right_name) {
  using nlohmann::json;
  std::map<std::string, std::pair<std::string, std::string>>
      fields;  // by path: the values, "nothing" when absent
  const auto collect = [&](const json& value, std::string std::pair<std::string, std::string>::*side) {
    const json flat = value.flatten();
    if (!flat.is_object()) return;
    for (const auto& [path, leaf] : flat.items()) {
      std::string key = path.empty() ? path : path.substr(1);
      std::replace(key.begin(), key.end(), '/', '.');
      fields[key].*side = leaf.dump(-1, ' ', false, json::error_handler_t::replace);
    }
  };
  collect(left, &std::pair<std::string, std::string>::first);
  collect(right, &std::pair<std::string, std::string>::second);
  std::vector<std::string> out;
  for (const auto& [key, values] : fields) {
    if (values.first == values.second) continue;
    const auto shown = [](const std::string& value) {
      return value.empty() ? std::string("nothing") : value;
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
