// NewCheckpoint: a checkpoint that is being written, from its temporary folder to the commit. One process
// owns it; others may write shard files into its folder.
//
// The order of a save, which a kill may interrupt anywhere: create step_N.tmp-<random>; write and sync the
// shards, the view and, last, the manifest; sync the folder; rename it to step_N (the commit); sync the
// parent; update LATEST; remove checkpoints that retention drops. So a folder called step_<digits> is always
// complete, and the previous checkpoint is untouched until the new one is committed.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/manifest.h"

namespace trifold {

// The phases of a save, in this order. LaidOut, HalfWritten and ShardWritten are reported by every rank that
// writes a file, the others by rank 0.
enum class SavePhase {
  FolderMade,
  LaidOut,      // the file has room for everything
  HalfWritten,  // half of the boxes are in it
  ShardWritten,
  ViewWritten,
  ManifestWritten,
  Committed,  // the folder has its name
  LatestWritten,
  OldMovedAway,  // a checkpoint that retention removes has lost its name
  Done,
};
std::string_view name_of(SavePhase phase);  // "folder-made"
std::vector<SavePhase> save_phases();

class SaveFolder;

struct SaveOptions {
  // The run that saves, for the manifest (checkpoint/run_identity.h); empty: not known.
  std::string run_id = {};
  // Of rank 0: the folder that the run has locked, checked before each save; null: it is created if it is
  // missing.
  const SaveFolder* folder = nullptr;
  // This many of the newest good checkpoints are kept, at least 2; older ones are removed
  // (checkpoint/save_folder.h). 0: all are kept.
  int retain = 0;
  // It is the best of its folder from now on (kBestName), and stays whatever `retain` says.
  bool is_best = false;
  // Called in every phase, so that tests can end a process there.
  std::function<void(SavePhase)> at_phase = {};
  // Called, on the thread that saves, with warnings for the user about a save that succeeds.
  std::function<void(std::string)> warn = {};

  void tell(std::string warning) const {
    if (warn) warn(std::move(warning));
  }
  void reach(SavePhase phase) const {
    if (at_phase) at_phase(phase);
  }
};

// Merges the tables of the files of a checkpoint.
class ManifestBuilder {
 public:
  // `boxes` of `file`, one piece each, whose file number is set here. Throws where they disagree with those
  // of other files about a tensor.
  void add(const FileInfo& file, std::span<const TensorInfo> boxes);
  // Throws unless the boxes hold every element of each tensor exactly once.
  Manifest finish() const;
  // Of the elements.
  int64_t bytes() const;

 private:
  std::vector<FileInfo> files_;
  std::map<std::string, TensorInfo> by_name_;
};

class NewCheckpoint {
 public:
  // Creates the temporary folder. Throws before it creates anything but `root` if the file system has less
  // than `bytes` and a reserve, or if options.folder was moved. `options` must outlive
  // this.
  NewCheckpoint(const std::filesystem::path& root, int64_t step, int64_t bytes, const SaveOptions& options);
  // Removes the temporary folder unless it was committed.
  ~NewCheckpoint();
  NewCheckpoint(const NewCheckpoint&) = delete;
  NewCheckpoint& operator=(const NewCheckpoint&) = delete;

  const std::filesystem::path& folder() const { return folder_; }

  // Copies `file` into the folder under its own name and syncs it; returns it, without boxes, for
  // ManifestBuilder::add.
  FileInfo attach(const std::filesystem::path& file) const;

  // After all shards are in the folder and on the disk: adds the view and the manifest (`tables` says what is
  // in the shards) and commits. A checkpoint of the same step is replaced, at once where the file system can
  // exchange two folders.
  void commit(const CheckpointMeta& meta, const ManifestBuilder& tables);
  // Writes <root>/LATEST, a hint for people and scripts, where it is the best <root>/BEST, and applies
  // retention. Errors say that the checkpoint itself is complete.
  void tidy_up();

 private:
  std::filesystem::path root_, final_path_, folder_;
  std::string save_id_;
  const SaveOptions& options_;
  bool committed_ = false;
};

// "step_0000000010"
std::string step_directory_name(int64_t step);

}  // namespace trifold
