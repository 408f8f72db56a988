#include "pipeline/offloading.h"

#include <sys/mman.h>

#include <algorithm>

#include "core/error.h"

namespace trifold {

namespace {

// The memory of an arena, which begins at a page.
std::byte* begin_of(Arena& memory) {
  const Arena::Mark mark = memory.mark();
  memory.reset();
  auto* begin = static_cast<std::byte*>(memory.take(DType::U8, {0}).data);
  memory.restore(mark);
  return begin;
}

// Gives the pages of [begin, begin + bytes) back to the system.
void give_back(std::byte* begin, size_t bytes) {
  if (bytes > 0) madvise(begin, bytes, MADV_DONTNEED);
}

}  // namespace

Offloading::Offloading(const std::string& folder, size_t file_bytes, size_t limit, Stream& transfers)
    : file_(std::make_unique<FileMemory>(Offloading::folder(folder), file_bytes)),
      transfers_(&transfers),
      limit_(limit) {}

Offloading::Offloading(const OpTable& ops, size_t host_bytes, size_t place_bytes, int places,
                       Stream& transfers)
    : ops_(&ops),
      host_(Buffer::shared(host_bytes, ops.device)),
      place_bytes_(place_bytes),
      transfers_(&transfers),
      limit_(static_cast<size_t>(places) * place_bytes) {
  for (int i = 0; i < places; ++i)
    places_.push_back(std::make_unique<KeptPlace>(Arena(place_bytes, ops.device)));
}

Offloading::~Offloading() {
  try {
    if (moves()) transfers_->synchronize();
  } catch (...) {  // rethrown by the next wait for the stream
  }
}

MemoryFolder Offloading::folder(const std::string& path) {
  return {path, "--cpu-offloading-folder", "off-load fewer layers (--cpu-offloading-num-layers)"};
}

void Offloading::add(size_t bytes) {
  now_ += bytes;
  ++blocks_;
  peak_ = std::max(peak_, now_);
  most_blocks_ = std::max(most_blocks_, blocks_);
  check(!moves() || now_ <= limit_,
        "{} bytes of activations that may leave are in memory, and {} were planned", now_, limit_);
}

void Offloading::remove(size_t bytes) {
  now_ -= bytes;
  --blocks_;
}

// The one that was left first, which is likely to be spare.
KeptPlace& Offloading::take_place() {
  const auto free =
      std::find_if(places_.begin(), places_.end(), [](const auto& place) { return !place->taken; });
  check(free != places_.end(), "more activations that may leave are in memory than the {} planned",
        places_.size());
  std::rotate(free, free + 1, places_.end());
  KeptPlace& place = *places_.back();
  place.taken = true;
  return place;
}

Tensor Offloading::on_host(const KeptBlock& kept_block) const {
  return {host_.data() + kept_block.place, DType::U8, {static_cast<int64_t>(kept_block.bytes)}};
}

// The kept block that is leaving has left, or will have before anything else is moved.
void Offloading::settle() {
  if (leaving_ == nullptr) return;
  leaving_->state = KeptBlock::State::Away;
  remove(leaving_->bytes);
  if (leaving_->where != nullptr) {
    leaving_->where->spare = leaving_->moved;
    leaving_->where->taken = false;
  }
  leaving_ = nullptr;
}

void Offloading::begin(KeptBlock& kept_block, Stream& compute) {
  if (ops_ != nullptr) {
    kept_block.where = &take_place();
    compute.wait(kept_block.where->spare);
  }
  kept_block.memory().reset();
}

void Offloading::filled(KeptBlock& kept_block) {
  kept_block.bytes = kept_block.memory().used();
  kept_block.state = KeptBlock::State::Here;
  add(kept_block.bytes);
}

Moved Offloading::offload(KeptBlock& kept_block, Stream& compute) {
  check(kept_block.state == KeptBlock::State::Here, "what it off-loads is not in memory");
  if (leaving_ != nullptr) compute.wait(leaving_->moved);
  settle();
  leaving_ = &kept_block;
  kept_block.state = KeptBlock::State::Leaving;
  if (!moves()) return {};
  transfers_->wait(compute.record());
  std::byte* from = begin_of(kept_block.memory());
  Moved moved;
  if (ops_ != nullptr) {
    const Tensor to = on_host(kept_block);
    ops_->copy(*transfers_, to, {from, to.dtype, to.shape});
    moved = {from, static_cast<std::byte*>(to.data), kept_block.bytes};
  } else {
    transfers_->run([file = file_.get(), from, place = kept_block.place, bytes = kept_block.bytes] {
      file->write(from, place, bytes);
      give_back(from, bytes);
    });
  }
  kept_block.moved = transfers_->record();
  return moved;
}

// Moves are in order, so what is leaving has left before this begins.
Moved Offloading::fetch(KeptBlock& kept_block) {
  settle();
  check(kept_block.state == KeptBlock::State::Away, "what it fetches is not off-loaded");
  kept_block.state = KeptBlock::State::Coming;
  add(kept_block.bytes);
  if (!moves()) return {};
  Moved moved;
  if (ops_ != nullptr) {
    kept_block.where = &take_place();
    transfers_->wait(kept_block.where->spare);
    std::byte* to = begin_of(kept_block.memory());
    const Tensor from = on_host(kept_block);
    ops_->copy(*transfers_, {to, from.dtype, from.shape}, from);
    moved = {static_cast<std::byte*>(from.data), to, kept_block.bytes};
  } else {
    transfers_->run([file = file_.get(), to = begin_of(kept_block.memory()), place = kept_block.place,
                     bytes = kept_block.bytes] { file->read(to, place, bytes); });
  }
  kept_block.moved = transfers_->record();
  return moved;
}

void Offloading::await(KeptBlock& kept_block, Stream& compute) {
  if (kept_block.state == KeptBlock::State::Here) return;
  check(kept_block.state == KeptBlock::State::Coming, "activations that it reads are off-loaded");
  compute.wait(kept_block.moved);
  kept_block.state = KeptBlock::State::Here;
}

void Offloading::release(KeptBlock& kept_block, Stream& compute) {
  if (kept_block.state == KeptBlock::State::Empty) return;
  check(kept_block.state == KeptBlock::State::Here, "activations that are not in memory cannot be released");
  kept_block.state = KeptBlock::State::Empty;
  remove(kept_block.bytes);
  if (kept_block.where != nullptr) {
    kept_block.where->spare = compute.record();
    kept_block.where->taken = false;
  } else if (moves()) {
    compute.run(
        [begin = begin_of(kept_block.memory()), bytes = kept_block.bytes] { give_back(begin, bytes); });
  }
}

}  // namespace trifold
