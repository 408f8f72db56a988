// Offloading: moves activations out of memory between forward and backward (OFFLOAD and FETCH of a plan): from host
// memory to a file, or from device memory to pinned host memory.
//
// The tensors that a block keeps of a micro-batch, if the plan off-loads them, are in a KeptBlock of the slot. On the
// host its addresses stay reserved while its content is in the file, so its tensors stay valid. Pages are released to
// the system when the content has been written, and after the last backward that reads it.
//
// A device has a few buffers, each as large as the largest kept block: as many as kept blocks are in memory at the same
// time. A kept block may be fetched into another buffer than it was filled in. Its tensors are moved with it, also to
// host memory (Moved), so each points to memory that no other kept block has.
//
// Moves run in order on a stream of their own and overlap with computation. One kept block at a time is being
// off-loaded: the next OFFLOAD waits for it, and until then it counts as in memory.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "core/stream.h"
#include "core/tensor.h"
#include "files/file_memory.h"
#include "ops/ops.h"

namespace trifold {

// Device memory for one kept block at a time.
struct KeptBuffer {
  explicit KeptBuffer(Arena arena) : memory(std::move(arena)) {}

  Arena memory;
  bool taken = false;
  Event spare;  // completes with the last use
};

// The tensors that one block keeps of one micro-batch.
struct KeptBlock {
  explicit KeptBlock(Arena arena) : own_memory(std::move(arena)) {}

  enum class State { Empty, InMemory, Offloading, Offloaded, Fetching };
  Arena own_memory;              // memory, if there are no shared buffers
  KeptBuffer* buffer = nullptr;  // the shared buffer that it is in, or was in last
  State state = State::Empty;
  size_t bytes = 0;   // size of the content
  size_t offset = 0;  // in the file, or in host memory
  Event moved;        // completes with the last move

  Arena& memory() { return buffer != nullptr ? buffer->memory : own_memory; }
};

// A change of a kept block's addresses from [from, from + bytes) to [to, to + bytes).
struct Moved {
  std::byte* from = nullptr;
  std::byte* to = nullptr;
  size_t bytes = 0;
  // Adjusts the address of a tensor, if it is in the kept block.
  void apply(Tensor& tensor) const {
    auto* data = static_cast<std::byte*>(tensor.data);
    if (data >= from && data < from + bytes) tensor.data = to + (data - from);
  }
};

class Offloading {
 public:
  // Counts only, for executors that neither compute nor move.
  Offloading() = default;
  // Off-loads to a file of `file_bytes` in `folder`; at most `limit` bytes of kept blocks are in memory at the same
  // time. Moves run on `transfers`, which must outlive this object. BadInput if the folder has no room for the file.
  Offloading(const std::string& folder, size_t file_bytes, size_t limit, Stream& transfers);
  // Off-loads from `buffers` buffers of `buffer_bytes` on the device of `ops` to `host_bytes` of host memory.
  // References must outlive this object.
  Offloading(const OpTable& ops, size_t host_bytes, size_t buffer_bytes, int buffers, Stream& transfers);
  // Waits for moves in flight, which use the kept blocks.
  ~Offloading();
  Offloading(Offloading&&) = default;
  Offloading& operator=(Offloading&&) = default;

  // The folder for the file, with the option and the remedy that messages name.
  static MemoryFolder folder(const std::string& path);

  // Provides memory for a kept block, which the forward then fills on `compute`.
  void begin(KeptBlock& kept_block, Stream& compute);
  // Called when the forward has filled the kept block.
  void filled(KeptBlock& kept_block);
  // Start moving a kept block and return its change of addresses. `compute` is the stream that fills and reads kept
  // blocks. A kept block that is off-loaded must be fetched, and then awaited, before it is read or released.
  Moved offload(KeptBlock& kept_block, Stream& compute);
  Moved fetch(KeptBlock& kept_block);
  void await(KeptBlock& kept_block, Stream& compute);
  // Discards the content; no effect if the kept block is empty.
  void release(KeptBlock& kept_block, Stream& compute);

  // The largest size so far of kept blocks in memory at the same time, or of the buffers that they needed, in bytes;
  // and the largest number of kept blocks in memory.
  size_t peak() const {
    return buffer_bytes_ > 0 ? buffer_bytes_ * static_cast<size_t>(most_blocks_) : peak_;
  }
  int most_blocks() const { return most_blocks_; }

 private:
  // Whether contents are moved; otherwise only counted.
  bool moves() const { return transfers_ != nullptr; }
  void add(size_t bytes);
  void remove(size_t bytes);
  void settle();
  KeptBuffer& take_buffer();
  Tensor on_host(const KeptBlock& kept_block) const;

  std::unique_ptr<FileMemory> file_;
  const OpTable* ops_ = nullptr;  // null on the host
  Buffer host_;
  std::vector<std::unique_ptr<KeptBuffer>> buffers_;
  size_t buffer_bytes_ = 0;
  Stream* transfers_ = nullptr;
  size_t limit_ = 0;
  size_t now_ = 0, peak_ = 0;
  int blocks_ = 0, most_blocks_ = 0;
  KeptBlock* offloading_ = nullptr;
};

}  // namespace trifold
