// ShadowMemory: what a RaceCheck records about every word that a launch has accessed.
//
// The emulation reports its position (launch, block, thread, barriers); access() is called before each load
// and store. For each word, or each byte if smaller pieces were accessed, it keeps the last write and enough
// of the later reads to find every reader that is not ordered before a later write. Barriers are cheap: each
// access has the number of its segment, the time of one warp between two barriers, and segments of earlier
// launches have smaller numbers. Barriers of some of a block's threads, and phase barriers, order less than a barrier of
// the block: for them each thread knows, for every other warp, the last segment that happened before its next access. A
// copy by the hardware is a segment of its own, in the place of a warp that belongs to the phase barrier of the copy.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cuda_emulation/race_check.h"

namespace trifold::cuda::emulation {

class ShadowMemory {
 public:
  ShadowMemory();

  // That of the calling thread; null while nothing is checked.
  static thread_local ShadowMemory* active;

  void begin_launch(const char* kernel);
  void end_launch() { checking_ = false; }
  void begin_block(unsigned block, unsigned warps);
  void block_barrier();
  void warp_barrier(unsigned warp);
  // Of these threads, which are whole warps.
  void threads_barrier(const std::vector<unsigned>& threads);
  void runs(unsigned thread) { thread_ = thread; }
  // The stack of the running thread, which is private to it.
  void on_stack(const void* begin, size_t bytes);

  // Phase barriers of the block, by index: the running thread arrives, or has waited for ended phases.
  void add_barrier();
  void arrive(unsigned barrier);
  void acquire(unsigned barrier);
  void end_phase(unsigned barrier);
  // The running thread begins a copy to shared memory by the hardware; its segment, which arrives at the barrier later.
  uint32_t write_of_engine(const void* address, size_t bytes, unsigned barrier, const void* code);
  void engine_arrives(unsigned barrier, uint32_t segment);

  void access(const void* address, size_t bytes, AccessKind kind, const void* code);
  // Reports a write to shared memory by an instruction that writes to global memory, as a race with itself.
  void expect_global(const void* address);
  const std::vector<Race>& races() const { return races_; }

 private:
  struct Access {
    uint32_t segment = 0;
    int32_t code = 0;  // relative to anchor()
    uint16_t thread = 0;
    AccessKind kind = AccessKind::Read;
  };
  // Of the reads since the write, and of atomic accesses, which do not race with each other: the last, and
  // the last before it by another thread of its warp, by another warp of its block and by another block.
  struct Cell {
    Access write, last, other_thread, other_warp, other_block;
  };
  struct Word {
    Cell whole;
    std::unique_ptr<std::array<Cell, 4>> bytes;  // replaces `whole` after the first access of a part
  };
  static constexpr size_t kPageWords = 256;
  using Page = std::array<Word, kPageWords>;

  struct Segment {
    unsigned block, warp, block_barriers;
  };

  // Segments by warp, and by phase barrier behind the warps: those up to a number happened before.
  using Before = std::vector<uint32_t>;
  static constexpr size_t kMostBarriers = 32;
  struct PhaseBarrier {
    Before arrived, ended;  // what is before arrivals so far, and before ends of phases
  };

  void touch_range(uintptr_t begin, size_t bytes, const Access& now);
  Word& word_at(uintptr_t address);
  size_t warps() const { return segment_of_warp_.size(); }
  uint32_t last_segment() const { return first_segment_ + static_cast<uint32_t>(segments_.size()) - 1; }
  Before& before(unsigned thread);
  uint32_t segment();
  bool is_shared(uintptr_t address) const;
  bool is_current(const Access& access) const { return access.segment >= first_segment_; }
  const Segment& segment_of(const Access& access) const { return segments_[access.segment - first_segment_]; }
  bool is_ordered(const Access& before, const Access& now, bool shared) const;
  void touch(Cell& cell, uintptr_t address, const Access& now);
  void remember_read(Cell& cell, const Access& now) const;
  void check(const Access& before, const Access& now, uintptr_t address);
  RaceAccess public_form(const Access& access) const;

  bool checking_ = false;
  const char* kernel_ = "";
  unsigned block_ = 0, thread_ = 0, block_barriers_ = 0;
  uintptr_t stack_ = 0;
  size_t stack_bytes_ = 0;
  uint32_t first_segment_ = 1;
  std::vector<Segment> segments_;          // this launch only; the first is first_segment_
  std::vector<uint32_t> segment_of_warp_;  // 0: the next access begins one
  std::vector<Before> before_;             // [thread]; empty while no barrier needs it
  std::vector<PhaseBarrier> barriers_;
  std::vector<std::pair<uintptr_t, uintptr_t>> shared_;  // the ranges of this thread's __shared__ variables
  std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages_;
  struct Recent {
    uintptr_t number = 0;
    Page* page = nullptr;
  };
  std::array<Recent, 64> recent_{};             // of pages_, by the low bits of their number
  std::set<std::pair<int32_t, int32_t>> seen_;  // pairs of instructions
  std::vector<Race> races_;
};

}  // namespace trifold::cuda::emulation
