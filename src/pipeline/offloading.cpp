#include "pipeline/offloading.h"

#include <sys/mman.h>

#include <algorithm>

#include "core/error.h"
#include "core/flight/recorded_copy.h"

namespace trifold {

namespace {

// The first byte of an arena, which begins at a page.
std::byte* begin_of(Arena& memory) {
  const Arena::Mark mark = memory.mark();
  memory.reset();
  auto* begin = static_cast<std::byte*>(memory.take(DType::U8, {0}).data);
  memory.restore(mark);
  return begin;
}

// Releases the pages of [begin, begin + bytes) to the system.
void release_pages(std::byte* begin, size_t bytes) {
  if (bytes > 0) madvise(begin, bytes, MADV_DONTNEED);
}

}  // namespace

Offloading::Offloading(const std::string& folder, size_t file_bytes, size_t limit, Stream& transfers)
    : file_(std::make_unique<FileMemory>(Offloading::folder(folder), file_bytes)),
      transfers_(&transfers),
      limit_(limit) {}

Offloading::Offloading(const OpTable& ops, size_t host_bytes, size_t buffer_bytes, int buffers,
                       Stream& transfers)
    : ops_(&ops),
      host_(Buffer::shared(host_bytes, ops.device)),
      buffer_bytes_(buffer_bytes),
      transfers_(&transfers),
      limit_(static_cast<size_t>(buffers) * buffer_bytes) {
  for (int i = 0; i < buffers; ++i)
    buffers_.push_back(std::make_unique<KeptBuffer>(Arena(buffer_bytes, ops.device)));
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
  check(!moves() || now_ <= limit_, "{} bytes of off-loadable activations are in memory, but {} were planned",
        now_, limit_);
}

void Offloading::remove(size_t bytes) {
  now_ -= bytes;
  --blocks_;
}

// Takes the buffer that has been free longest, whose last use is likely to be complete.
KeptBuffer& Offloading::take_buffer() {
  const auto free =
      std::find_if(buffers_.begin(), buffers_.end(), [](const auto& buffer) { return !buffer->taken; });
  check(free != buffers_.end(), "more off-loadable activations are in memory than the {} planned",
        buffers_.size());
  std::rotate(free, free + 1, buffers_.end());
  KeptBuffer& buffer = *buffers_.back();
  buffer.taken = true;
  return buffer;
}

Tensor Offloading::on_host(const KeptBlock& kept_block) const {
  return {host_.data() + kept_block.offset, DType::U8, {static_cast<int64_t>(kept_block.bytes)}};
}

// Ends the off-loading of a kept block: its move is complete, or will be before the next move begins.
void Offloading::settle() {
  if (offloading_ == nullptr) return;
  offloading_->state = KeptBlock::State::Offloaded;
  remove(offloading_->bytes);
  if (offloading_->buffer != nullptr) {
    offloading_->buffer->spare = offloading_->moved;
    offloading_->buffer->taken = false;
  }
  offloading_ = nullptr;
}

void Offloading::begin(KeptBlock& kept_block, Stream& compute) {
  if (ops_ != nullptr) {
    kept_block.buffer = &take_buffer();
    compute.wait(kept_block.buffer->spare);
  }
  kept_block.memory().reset();
}

void Offloading::filled(KeptBlock& kept_block) {
  kept_block.bytes = kept_block.memory().used();
  kept_block.state = KeptBlock::State::InMemory;
  add(kept_block.bytes);
}

Moved Offloading::offload(KeptBlock& kept_block, Stream& compute) {
  check(kept_block.state == KeptBlock::State::InMemory,
        "the activations that it off-loads are not in memory");
  if (offloading_ != nullptr) compute.wait(offloading_->moved);
  settle();
  offloading_ = &kept_block;
  kept_block.state = KeptBlock::State::Offloading;
  if (!moves()) return {};
  transfers_->wait(compute.record());
  std::byte* from = begin_of(kept_block.memory());
  Moved moved;
  if (ops_ != nullptr) {
    const RecordedCopy recorded("offload", kept_block.bytes, *transfers_);
    const Tensor to = on_host(kept_block);
    ops_->copy(*transfers_, to, {from, to.dtype, to.shape});
    moved = {from, static_cast<std::byte*>(to.data), kept_block.bytes};
  } else {
    const RecordedCopy recorded("offload", kept_block.bytes, *transfers_);
    transfers_->run([file = file_.get(), from, offset = kept_block.offset, bytes = kept_block.bytes] {
      file->write(from, offset, bytes);
      release_pages(from, bytes);
    });
  }
  kept_block.moved = transfers_->record();
  return moved;
}

// Moves are in order, so a kept block that is being off-loaded has left memory before this move begins.
Moved Offloading::fetch(KeptBlock& kept_block) {
  settle();
  check(kept_block.state == KeptBlock::State::Offloaded,
        "the activations that it fetches are not off-loaded");
  kept_block.state = KeptBlock::State::Fetching;
  add(kept_block.bytes);
  if (!moves()) return {};
  Moved moved;
  if (ops_ != nullptr) {
    kept_block.buffer = &take_buffer();
    transfers_->wait(kept_block.buffer->spare);
    const RecordedCopy recorded("fetch", kept_block.bytes, *transfers_);
    std::byte* to = begin_of(kept_block.memory());
    const Tensor from = on_host(kept_block);
    ops_->copy(*transfers_, {to, from.dtype, from.shape}, from);
    moved = {static_cast<std::byte*>(from.data), to, kept_block.bytes};
  } else {
    const RecordedCopy recorded("fetch", kept_block.bytes, *transfers_);
    transfers_->run([file = file_.get(), to = begin_of(kept_block.memory()), offset = kept_block.offset,
                     bytes = kept_block.bytes] { file->read(to, offset, bytes); });
  }
  kept_block.moved = transfers_->record();
  return moved;
}

void Offloading::await(KeptBlock& kept_block, Stream& compute) {
  if (kept_block.state == KeptBlock::State::InMemory) return;
  check(kept_block.state == KeptBlock::State::Fetching, "activations that it reads are off-loaded");
  compute.wait(kept_block.moved);
  kept_block.state = KeptBlock::State::InMemory;
}

void Offloading::release(KeptBlock& kept_block, Stream& compute) {
  if (kept_block.state == KeptBlock::State::Empty) return;
  check(kept_block.state == KeptBlock::State::InMemory,
        "activations that are not in memory cannot be released");
  kept_block.state = KeptBlock::State::Empty;
  remove(kept_block.bytes);
  if (kept_block.buffer != nullptr) {
    kept_block.buffer->spare = compute.record();
    kept_block.buffer->taken = false;
  } else if (moves()) {
    compute.run(
        [begin = begin_of(kept_block.memory()), bytes = kept_block.bytes] { release_pages(begin, bytes); });
  }
}

}  // namespace trifold
