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

constexpr size_t kSubmitted = 32;  // transfers that are handed to the system together

// Calls move(bytes done) until all are.
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
  // Refused where there is nothing but a page cache, or where pages are too small to be moved alone; they are then moved
  // through the cache.
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
    : room_bytes_(static_cast<size_t>(most_pages) * PageFile::kPage),
      memory_(kDepth * room_bytes_),
      transfers_(kDepth),
      blocks_(kDepth),
      events_(kDepth) {
  for (int place = kDepth - 1; place >= 0; --place) free_.push_back(place);
  waiting_.reserve(kDepth);
  if (syscall(SYS_io_setup, kDepth, &context_) != 0) context_ = 0;
}

// Waits for what is in flight.
PageQueue::~PageQueue() {
  if (context_ != 0) syscall(SYS_io_destroy, context_);
}

std::byte* PageQueue::room(int place) const {
  return memory_.data() + static_cast<size_t>(place) * room_bytes_;
}

int PageQueue::free_place() {
  if (free_.empty()) {
    submit();
    reap(1);
  }
  const int place = free_.back();
  free_.pop_back();
  return place;
}

void PageQueue::read(const PageFile& file, int64_t page, int64_t count, Taker& taker, int64_t tag) {
  begin(free_place(), {&file, page, count, &taker, tag});
}

void PageQueue::write(const PageFile& file, int64_t page, int64_t count, const std::byte* from) {
  const int place = free_place();
  std::memcpy(room(place), from, static_cast<size_t>(count) * PageFile::kPage);
  begin(place, {&file, page, count, nullptr, 0});
}

void PageQueue::begin(int place, const Transfer& transfer) {
  const auto at = static_cast<size_t>(place);
  const size_t bytes = static_cast<size_t>(transfer.count) * PageFile::kPage;
  check(bytes <= room_bytes_, "a transfer of {} bytes where {} are possible", bytes, room_bytes_);
  transfers_[at] = transfer;
  (transfer.taker == nullptr ? counts_.written : counts_.read) += transfer.count;
  if (context_ == 0) {
    move(place);
    return end(place, static_cast<int64_t>(bytes));
  }
  iocb& block = blocks_[at];
  block = {};
  block.aio_data = at;
  block.aio_lio_opcode = transfer.taker == nullptr ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD;
  block.aio_fildes = static_cast<uint32_t>(transfer.file->number());
  block.aio_buf = reinterpret_cast<uintptr_t>(room(place));
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
      // Not possible for this file: moved one by one.
      const auto place = static_cast<int>(waiting_[done++]->aio_data);
      move(place);
      end(place, static_cast<int64_t>(static_cast<size_t>(transfers_[static_cast<size_t>(place)].count) *
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

// At once.
void PageQueue::move(int place) const {
  const Transfer& transfer = transfers_[static_cast<size_t>(place)];
  if (transfer.taker == nullptr)
    transfer.file->write(transfer.page, transfer.count, room(place));
  else
    transfer.file->read(transfer.page, transfer.count, room(place));
}

// `moved`: bytes, or an error's number below 0. What was moved in part is moved again, which reports the error.
void PageQueue::end(int place, int64_t moved) {
  const Transfer& transfer = transfers_[static_cast<size_t>(place)];
  if (moved != transfer.count * static_cast<int64_t>(PageFile::kPage)) move(place);
  if (transfer.taker != nullptr) transfer.taker->take(transfer.tag, room(place));
  free_.push_back(place);
}

void PageQueue::finish() {
  submit();
  while (in_flight_ > 0) reap(in_flight_);
}

}  // namespace trifold
