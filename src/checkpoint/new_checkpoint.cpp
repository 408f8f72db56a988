#include "checkpoint/new_checkpoint.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>  // renameat2
#include <cstring>

#include "checkpoint/hdf5/hdf5_file.h"
#include "checkpoint/save_folder.h"
#include "checkpoint/shard_file.h"
#include "files/file.h"
#include "files/scratch_folder.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;

constexpr std::pair<SavePhase, std::string_view> kPhases[] = {
    {SavePhase::FolderMade, "folder-made"},      {SavePhase::LaidOut, "laid-out"},
    {SavePhase::HalfWritten, "half-written"},    {SavePhase::ShardWritten, "shard-written"},
    {SavePhase::ViewWritten, "view-written"},    {SavePhase::ManifestWritten, "manifest-written"},
    {SavePhase::Committed, "committed"},         {SavePhase::LatestWritten, "latest-written"},
    {SavePhase::OldMovedAway, "old-moved-away"}, {SavePhase::Done, "done"}};

// The file of virtual datasets that presents whole tensors to other tools.
void write_view(const fs::path& folder, Manifest& manifest) {
  const fs::path path = folder / kViewName;
  Hdf5File view = Hdf5File::create(path);
  write_file_attributes(view, manifest.meta.step);
  for (const TensorInfo& tensor : manifest.tensors) {
    std::vector<Hdf5File::Source> sources;
    for (const PieceInfo& piece : tensor.pieces)
      sources.push_back({piece.rect, manifest.files[static_cast<size_t>(piece.file)].name,
                         dataset_path(tensor.name, piece.rect)});
    view.write_virtual("/" + tensor.name, tensor.dtype, tensor.global, sources);
  }
  view.close();
  sync_to_disk(path);
  const uint32_t crc = crc_of_file(File(path, File::Mode::ReadBack));
  manifest.files.push_back(
      {std::string(kViewName), FileInfo::Role::View, static_cast<int64_t>(fs::file_size(path)), crc, crc});
}

// The size with the structure of the files and the manifest, in addition to the elements.
int64_t with_overhead(int64_t bytes) {
  constexpr int64_t kLeast = int64_t{1} << 20;
  return bytes + bytes / 20 + kLeast;
}

}  // namespace

std::string_view name_of(SavePhase phase) {
  return std::find_if(std::begin(kPhases), std::end(kPhases),
                      [&](const auto& entry) { return entry.first == phase; })
      ->second;
}

std::vector<SavePhase> save_phases() {
  std::vector<SavePhase> phases;
  for (const auto& entry : kPhases) phases.push_back(entry.first);
  return phases;
}

void ManifestBuilder::add(const FileInfo& file, std::span<const TensorInfo> boxes) {
  const int number = static_cast<int>(files_.size());
  files_.push_back(file);
  for (TensorInfo box : boxes) {
    box.pieces.front().file = number;
    const auto [found, is_new] = by_name_.try_emplace(box.name, box);
    if (is_new) continue;
    TensorInfo& tensor = found->second;
    check(tensor.dtype == box.dtype && tensor.global == box.global,
          "tensor {} is {} {} on one rank and {} {} on another", tensor.name, name_of(tensor.dtype),
          to_string(tensor.global), name_of(box.dtype), to_string(box.global));
    tensor.pieces.push_back(box.pieces.front());
  }
}

Manifest ManifestBuilder::finish() const {
  Manifest manifest;
  manifest.files = files_;
  for (const auto& entry : by_name_) manifest.tensors.push_back(entry.second);
  check_distinct_names(manifest.tensors);
  for (const TensorInfo& tensor : manifest.tensors) {
    std::vector<Rect> rects;
    for (const PieceInfo& piece : tensor.pieces) rects.push_back(piece.rect);
    check_exact_cover(tensor.name, tensor.global, rects);
  }
  return manifest;
}

int64_t ManifestBuilder::bytes() const {
  int64_t sum = 0;
  for (const auto& entry : by_name_) sum += entry.second.bytes();
  return sum;
}

void rename_to(const fs::path& folder, const fs::path& final_path, const ScratchFolder& scratch) {
  sync_to_disk(folder);
  ScratchFolder::protect([&] {
    if (!fs::exists(final_path)) {
      fs::rename(folder, final_path);
    } else if (renameat2(AT_FDCWD, folder.c_str(), AT_FDCWD, final_path.c_str(), RENAME_EXCHANGE) != 0) {
      check(errno == EINVAL || errno == ENOSYS, "{} cannot be replaced: {}", final_path.string(),
            std::strerror(errno));
      fs::rename(final_path, scratch.file("old"));
      fs::rename(folder, final_path);
    }
  });
  sync_to_disk(final_path.parent_path());
}

std::string step_directory_name(int64_t step) { return fmt::format("step_{:010}", step); }

NewCheckpoint::NewCheckpoint(const fs::path& root, int64_t step, int64_t bytes, const SaveOptions& options)
    : root_(root),
      final_path_(root / step_directory_name(step)),
      folder_(),
      save_id_(random_id()),
      options_(options) {
  check(step >= 0, "the step {} is negative", step);
  if (options.folder != nullptr)
    options.folder->check_in_place();
  else
    fs::create_directories(root);
  const auto room = static_cast<int64_t>(std::min<uintmax_t>(fs::space(root).available, INT64_MAX));
  check(room >= with_overhead(bytes), "{} needs {} bytes, but {} are free on the file system of {}",
        final_path_.filename().string(), with_overhead(bytes), room, root.string());
  scratch_ = std::make_unique<ScratchFolder>(final_path_);
  folder_ = scratch_->file("new");
  fs::create_directory(folder_);
  options_.reach(SavePhase::FolderMade);
}

NewCheckpoint::~NewCheckpoint() = default;

FileInfo NewCheckpoint::attach(const fs::path& file) const {
  const fs::path copy = folder_ / file.filename();
  fs::copy_file(file, copy);
  return describe(copy);
}

FileInfo NewCheckpoint::attach(const AttachedText& file) const {
  const fs::path copy = folder_ / file.name;
  write_text(copy, file.text);
  return describe(copy);
}

FileInfo NewCheckpoint::describe(const fs::path& copy) const {
  sync_to_disk(copy);
  const uint32_t crc = crc_of_file(File(copy, File::Mode::ReadBack));
  return {copy.filename().string(), FileInfo::Role::Attachment, static_cast<int64_t>(fs::file_size(copy)),
          crc, crc};
}

void NewCheckpoint::commit(const CheckpointMeta& meta, const ManifestBuilder& tables) {
  Manifest manifest = tables.finish();
  manifest.meta = meta;
  manifest.save_id = save_id_;
  manifest.run_id = options_.run_id;
  write_view(folder_, manifest);
  options_.reach(SavePhase::ViewWritten);
  write_text(folder_ / kManifestName, to_text(manifest));
  options_.reach(SavePhase::ManifestWritten);
  if (options_.folder != nullptr) options_.folder->check_in_place();
  rename_to(folder_, final_path_, *scratch_);
  if (const std::error_code error = scratch_->remove())
    options_.report(cannot_be_removed(scratch_->path(), error));
  options_.reach(SavePhase::Committed);
}

void NewCheckpoint::tidy_up() {
  const std::string name = final_path_.filename().string();
  attempt(kLatestName, [&] { replace_text(root_ / kLatestName, name + "\n", Links::Replaced); });
  if (options_.is_best) attempt(kBestName, [&] { mark_best(root_, step_of_name(name)); });
  options_.reach(SavePhase::LatestWritten);
  if (options_.retain > 0) attempt("the removal of older ones", [&] { retire_checkpoints(root_, options_); });
  options_.reach(SavePhase::Done);
}

void NewCheckpoint::attempt(std::string_view what, FunctionRef<void()> part) const {
  try {
    part();
  } catch (const std::exception& error) {
    options_.report(fmt::format("{} was saved, but {} failed: {}", final_path_.string(), what, error.what()));
  }
}

}  // namespace trifold
