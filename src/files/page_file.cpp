#include "files/page_file.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace trifold {

namespace {

constexpr size_t kSubmitted = 32;  // transfers that are submitted together

// Calls move(bytes done) until all bytes are transferred.
template <class Move>
void move_pages(const char* what, int64_t page, size_t bytes, Move move) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t moved = move(done);
    if (moved < 0 && errno == EINTR) continue;
    check(moved > 0, "{} {} bytes at page {} of a file that serves as memory failed ({})", what, bytes, page,
          moved < 0 ? std::strerror(errno) : "the file is too short");
    done += static_cast<size_t>(moved);
  }
}

}  // namespace

PageFile::PageFile(const MemoryFolder& folder, int64_t pages)
    : pages_(pages), file_(make_memory_file(folder, static_cast<size_t>(pages) * kPage)) {
  // Refused if there is only a page cache, or if pages are too small to be transferred directly; pages then go through
  // the cache.
  const int flags = fcntl(file_, F_GETFL);
  const PageBuffer page(kPage);
  if (fcntl(file_, F_SETFL, flags | O_DIRECT) == 0 && pread(file_, page.data(), kPage, 0) < 0 &&
      errno == EINVAL)
    fcntl(file_, F_SETFL, flags);
}

PageFile::~PageFile() { close(file_); }

void PageFile::read(int64_t page, int64_t count, std::byte* to) const {
  const size_t bytes = static_cast<size_t>(count) * kPage;
  const off_t begin = static_cast<off_t>(page) * static_cast<off_t>(kPage);
  move_pages("reading", page, bytes, [&](size_t done) {
    return pread(file_, to + done, bytes - done, begin + static_cast<off_t>(done));
  });
}

void PageFile::write(int64_t page, int64_t count, const std::byte* from) const {
  const size_t bytes = static_cast<size_t>(count) * kPage;
  const off_t begin = static_cast<off_t>(page) * static_cast<off_t>(kPage);
  move_pages("writing", page, bytes, [&](size_t done) {
    return pwrite(file_, from + done, bytes - done, begin + static_cast<off_t>(done));
  });
}

std::byte* PageBuffer::data() const {
  const auto address = reinterpret_cast<uintptr_t>(memory_.data());
  return memory_.data() + (PageFile::kPage - address % PageFile::kPage) % PageFile::kPage;
}

size_t PageQueue::memory(int64_t most_pages) {
  return PageBuffer::memory(static_cast<size_t>(kDepth * most_pages) * PageFile::kPage);
}

PageQueue::PageQueue(int64_t most_pages)
    : slot_bytes_(static_cast<size_t>(most_pages) * PageFile::kPage),
      memory_(kDepth * slot_bytes_),
      transfers_(kDepth),
      blocks_(kDepth),
      events_(kDepth) {
  for (int slot = kDepth - 1; slot >= 0; --slot) free_.push_back(slot);
  waiting_.reserve(kDepth);
  if (syscall(SYS_io_setup, kDepth, &context_) != 0) context_ = 0;
}

// Waits for transfers in flight.
PageQueue::~PageQueue() {
  if (context_ != 0) syscall(SYS_io_destroy, context_);
}

std::byte* PageQueue::buffer(int slot) const {
  return memory_.data() + static_cast<size_t>(slot) * slot_bytes_;
}

int PageQueue::free_slot() {
  if (free_.empty()) {
    submit();
    reap(1);
  }
  const int slot = free_.back();
  free_.pop_back();
  return slot;
}

void PageQueue::read(const PageFile& file, int64_t page, int64_t count, Taker& taker, int64_t tag) {
  begin(free_slot(), {&file, page, count, &taker, tag});
}

void PageQueue::write(const PageFile& file, int64_t page, int64_t count, const std::byte* from) {
  const int slot = free_slot();
  std::memcpy(buffer(slot), from, static_cast<size_t>(count) * PageFile::kPage);
  begin(slot, {&file, page, count, nullptr, 0});
}

void PageQueue::begin(int slot, const Transfer& transfer) {
  const auto at = static_cast<size_t>(slot);
  const size_t bytes = static_cast<size_t>(transfer.count) * PageFile::kPage;
  check(bytes <= slot_bytes_, "a transfer of {} bytes where {} are possible", bytes, slot_bytes_);
  transfers_[at] = transfer;
  (transfer.taker == nullptr ? counts_.written : counts_.read) += transfer.count;
  if (context_ == 0) {
    move(slot);
    return end(slot, static_cast<int64_t>(bytes));
  }
  iocb& block = blocks_[at];
  block = {};
  block.aio_data = at;
  block.aio_lio_opcode = transfer.taker == nullptr ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD;
  block.aio_fildes = static_cast<uint32_t>(transfer.file->number());
  block.aio_buf = reinterpret_cast<uintptr_t>(buffer(slot));
  block.aio_nbytes = bytes;
  block.aio_offset = transfer.page * static_cast<int64_t>(PageFile::kPage);
  waiting_.push_back(&block);
  if (waiting_.size() == kSubmitted) submit();
}

void PageQueue::submit() {
  for (size_t done = 0; done < waiting_.size();) {
    const auto count = static_cast<long>(waiting_.size() - done);
    const long taken = syscall(SYS_io_submit, context_, count, waiting_.data() + done);
    if (taken > 0) {
      in_flight_ += static_cast<int>(taken);
      done += static_cast<size_t>(taken);
    } else if (taken < 0 && errno == EINTR) {
      continue;
    } else if (taken < 0 && errno == EAGAIN && in_flight_ > 0) {
      reap(1);
    } else {
      // Not supported by this file: transferred alone.
      const auto slot = static_cast<int>(waiting_[done++]->aio_data);
      move(slot);
      end(slot, static_cast<int64_t>(static_cast<size_t>(transfers_[static_cast<size_t>(slot)].count) *
                                     PageFile::kPage));
    }
  }
  waiting_.clear();
}

void PageQueue::reap(int least) {
  if (in_flight_ == 0) return;
  const long count =
      syscall(SYS_io_getevents, context_, std::min(least, in_flight_), kDepth, events_.data(), nullptr);
  if (count < 0 && errno == EINTR) return reap(least);
  check(count > 0, "waiting for pages of a file that serves as memory failed ({})", std::strerror(errno));
  in_flight_ -= static_cast<int>(count);
  for (long i = 0; i < count; ++i) {
    const io_event& event = events_[static_cast<size_t>(i)];
    end(static_cast<int>(event.data), event.res);
  }
}

// Makes the transfer synchronously.
void PageQueue::move(int slot) const {
  const Transfer& transfer = transfers_[static_cast<size_t>(slot)];
  if (transfer.taker == nullptr)
    transfer.file->write(transfer.page, transfer.count, buffer(slot));
  else
    transfer.file->read(transfer.page, transfer.count, buffer(slot));
}

// `moved`: bytes, or a negative error code. A partial transfer is repeated synchronously, which reports the error.
void PageQueue::end(int slot, int64_t moved) {
  const Transfer& transfer = transfers_[static_cast<size_t>(slot)];
  if (moved != transfer.count * static_cast<int64_t>(PageFile::kPage)) move(slot);
  if (transfer.taker != nullptr) transfer.taker->take(transfer.tag, buffer(slot));
  free_.push_back(slot);
}

void PageQueue::finish() {
  submit();
  while (in_flight_ > 0) reap(in_flight_);
}

}  // namespace trifold
