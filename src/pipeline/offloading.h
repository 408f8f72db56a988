// Offloading: activations that leave memory between forward and backward, for a file (OFFLOAD and FETCH of a plan).
//
// What a block keeps of a micro-batch and may leave is in a KeptBlock of the micro-batch's slot. Its addresses stay
// reserved while its content is in the file, so tensors in it stay valid. Pages are given back to the system when the
// content has left, and after the last backward that reads it.
//
// Moves are in order on a stream of their own, so they overlap with computation. One kept block at a time is leaving:
// the next OFFLOAD waits until it has left, and until then it counts as in memory.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "core/stream.h"
#include "core/tensor.h"
#include "files/file_memory.h"

namespace trifold {

// What one block keeps of one micro-batch.
struct KeptBlock {
  explicit KeptBlock(Arena arena) : memory(std::move(arena)) {}

  enum class State { Empty, Here, Leaving, Away, Coming };
  Arena memory;
  State state = State::Empty;
  size_t bytes = 0;  // kept in it
  size_t place = 0;  // in the file
  Event moved;       // the last move is done
};

class Offloading {
 public:
  // Counts only: for executors that neither compute nor move.
  Offloading() = default;
  // A file of `file_bytes` in `folder`; at most `limit` bytes of kept blocks are in memory at once. Moves run on
  // `transfers`, which must outlive this object. BadInput if the folder cannot take the file.
  Offloading(const std::string& folder, size_t file_bytes, size_t limit, Stream& transfers);
  // Waits for moves in flight: they use the kept blocks.
  ~Offloading();
  Offloading(Offloading&&) = default;
  Offloading& operator=(Offloading&&) = default;

  // The folder of such files, with what messages say of it.
  static MemoryFolder folder(const std::string& path);

  // The forward has filled it.
  void filled(KeptBlock& kept_block);
  // `compute` is the stream that fills and reads kept blocks. A kept block that is off-loaded must be fetched, and one
  // that is coming must be awaited, before it is read or released.
  void offload(KeptBlock& kept_block, Stream& compute);
  void fetch(KeptBlock& kept_block);
  void await(KeptBlock& kept_block, Stream& compute);
  // Its content is not needed any more; no effect if it is empty.
  void release(KeptBlock& kept_block, Stream& compute);

  // The most bytes of kept blocks in memory at once so far.
  size_t peak() const { return peak_; }

 private:
  void add(size_t bytes);
  void settle();

  std::unique_ptr<FileMemory> file_;  // null: counts only
  Stream* transfers_ = nullptr;
  size_t limit_ = 0;
  size_t now_ = 0, peak_ = 0;
  KeptBlock* leaving_ = nullptr;
};

}  // namespace trifold
