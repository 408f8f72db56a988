#include "text/stream_samples.h"

#include <algorithm>
#include <chrono>

#include "core/error.h"
#include "core/wait_clock.h"
#include "text/stream_bookmark.h"

namespace trifold {

class StreamSamples::Maker {
 public:
  Maker(const StreamOptions& options, size_t memory) : options_(options), memory_(memory), blocks_(options) {
    starts_.push_back({});
  }
  ~Maker() {
    stopping_ = true;
    {
      const std::lock_guard lock(mutex_);  // so the thread is either waiting or will see the flag
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  // The block that holds sample `index`; waits until it is made.
  std::shared_ptr<const TokenBlock> block_of(int64_t index) {
    std::unique_lock lock(mutex_);
    std::shared_ptr<const TokenBlock> found = wait_for_block(index, kPatience, lock);
    if (found) return found;
    if (error_) rethrow_copy(error_);
    fail(
        "{}: sample {} of the streamed text did not arrive within {} minutes; "
        "the stream is at sample {}. The "
        "storage may be slow, or the run continues from a checkpoint of other data, so that all earlier text "
        "must be tokenized again",
        options_.files->files().front().path, index, kPatience.count(), reached_);
  }

  bool make_ready(int64_t index, std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    return wait_for_block(index, patience, lock) != nullptr || error_;
  }

  std::string bookmark(int64_t index) {
    const std::lock_guard lock(mutex_);
    const BlockStart& start = start_before(index);
    return write_bookmark(start, options_);
  }

  void open_at(const std::string& bookmark) {
    BlockStart start = read_bookmark(bookmark, options_);
    const std::lock_guard lock(mutex_);
    remember(start);
  }

 private:
  static constexpr size_t kStarts = 64;
  static constexpr std::chrono::minutes kPatience{10};

  // The block that holds sample `index`; null if it is not made within `patience`, or an error occurred before.
  std::shared_ptr<const TokenBlock> wait_for_block(int64_t index, std::chrono::milliseconds patience,
                                                   std::unique_lock<std::mutex>& lock) {
    if (!thread_.joinable()) thread_ = std::thread([this] { make_blocks(); });
    if (index > latest_) {
      latest_ = index;
      changed_.notify_all();
    }
    std::shared_ptr<const TokenBlock> found = find(index);
    if (found) return found;
    const auto place = waiting_.insert(index);
    changed_.notify_all();
    wait_for(changed_, lock, patience, [&] { return (found = find(index)) != nullptr || error_; });
    waiting_.erase(place);
    changed_.notify_all();  // the thread continues, for others or ahead
    return found;
  }

  std::shared_ptr<const TokenBlock> find(int64_t index) const {
    for (const auto& block : made_)
      if (block->first_sample() <= index && index < block->end_sample()) return block;
    return nullptr;
  }

  // The known starts of blocks, in order; the very first is never removed.
  const BlockStart& start_before(int64_t index) const {
    auto found = starts_.begin();
    for (auto at = starts_.begin(); at != starts_.end() && at->first_sample <= index; ++at) found = at;
    return *found;
  }
  void remember(const BlockStart& start) {
    const auto after = std::find_if(starts_.begin(), starts_.end(),
                                    [&](const BlockStart& known) { return known.block >= start.block; });
    if (after == starts_.end() || after->block != start.block) starts_.insert(after, start);
    if (starts_.size() > kStarts) starts_.erase(starts_.begin() + 1);
  }

  // Whether there is something to make: a sample that a reader waits for, else the block after the one read last. A
  // reader that waits for an available block takes it first, since making another could evict it.
  bool work_left() const {
    if (error_) return false;
    if (!waiting_.empty())
      return std::none_of(waiting_.begin(), waiting_.end(),
                          [&](int64_t index) { return find(index) != nullptr; });
    return !made_.empty() && latest_ >= made_.back()->first_sample();
  }

  // Moves to another start if the first awaited sample is before the next block, or if a known start is closer to it.
  void choose_start() {
    if (waiting_.empty()) return;
    const int64_t index = *waiting_.begin();
    const BlockStart& start = start_before(index);
    if (index >= blocks_.start().first_sample && start.block <= blocks_.start().block) return;
    made_.clear();
    blocks_.go_to(start);
    latest_ = index;  // reading ahead restarts; readers further ahead raise it with their next sample
  }

  // Evicts the oldest blocks, but never the last two, one of which a reader may have waited for.
  void forget() {
    size_t bytes = 0;
    for (const auto& block : made_) bytes += block->bytes();
    while (made_.size() > 2 && bytes > memory_) {
      const auto& oldest = made_.front();
      bytes -= oldest->bytes();
      made_.pop_front();
    }
  }

  void make_blocks() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      if (!work_left()) {
        changed_.wait(lock, [&] { return stopping_ || work_left(); });
        continue;
      }
      choose_start();
      remember(blocks_.start());
      lock.unlock();
      std::shared_ptr<const TokenBlock> block;
      std::exception_ptr error;
      try {
        block = blocks_.next(stopping_);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      reached_ = blocks_.start().first_sample;
      error_ = error;
      if (block) remember(blocks_.start());  // so that work for a reader far ahead is not lost
      if (block && block->end_sample() > block->first_sample()) made_.push_back(std::move(block));
      forget();
      changed_.notify_all();
    }
  }

  StreamOptions options_;
  size_t memory_;
  TokenBlocks blocks_;  // used by the thread alone
  std::mutex mutex_;    // guards everything below
  std::condition_variable changed_;
  std::deque<std::shared_ptr<const TokenBlock>> made_;  // neighbours, in order
  std::deque<BlockStart> starts_;
  std::multiset<int64_t> waiting_;  // samples
  int64_t latest_ = -1;             // the largest sample requested since the last jump
  int64_t reached_ = 0;             // the first sample of the next block to make
  std::exception_ptr error_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

StreamSamples::StreamSamples(const StreamOptions& options, size_t memory)
    : maker_(std::make_unique<Maker>(options, memory)) {}
StreamSamples::~StreamSamples() = default;

void StreamSamples::read(int64_t index, std::span<int32_t> out) const {
  check(0 <= index && index < kEndless, "sample {} was asked for", index);
  maker_->block_of(index)->read(index, out);
}

bool StreamSamples::make_ready(int64_t index, std::chrono::milliseconds patience) const {
  return maker_->make_ready(index, patience);
}

std::string StreamSamples::bookmark(int64_t index) const { return maker_->bookmark(index); }

void StreamSamples::open_at(const std::string& bookmark) const { maker_->open_at(bookmark); }

}  // namespace trifold
