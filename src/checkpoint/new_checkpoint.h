// NewCheckpoint is a checkpoint that is being written, from its temporary folder to the commit. One process owns it;
// others may write shard files into its folder.
//
// The order of a save, which a kill may interrupt anywhere: create a folder in the scratch folder step_N.tmp-<random>
// (files/scratch_folder.h); write and sync the shards, the view and, last, the manifest; sync the folder; rename it to
// step_N (the commit); sync the parent; update LATEST; remove checkpoints by the rules of retention. A folder called
// step_<digits> is therefore always complete, and the previous checkpoint is untouched until the new one is committed.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/manifest.h"
#include "core/function_ref.h"

namespace trifold {

// The phases of a save, in this order. LaidOut, HalfWritten and ShardWritten are reported by every rank that
// writes a file, the others by rank 0.
enum class SavePhase {
  FolderMade,
  LaidOut,      // the file has space for everything
  HalfWritten,  // half of the boxes have been written
  ShardWritten,
  ViewWritten,
  ManifestWritten,
  Committed,  // the folder has its final name
  LatestWritten,
  OldMovedAway,  // a checkpoint that retention removes has been renamed
  Done,
};
std::string_view name_of(SavePhase phase);  // "folder-made"
std::vector<SavePhase> save_phases();

class SaveFolder;
class ScratchFolder;

// A small file of the model that a checkpoint keeps (FileInfo::Role::Attachment), from memory.
struct AttachedText {
  std::string name, text;
};

struct SaveOptions {
  // The identity of the saving run, for the manifest (checkpoint/run_identity.h); empty if unknown.
  std::string run_id = {};
  // On rank 0: the folder that the run has locked, checked before each save; null: the folder is created if it is
  // missing.
  const SaveFolder* folder = nullptr;
  // The number of newest good checkpoints to keep, at least 2; older ones are removed (checkpoint/save_folder.h). 0:
  // all are kept.
  int retain = 0;
  // Marks the checkpoint as the best of its folder (kBestName); it is then kept regardless of `retain`.
  bool is_best = false;
  // Written by rank 0.
  std::vector<AttachedText> attached = {};
  // For runs (run/savable.h): leaves out the optimizer's state.
  bool only_weights = false;
  // Called on rank 0 once the checkpoint is complete, as the last part of the save; returns the path that the save
  // returns instead of the checkpoint's. Set on all ranks or on none.
  std::function<std::filesystem::path(const std::filesystem::path& checkpoint)> then = {};
  // Called in every phase, so that tests can end a process there.
  std::function<void(SavePhase)> at_phase = {};
  // Called on the saving thread with warnings for the user about a save that succeeds.
  std::function<void(std::string)> warn = {};

  void report(std::string warning) const {
    if (warn) warn(std::move(warning));
  }
  void reach(SavePhase phase) const {
    if (at_phase) at_phase(phase);
  }
};

// Merges the tables of contents of a checkpoint's files.
class ManifestBuilder {
 public:
  // Adds `boxes` of `file`, one piece each; the pieces' file numbers are set here. Throws if they disagree with boxes
  // of other files about a tensor.
  void add(const FileInfo& file, std::span<const TensorInfo> boxes);
  // Throws unless the boxes contain every element of each tensor exactly once.
  Manifest finish() const;
  // Bytes of all elements.
  int64_t bytes() const;

 private:
  std::vector<FileInfo> files_;
  std::map<std::string, TensorInfo> by_name_;
};

class NewCheckpoint {
 public:
  // Creates the temporary folder. Throws, before it creates anything except `root`, if the file system has less space
  // than `bytes` and a reserve, or if options.folder was moved. `options` must outlive this object.
  NewCheckpoint(const std::filesystem::path& root, int64_t step, int64_t bytes, const SaveOptions& options);
  // Removes the scratch folder.
  ~NewCheckpoint();
  NewCheckpoint(const NewCheckpoint&) = delete;
  NewCheckpoint& operator=(const NewCheckpoint&) = delete;

  const std::filesystem::path& folder() const { return folder_; }

  // Copies `file` into the folder under its own name and syncs it. Returns its description, without boxes, for
  // ManifestBuilder::add.
  FileInfo attach(const std::filesystem::path& file) const;
  // Writes a text into the folder, with the same result.
  FileInfo attach(const AttachedText& file) const;

  // Call when all shards are in the folder and on the disk. Adds the view and the manifest (`tables` describes the
  // shards) and commits. A checkpoint of the same step is replaced, atomically if the file system can exchange two
  // folders.
  void commit(const CheckpointMeta& meta, const ManifestBuilder& tables);
  // Writes <root>/LATEST and, for the best checkpoint, <root>/BEST; then applies retention. The checkpoint is already
  // complete, so failures are reported to options.warn.
  void tidy_up();

 private:
  FileInfo describe(const std::filesystem::path& copy) const;
  void attempt(std::string_view what, FunctionRef<void()> part) const;

  std::filesystem::path root_, final_path_, folder_;
  std::unique_ptr<ScratchFolder> scratch_;
  std::string save_id_;
  const SaveOptions& options_;
};

// Gives the finished folder `folder` its final name, on the disk too. A folder of that name is replaced, atomically if
// the file system can exchange two folders; the old one is then in `folder`, or in `scratch`, which contains `folder`.
void rename_to(const std::filesystem::path& folder, const std::filesystem::path& final_path,
               const ScratchFolder& scratch);

// "step_0000000010"
std::string step_directory_name(int64_t step);

}  // namespace trifold
