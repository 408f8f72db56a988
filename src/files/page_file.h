// PageFile is a file of pages that serves as memory. Reads and writes bypass the system's page cache: its pages take no
// memory, neither of the process nor of its control group, and no step waits while the system writes dirty pages back.
//
// PageQueue keeps many such reads and writes in flight: a disk with a latency of 70 us per page delivers many times as
// many pages a second if they are all requested first. It uses Linux's asynchronous I/O, which needs no threads. If the
// system refuses that, or the file system supports only its page cache (tmpfs), pages are transferred one by one.
//
// As in FileMemory, the file has no name and its space is reserved.
#pragma once

#include <linux/aio_abi.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/tensor.h"
#include "files/file_memory.h"

namespace trifold {

class PageFile {
 public:
  static constexpr size_t kPage = 4096;

  // Initialised to zero. BadInput as in FileMemory.
  PageFile(const MemoryFolder& folder, int64_t pages);
  ~PageFile();
  PageFile(const PageFile&) = delete;
  PageFile& operator=(const PageFile&) = delete;

  // Transfer consecutive pages; `to` and `from` begin at a multiple of kPage. Callable from any thread; an Error if the
  // disk fails.
  void read(int64_t page, int64_t count, std::byte* to) const;
  void write(int64_t page, int64_t count, const std::byte* from) const;

  int64_t pages() const { return pages_; }
  int number() const { return file_; }

 private:
  int64_t pages_;
  int file_;
};

// Memory whose address is a multiple of PageFile::kPage.
class PageBuffer {
 public:
  PageBuffer() = default;
  explicit PageBuffer(size_t bytes) : memory_(bytes == 0 ? 0 : bytes + PageFile::kPage) {}
  // The memory that a buffer of `bytes` takes.
  static size_t memory(size_t bytes) { return bytes == 0 ? 0 : bytes + PageFile::kPage; }
  std::byte* data() const;

 private:
  Buffer memory_;
};

class PageQueue {
 public:
  // Receives pages that were read, on the thread that calls the queue.
  class Taker {
   public:
    virtual void take(int64_t tag, const std::byte* pages) = 0;

   protected:
    ~Taker() = default;
  };

  static constexpr int kDepth = 256;  // transfers in flight

  // A transfer has at most `most_pages` pages.
  explicit PageQueue(int64_t most_pages);
  static size_t memory(int64_t most_pages);
  ~PageQueue();
  PageQueue(const PageQueue&) = delete;
  PageQueue& operator=(const PageQueue&) = delete;

  // Transfers begin soon, in any order, and are complete after `finish`. `taker` receives pages before that and must
  // not call the queue. Pages to write are copied at once, and must not be read before `finish`.
  void read(const PageFile& file, int64_t page, int64_t count, Taker& taker, int64_t tag);
  void write(const PageFile& file, int64_t page, int64_t count, const std::byte* from);
  void finish();

  // Pages transferred so far.
  struct Counts {
    int64_t read = 0, written = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  struct Transfer {
    const PageFile* file = nullptr;
    int64_t page = 0, count = 0;
    Taker* taker = nullptr;  // null: a write
    int64_t tag = 0;
  };

  int free_slot();
  void begin(int slot, const Transfer& transfer);
  void submit();
  void reap(int least);
  void end(int slot, int64_t moved);
  void move(int slot) const;
  std::byte* buffer(int slot) const;

  size_t slot_bytes_;
  PageBuffer memory_;
  std::vector<Transfer> transfers_;
  std::vector<iocb> blocks_;
  std::vector<iocb*> waiting_;  // to be submitted
  std::vector<int> free_;
  std::vector<io_event> events_;
  int in_flight_ = 0;
  Counts counts_;
  aio_context_t context_ = 0;  // 0: transfers are made one by one
};

}  // namespace trifold
