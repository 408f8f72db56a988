// BackgroundSaver saves a checkpoint during the next steps. `start` copies the data that this rank writes into its own
// memory and returns; a thread then writes the copy with save_checkpoint, over a separate communicator. At most one
// save is outstanding: the next start waits for it. If a host has too little memory for the copies of its ranks, all
// ranks save synchronously instead.
#pragma once

#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "checkpoint/writer.h"
#include "core/function_ref.h"

namespace trifold {

class BackgroundSaver {
 public:
  // Returns the bytes of memory that this process can still allocate; 0 if unknown.
  using FreeMemory = std::function<size_t()>;

  // Collective over `world`, which must outlive this object. Calls of start are collective too.
  explicit BackgroundSaver(Communicator& world, FreeMemory free_memory = {});
  // Waits for the outstanding save. If an exception is being handled, the other ranks may never join in, so the world
  // is aborted first.
  ~BackgroundSaver();
  BackgroundSaver(const BackgroundSaver&) = delete;
  BackgroundSaver& operator=(const BackgroundSaver&) = delete;

  // As save_checkpoint; `mine` may change as soon as this returns. The outcome of the previous save must have been
  // taken with finish(). Returns an empty text; or, if memory is short, the reason, the same on every rank: `mine` was
  // then written without a copy, and the save is already complete.
  std::string start(const std::filesystem::path& root, const CheckpointMeta& meta,
                    std::span<const NamedTensor> mine, const MeshCoords& coords, const SaveOptions& options);
  // Whether a started save's outcome was not taken yet, and whether that save has ended.
  bool is_outstanding() const { return result_.valid(); }
  bool is_ready() const;
  // Waits for the outstanding save and returns the checkpoint it committed, or throws its error, on
  // every rank.
  std::filesystem::path finish();

 private:
  std::string make_room(FunctionRef<size_t()> measure);
  std::vector<NamedTensor> copy(std::vector<NamedTensor> boxes);

  std::unique_ptr<Communicator> world_;
  FreeMemory free_memory_;
  int exceptions_;  // exceptions being handled at construction
  Buffer memory_;   // holds the copy; reused by the next save
  std::future<std::filesystem::path> result_;
};

}  // namespace trifold
