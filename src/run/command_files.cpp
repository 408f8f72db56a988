#include "run/command_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "checkpoint/manifest.h"
#include "checkpoint/save_folder.h"
#include "clicks/click_format.h"
#include "core/error.h"
#include "core/printable.h"
#include "files/file.h"
#include "files/scratch_folder.h"
#include "run/log_line.h"
#include "text/indexed_dataset.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;

// A file or folder that the command line names, with its option.
struct UsedPath {
  const NamedFile* named;
  std::string path;  // as the user wrote it
  fs::path real;     // absolute, without symbolic links
};

fs::path real_path(const fs::path& path) {
  std::error_code error;
  fs::path real = fs::weakly_canonical(end_of_links(path), error);
  if (error) return fs::absolute(path);
  return real.has_filename() ? real : real.parent_path();  // "folder/"
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

bool lies_in(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

bool are_one_file(const fs::path& one, const fs::path& other) {
  std::error_code ignored;
  return one == other || fs::equivalent(one, other, ignored);
}

// The path in `folder` of another hard link to the file `path`; nullopt if there is none.
std::optional<fs::path> linked_in(const fs::path& folder, const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error) || fs::hard_link_count(path, error) < 2) return std::nullopt;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    if (std::error_code gone; fs::equivalent(entry->path(), path, gone)) return entry->path();
  return std::nullopt;
}

// Whether the path is a pipe, a terminal or another file that cannot be replaced.
bool is_special(const fs::path& path) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  return fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status);
}

// The files and folders that the path of an input may stand for: itself, a .bin/.idx pair, or arrays next to their
// labels.
std::vector<std::string> meanings_of(const std::string& path) {
  std::vector<std::string> paths{path, path + ".bin", path + ".idx"};
  constexpr std::string_view kLabels = "_labels.npy";
  if (path.ends_with(kLabels))
    for (const char* part : {"_dense.npy", "_sparse.npy"})
      paths.push_back(path.substr(0, path.size() - kLabels.size()) + part);
  return paths;
}

std::vector<UsedPath> inputs_of(const std::vector<NamedFile>& files) {
  std::vector<UsedPath> inputs;
  for (const NamedFile& file : files) {
    if (file.use != FileUse::Read && file.use != FileUse::Loaded) continue;
    for (const std::string& path : meanings_of(file.path))
      if (is_there(path)) inputs.push_back({&file, path, real_path(path)});
    // BEST names a checkpoint in its own folder.
    const fs::path path = file.path;
    if (path.filename() == kBestName && is_there(path))
      inputs.push_back({&file, file.path, real_path(fs::absolute(path).parent_path())});
  }
  return inputs;
}

std::vector<UsedPath> outputs_of(const std::vector<NamedFile>& files) {
  std::vector<UsedPath> outputs;
  const auto add = [&](const NamedFile& file, const std::string& path) {
    if (!is_special(path)) outputs.push_back({&file, path, real_path(path)});
  };
  for (const NamedFile& file : files) {
    if (file.use == FileUse::TokenPairs) {
      add(file, file.path + ".bin");
      add(file, file.path + ".idx");
    } else if (is_output(file.use) && file.path != "-") {
      add(file, file.path);
    }
  }
  return outputs;
}

[[noreturn]] void refuse(const UsedPath& output, const std::string& why) {
  bad_input("{} {} {}", output.named->option, output.path, why);
}

std::string_view kind_of(const UsedPath& output) {
  return output.named->use == FileUse::Filled ? "folder" : "file";
}

void check_not_input(const UsedPath& output, const UsedPath& input) {
  const auto option_of = [&] { return fmt::format("{} {}", input.named->option, input.path); };
  const bool loaded = input.named->use == FileUse::Loaded;
  if (loaded && output.named->use == FileUse::Filled && output.real == input.real) return;
  if (are_one_file(output.real, input.real))
    refuse(output,
           fmt::format("is {}, which this command reads: name another {}", option_of(), kind_of(output)));
  if (!is_folder(input.real)) return;
  if (const auto linked = linked_in(input.real, output.real))
    refuse(output, fmt::format("is the same file as {} in {}, which this command reads: name another file",
                               linked->string(), option_of()));
  if (!loaded && lies_in(output.real, input.real))
    refuse(output, fmt::format("is in {}, a folder that this command reads: name a {} elsewhere", option_of(),
                               kind_of(output)));
}

// The kind of a folder whose files belong together, such as a checkpoint; empty for other folders.
std::string_view collection_in(const fs::path& folder) {
  if (is_there(folder / kManifestName) && is_there(folder / kViewName)) return "a checkpoint";
  if (is_there(ClickFolder::manifest(folder.string())) || is_there(folder / "feature_spec.yaml"))
    return "a data set";
  if (is_there(folder / "config.json") &&
      (is_there(folder / "model.safetensors") || is_there(folder / "model.safetensors.index.json")))
    return "a model";
  return {};
}

void check_not_in_collection(const UsedPath& output) {
  const fs::path folder = output.real.parent_path();
  for (fs::path outer = folder; outer != outer.root_path(); outer = outer.parent_path())
    if (const std::string_view what = collection_in(outer); !what.empty())
      refuse(output, fmt::format("is in {}, {}: name another {}", outer.string(), what, kind_of(output)));
  if (const std::string_view what = collection_in(output.real); !what.empty())
    refuse(output, fmt::format("is {} itself: name another {}", what, kind_of(output)));
  const std::string name = output.real.filename().string();
  if (checkpoints_in(folder).empty()) return;
  if (name == kLatestName || name == kBestName || name == kOwnerName || step_of_name(name) >= 0)
    refuse(output, fmt::format("has the name of a file or folder of the checkpoints in {}: name another {}",
                               folder.string(), kind_of(output)));
}

// The bytes at the beginning and the end of a file.
struct Ends {
  std::string first, last;
};

Ends ends_of(const fs::path& path) {
  constexpr int64_t kLength = int64_t{1} << 20;  // a log's first line has all options of its run
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const auto size = static_cast<int64_t>(file.tellg());
  const auto piece = [&](int64_t begin) {
    std::string bytes(static_cast<size_t>(std::min(kLength, size)), '\0');
    file.clear();
    file.seekg(begin);
    file.read(bytes.data(), std::ssize(bytes));
    bytes.resize(static_cast<size_t>(std::max<int64_t>(0, file.gcount())));
    return bytes;
  };
  if (!file || size <= 0) return {};
  return {piece(0), piece(std::max<int64_t>(0, size - kLength))};
}

bool has_mark(const std::vector<OutputMark>& marks, const Ends& ends) {
  return std::any_of(marks.begin(), marks.end(), [&](const OutputMark& mark) {
    return ends.first.starts_with(mark.begin) && (ends.first.find(mark.content) != std::string::npos ||
                                                  ends.last.find(mark.content) != std::string::npos);
  });
}

bool is_log_line(std::string_view line) {
  const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
  return object.is_object() && object.contains("step") && object["step"].is_number_integer();
}

// Whether the first and the last complete line are lines of a log. A kill may have cut off the line after the last one,
// or the only one.
bool is_log(const Ends& ends) {
  const size_t first = ends.first.find('\n');
  const size_t last = ends.last.rfind('\n');
  if (first == std::string::npos || last == std::string::npos)
    return begins_like_log_line(ends.first) && !nlohmann::json::accept(ends.first);
  const size_t before = last == 0 ? std::string::npos : ends.last.rfind('\n', last - 1);
  const size_t begin = before == std::string::npos ? 0 : before + 1;
  return is_log_line(ends.first.substr(0, first)) && is_log_line(ends.last.substr(begin, last - begin)) &&
         begins_like_log_line(std::string_view(ends.last).substr(last + 1));
}

bool is_token_pair(const std::string& prefix) {
  try {
    const IndexedDataset pair(prefix);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Whether an existing file may be replaced, or appended to, without asking.
bool is_own(const UsedPath& output) {
  switch (output.named->use) {
    case FileUse::TokenPairs:
      return is_token_pair(output.named->path);
    case FileUse::Appended:
      return is_log(ends_of(output.real));
    default:
      return has_mark(output.named->marks, ends_of(output.real));
  }
}

bool belongs_to_pair(const fs::path& path) {
  for (const auto& [suffix, other] : {std::pair{".bin", ".idx"}, {".idx", ".bin"}})
    if (path.extension() == suffix && is_there(fs::path(path).replace_extension(other))) return true;
  return false;
}

void check_replaceable(const UsedPath& output, bool overwrite) {
  std::error_code ignored;
  const FileUse use = output.named->use;
  if (use == FileUse::Filled || !fs::is_regular_file(output.real, ignored) ||
      fs::file_size(output.real, ignored) == 0)
    return;
  if (use != FileUse::TokenPairs && belongs_to_pair(output.real))
    refuse(output, "belongs to a .bin/.idx data set: name another file");
  if (is_own(output)) return;
  if (use == FileUse::Appended)
    refuse(output, "exists and is not a log of Trifold, to which lines are appended: name another file");
  if (use == FileUse::Kept) refuse(output, "exists and was not written by Trifold: name another file");
  if (!overwrite)
    refuse(
        output,
        "exists and has no mark of this command: name another file, remove it, or give --overwrite to replace it");
}

}  // namespace

void check_command_files(const CommandFiles& files) {
  const std::vector<UsedPath> inputs = inputs_of(files.files);
  const std::vector<UsedPath> outputs = outputs_of(files.files);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const UsedPath& output = outputs[i];
    for (const UsedPath& input : inputs) check_not_input(output, input);
    for (size_t j = 0; j < i; ++j)
      if (are_one_file(output.real, outputs[j].real))
        refuse(output, fmt::format("is also {} {}: name two", outputs[j].named->option, outputs[j].path));
    check_not_in_collection(output);
    check_replaceable(output, files.overwrite);
  }
}

void remove_abandoned_scratch(const CommandFiles& files) {
  for (const NamedFile& file : files.files) {
    if (!is_output(file.use)) continue;
    const fs::path place = real_path(file.path);
    remove_abandoned_scratch(place.parent_path(), place.filename().string());
  }
}

}  // namespace trifold
