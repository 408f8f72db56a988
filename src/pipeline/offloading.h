// Offloading: activations that leave memory between forward and backward (OFFLOAD and FETCH of a plan): the host's
// memory for a file, a device's for pinned memory of the host.
//
// The tensors that a block keeps of a micro-batch and that may leave memory are in a KeptBlock of its slot. On the
// host its addresses stay reserved while its content is in the file, so tensors in it stay valid. Pages are given back
// to the system when the content has left, and after the last backward that reads it.
//
// A device has a few places, each for the largest kept block: as many as there are kept blocks in memory at once. A
// kept block is filled in one place and may come back to another. Tensors in it have to follow it, also to the host's
// memory: so each points to memory that no other kept block has.
//
// Moves are in order on a stream of their own, so they overlap with computation. One kept block at a time is leaving:
// the next OFFLOAD waits until it has left, and until then it counts as in memory.
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

// Memory of a device for one kept block at a time.
struct KeptPlace {
  explicit KeptPlace(Arena arena) : memory(std::move(arena)) {}

  Arena memory;
  bool taken = false;
  Event spare;  // the last use of it is done
};

// The tensors that one block keeps of one micro-batch.
struct KeptBlock {
  explicit KeptBlock(Arena arena) : own(std::move(arena)) {}

  enum class State { Empty, Here, Leaving, Away, Coming };
  Arena own;                   // without memory if there are places
  KeptPlace* where = nullptr;  // where it is, or was last
  State state = State::Empty;
  size_t bytes = 0;  // kept in it
  size_t place = 0;  // in the file, or in the host's memory
  Event moved;       // the last move is done

  Arena& memory() { return where != nullptr ? where->memory : own; }
};

// Addresses of a kept block that have changed: [from, from + bytes) are [to, to + bytes) now.
struct Moved {
  std::byte* from = nullptr;
  std::byte* to = nullptr;
  size_t bytes = 0;
  // A tensor in the kept block follows it.
  void apply(Tensor& tensor) const {
    auto* data = static_cast<std::byte*>(tensor.data);
    if (data >= from && data < from + bytes) tensor.data = to + (data - from);
  }
};

class Offloading {
 public:
  // Counts only: for executors that neither compute nor move. With places, a kept block counts as one.
  Offloading() = default;
  // A file of `file_bytes` in `folder`; at most `limit` bytes of kept blocks are in memory at once. Moves run on
  // `transfers`, which must outlive this object. BadInput if the folder cannot take the file.
  Offloading(const std::string& folder, size_t file_bytes, size_t limit, Stream& transfers);
  // Between `places` of `place_bytes` on the device of `ops` and `host_bytes` of the host's memory. References must
  // outlive this object.
  Offloading(const OpTable& ops, size_t host_bytes, size_t place_bytes, int places, Stream& transfers);
  // Waits for moves in flight: they use the kept blocks.
  ~Offloading();
  Offloading(Offloading&&) = default;
  Offloading& operator=(Offloading&&) = default;

  // The folder of such files, with what messages say of it.
  static MemoryFolder folder(const std::string& path);

  // Gives a kept block memory, which the forward is about to fill on `compute`.
  void begin(KeptBlock& kept_block, Stream& compute);
  // The forward has filled it.
  void filled(KeptBlock& kept_block);
  // `compute` is the stream that fills and reads kept blocks. A kept block that is off-loaded must be fetched, and one
  // that is coming must be awaited, before it is read or released. Both say where its tensors are from now on.
  Moved offload(KeptBlock& kept_block, Stream& compute);
  Moved fetch(KeptBlock& kept_block);
  void await(KeptBlock& kept_block, Stream& compute);
  // Its content is not needed any more; no effect if it is empty.
  void release(KeptBlock& kept_block, Stream& compute);

  // The most bytes of kept blocks in memory at once so far, or of the places that they needed; and the most kept
  // blocks.
  size_t peak() const { return place_bytes_ > 0 ? place_bytes_ * static_cast<size_t>(most_blocks_) : peak_; }
  int most_blocks() const { return most_blocks_; }

 private:
  // Whether contents move, or are counted only.
  bool moves() const { return transfers_ != nullptr; }
  void add(size_t bytes);
  void remove(size_t bytes);
  void settle();
  KeptPlace& take_place();
  Tensor on_host(const KeptBlock& kept_block) const;

  std::unique_ptr<FileMemory> file_;
  const OpTable* ops_ = nullptr;  // of a device
  Buffer host_;
  std::vector<std::unique_ptr<KeptPlace>> places_;
  size_t place_bytes_ = 0;
  Stream* transfers_ = nullptr;
  size_t limit_ = 0;
  size_t now_ = 0, peak_ = 0;
  int blocks_ = 0, most_blocks_ = 0;
  KeptBlock* leaving_ = nullptr;
};

}  // namespace trifold
