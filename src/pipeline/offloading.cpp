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

Offloading::~Offloading() {
  try {
    if (file_ != nullptr) transfers_->synchronize();
  } catch (...) {  // rethrown by the next wait for the stream
  }
}

MemoryFolder Offloading::folder(const std::string& path) {
  return {path, "--cpu-offloading-folder", "off-load fewer layers (--cpu-offloading-num-layers)"};
}

void Offloading::add(size_t bytes) {
  now_ += bytes;
  peak_ = std::max(peak_, now_);
  check(file_ == nullptr || now_ <= limit_,
        "{} bytes of activations that may leave are in memory, and {} were planned", now_, limit_);
}

// The kept block that is leaving has left, or will have before anything else is moved.
void Offloading::settle() {
  if (leaving_ == nullptr) return;
  leaving_->state = KeptBlock::State::Away;
  now_ -= leaving_->bytes;
  leaving_ = nullptr;
}

void Offloading::filled(KeptBlock& kept_block) {
  kept_block.bytes = kept_block.memory.used();
  kept_block.state = KeptBlock::State::Here;
  add(kept_block.bytes);
}

void Offloading::offload(KeptBlock& kept_block, Stream& compute) {
  check(kept_block.state == KeptBlock::State::Here, "what it off-loads is not in memory");
  if (leaving_ != nullptr) compute.wait(leaving_->moved);
  settle();
  leaving_ = &kept_block;
  kept_block.state = KeptBlock::State::Leaving;
  if (file_ == nullptr) return;
  transfers_->wait(compute.record());
  transfers_->run([file = file_.get(), from = begin_of(kept_block.memory), place = kept_block.place,
                   bytes = kept_block.bytes] {
    file->write(from, place, bytes);
    give_back(from, bytes);
  });
  kept_block.moved = transfers_->record();
}

// Moves are in order, so what is leaving has left before this begins.
void Offloading::fetch(KeptBlock& kept_block) {
  settle();
  check(kept_block.state == KeptBlock::State::Away, "what it fetches is not off-loaded");
  kept_block.state = KeptBlock::State::Coming;
  add(kept_block.bytes);
  if (file_ == nullptr) return;
  transfers_->run([file = file_.get(), to = begin_of(kept_block.memory), place = kept_block.place,
                   bytes = kept_block.bytes] { file->read(to, place, bytes); });
  kept_block.moved = transfers_->record();
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
  now_ -= kept_block.bytes;
  if (file_ == nullptr) return;
  compute.run([begin = begin_of(kept_block.memory), bytes = kept_block.bytes] { give_back(begin, bytes); });
}

}  // namespace trifold
