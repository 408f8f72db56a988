// BackgroundSaver: saves while training goes on. `start` copies what this rank has to write to memory of its
// own and returns; a thread then writes the copy with save_checkpoint, over a communicator of its own. One
// save is outstanding: the next start waits for it. Where a host has no memory left for the copies of its
// ranks, all ranks save at once instead.
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
  // Says how many bytes of memory this process can still take; 0: not known.
  using FreeMemory = std::function<size_t()>;

  // Collective over `world`, which must outlive it. All calls of start are collective too.
  explicit BackgroundSaver(Communicator& world, FreeMemory free_memory = {});
  // Waits for the outstanding save. Where an error is on its way up, the other ranks may never join in, so
  // the world is aborted first.
  ~BackgroundSaver();
  BackgroundSaver(const BackgroundSaver&) = delete;
  BackgroundSaver& operator=(const BackgroundSaver&) = delete;

  // As save_checkpoint; `mine` may change as soon as it returns. The outcome of the save before must have
  // been taken by finish(). Returns an empty text, or, the same on every rank, where memory is short: then
  // the save has come to its end already, and `mine` was written without a copy.
  std::string start(const std::filesystem::path& root, const CheckpointMeta& meta,
                    std::span<const NamedTensor> mine, const MeshCoords& coords, const SaveOptions& options);
  // A save was started and its outcome was not taken yet; and it has come to its end.
  bool is_outstanding() const { return result_.valid(); }
  bool is_ready() const;
  // Waits for the outstanding save and returns the checkpoint it committed, or throws what went wrong, on
  // every rank.
  std::filesystem::path finish();

 private:
  std::string make_room(FunctionRef<size_t()> measure);
  std::vector<NamedTensor> copy(std::vector<NamedTensor> boxes);

  std::unique_ptr<Communicator> world_;
  FreeMemory free_memory_;
  int exceptions_;  // that were on their way when this was made
  Buffer memory_;   // of the copy; kept for the next
  std::future<std::filesystem::path> result_;
};

}  // namespace trifold
