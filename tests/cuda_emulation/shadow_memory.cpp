#include "cuda_emulation/shadow_memory.h"

#include <link.h>

#include <algorithm>
#include <bit>

#include "core/error.h"
#include "cuda_emulation/emulation.cuh"

namespace trifold::cuda::emulation {

namespace {

constexpr unsigned kWarp = 32;
constexpr size_t kMostPages = 4096;  // 300 MB of shadow memory
constexpr size_t kMostRaces = 20;

// Programs are smaller than 2 GiB: code addresses are stored as offsets from here.
const char* anchor() { return reinterpret_cast<const char*>(&launch); }

// Lists the thread-local variables of the calling thread, which include emulated __shared__ variables.
int add_thread_locals(dl_phdr_info* info, size_t /*bytes*/, void* list) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type != PT_TLS || info->dlpi_tls_data == nullptr) continue;
    const auto begin = reinterpret_cast<uintptr_t>(info->dlpi_tls_data);
    static_cast<std::vector<std::pair<uintptr_t, uintptr_t>>*>(list)->emplace_back(begin,
                                                                                   begin + header.p_memsz);
  }
  return 0;
}

}  // namespace

thread_local ShadowMemory* ShadowMemory::active = nullptr;

ShadowMemory::ShadowMemory() { dl_iterate_phdr(add_thread_locals, &shared_); }

void ShadowMemory::begin_launch(const char* kernel) {
  kernel_ = kernel;
  first_segment_ += static_cast<uint32_t>(segments_.size());
  segments_.clear();
  if (pages_.size() > kMostPages || first_segment_ > uint32_t{1} << 31) {
    pages_.clear();
    recent_.fill({});
    first_segment_ = 1;
  }
  checking_ = true;
}

void ShadowMemory::begin_block(unsigned block, unsigned warps) {
  block_ = block;
  block_barriers_ = 0;
  segment_of_warp_.assign(warps, 0);
  before_.clear();
  barriers_.clear();
}

void ShadowMemory::block_barrier() {
  ++block_barriers_;
  segment_of_warp_.assign(segment_of_warp_.size(), 0);
}

namespace {

void join(std::vector<uint32_t>& to, const std::vector<uint32_t>& from) {
  for (size_t i = 0; i < to.size(); ++i) to[i] = std::max(to[i], from[i]);
}

}  // namespace

ShadowMemory::Before& ShadowMemory::before(unsigned thread) {
  if (before_.empty()) before_.assign(warps() * kWarp, Before(warps() + kMostBarriers));
  return before_[thread];
}

void ShadowMemory::warp_barrier(unsigned warp) {
  segment_of_warp_[warp] = 0;
  if (before_.empty()) return;
  Before all(warps() + kMostBarriers);
  for (unsigned t = warp * kWarp; t < (warp + 1) * kWarp; ++t) join(all, before(t));
  for (unsigned t = warp * kWarp; t < (warp + 1) * kWarp; ++t) before(t) = all;
}

void ShadowMemory::threads_barrier(const std::vector<unsigned>& threads) {
  Before all(warps() + kMostBarriers);
  for (const unsigned t : threads) {
    join(all, before(t));
    all[t / kWarp] = last_segment();
    segment_of_warp_[t / kWarp] = 0;
  }
  for (const unsigned t : threads) before(t) = all;
}

void ShadowMemory::add_barrier() {
  trifold::check(barriers_.size() < kMostBarriers, "a race check takes {} phase barriers", kMostBarriers);
  const Before none(warps() + kMostBarriers);
  barriers_.push_back({none, none});
}

// What the thread did in its warp's current segment is not released: other lanes' accesses of that segment are not
// ordered before this one.
void ShadowMemory::arrive(unsigned barrier) {
  Before& arrived = barriers_[barrier].arrived;
  join(arrived, before(thread_));
  const unsigned warp = thread_ / kWarp;
  const uint32_t current = segment_of_warp_[warp];
  arrived[warp] = std::max(arrived[warp], current == 0 ? last_segment() : current - 1);
}

void ShadowMemory::acquire(unsigned barrier) { join(before(thread_), barriers_[barrier].ended); }
void ShadowMemory::end_phase(unsigned barrier) { barriers_[barrier].ended = barriers_[barrier].arrived; }

uint32_t ShadowMemory::write_of_engine(const void* address, size_t bytes, unsigned barrier,
                                       const void* code) {
  if (!checking_) return 0;
  segments_.push_back({block_, static_cast<unsigned>(warps()) + barrier, block_barriers_});
  touch_range(reinterpret_cast<uintptr_t>(address), bytes,
              {last_segment(), static_cast<int32_t>(static_cast<const char*>(code) - anchor()),
               static_cast<uint16_t>(thread_), AccessKind::Write});
  return last_segment();
}

void ShadowMemory::engine_arrives(unsigned barrier, uint32_t segment) {
  uint32_t& arrived = barriers_[barrier].arrived[warps() + barrier];
  arrived = std::max(arrived, segment);
}

void ShadowMemory::on_stack(const void* begin, size_t bytes) {
  stack_ = reinterpret_cast<uintptr_t>(begin);
  stack_bytes_ = bytes;
}

void ShadowMemory::access(const void* address, size_t bytes, AccessKind kind, const void* code) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  if (!checking_ || begin - stack_ < stack_bytes_ ||
      begin - reinterpret_cast<uintptr_t>(&place) < sizeof(place))
    return;
  const Access now{segment(), static_cast<int32_t>(static_cast<const char*>(code) - anchor()),
                   static_cast<uint16_t>(thread_), kind};
  touch_range(begin, bytes, now);
}

void ShadowMemory::touch_range(uintptr_t begin, size_t bytes, const Access& now) {
  const uintptr_t end = begin + bytes;
  for (uintptr_t word = begin / 4 * 4; word < end; word += 4) {
    Word& shadow = word_at(word);
    if (!shadow.bytes && word >= begin && word + 4 <= end) {
      touch(shadow.whole, word, now);
      continue;
    }
    if (!shadow.bytes) {
      shadow.bytes = std::make_unique<std::array<Cell, 4>>();
      shadow.bytes->fill(shadow.whole);
    }
    for (uintptr_t byte = word; byte < word + 4; ++byte)
      if (byte >= begin && byte < end) touch((*shadow.bytes)[byte - word], byte, now);
  }
}

ShadowMemory::Word& ShadowMemory::word_at(uintptr_t address) {
  const uintptr_t number = address / 4 / kPageWords;
  Recent& recent = recent_[number % recent_.size()];
  if (recent.page == nullptr || recent.number != number) {
    std::unique_ptr<Page>& page = pages_[number];
    if (!page) page = std::make_unique<Page>();
    recent = {number, page.get()};
  }
  return (*recent.page)[address / 4 % kPageWords];
}

uint32_t ShadowMemory::segment() {
  const unsigned warp = thread_ / kWarp;
  uint32_t& number = segment_of_warp_[warp];
  if (number == 0) {
    number = first_segment_ + static_cast<uint32_t>(segments_.size());
    segments_.push_back({block_, warp, block_barriers_});
  }
  return number;
}

void ShadowMemory::expect_global(const void* address) {
  if (!checking_ || races_.size() >= kMostRaces || !is_shared(reinterpret_cast<uintptr_t>(address))) return;
  const RaceAccess access{AccessKind::Write, block_, thread_, __builtin_return_address(0)};
  races_.push_back({kernel_, true, address, access, access});
}

bool ShadowMemory::is_shared(uintptr_t address) const {
  for (const auto& [begin, end] : shared_)
    if (address >= begin && address < end) return true;
  return false;
}

bool ShadowMemory::is_ordered(const Access& before, const Access& now, bool shared) const {
  const Segment& a = segment_of(before);
  if (a.block != block_) return shared;
  // A copy by the hardware is only ordered by its phase barrier.
  if (a.warp < warps()) {
    if (before.thread == now.thread || a.block_barriers != block_barriers_) return true;
    // Two accesses of a warp are ordered unless they are in the same segment.
    const unsigned warp = now.thread / kWarp;
    if (a.warp == warp && before.segment != segment_of_warp_[warp]) return true;
  }
  return !before_.empty() && before.segment <= before_[now.thread][a.warp];
}

void ShadowMemory::touch(Cell& cell, uintptr_t address, const Access& now) {
  if (is_current(cell.write)) check(cell.write, now, address);
  if (is_current(cell.last))
    for (const Access* before : {&cell.last, &cell.other_thread, &cell.other_warp, &cell.other_block})
      if (before->kind != now.kind) check(*before, now, address);
  if (now.kind != AccessKind::Write) {
    remember_read(cell, now);
    return;
  }
  cell = Cell{};
  cell.write = now;
}

// A read that is dropped here is ordered before every later write that is ordered after the reads that are
// kept. While readers of two warps alternate between two barriers of the block, a read of either is kept, and
// any writer would race with one of them.
void ShadowMemory::remember_read(Cell& cell, const Access& now) const {
  if (is_current(cell.last)) {
    const Segment& a = segment_of(cell.last);
    const Segment& b = segment_of(now);
    if (a.block != b.block) {
      cell.other_block = cell.last;
    } else if (a.warp != b.warp) {
      cell.other_warp = cell.last;
    } else if (cell.last.thread != now.thread) {
      cell.other_thread = cell.last;
    }
  }
  cell.last = now;
}

void ShadowMemory::check(const Access& before, const Access& now, uintptr_t address) {
  if (!is_current(before) || (before.segment == now.segment && before.thread == now.thread)) return;
  const bool shared = is_shared(address);
  if (is_ordered(before, now, shared) || races_.size() >= kMostRaces) return;
  if (!seen_.emplace(before.code, now.code).second) return;
  races_.push_back(
      {kernel_, shared, std::bit_cast<const void*>(address), public_form(before), public_form(now)});
}

RaceAccess ShadowMemory::public_form(const Access& access) const {
  return {access.kind, segment_of(access).block, access.thread, anchor() + access.code};
}

// ---- RaceCheck ----

bool RaceCheck::is_available() {
#if defined(TRIFOLD_ACCESSES_ARE_SEEN)
  return true;
#else
  return false;
#endif
}

RaceCheck::RaceCheck() : memory_(std::make_unique<ShadowMemory>()) { ShadowMemory::active = memory_.get(); }
RaceCheck::~RaceCheck() { ShadowMemory::active = nullptr; }
const std::vector<Race>& RaceCheck::races() const { return memory_->races(); }

}  // namespace trifold::cuda::emulation
