#include "text/stream_pass.h"

#include <algorithm>
#include <limits>

#include "core/error.h"

namespace trifold {

namespace {

constexpr std::chrono::milliseconds kPoll{100};

}  // namespace

StreamPass::StreamPass(const StreamOptions& options, int64_t most, int64_t largest)
    : options_(options), most_(most), largest_(largest) {
  options_.one_pass = true;
  blocks_ = std::make_unique<TokenBlocks>(options_);
}

// Continues writing where the last call stopped; returns whether all samples are written.
bool StreamPass::write_samples(const std::optional<Clock::time_point>& until) const {
  const std::atomic<bool> stop{false};
  const int64_t fits = largest_ / ((options_.seq_length + 1) * static_cast<int64_t>(sizeof(int32_t)));
  std::vector<int32_t> sample(static_cast<size_t>(options_.seq_length) + 1);
  if (!file_) file_ = std::make_unique<RawFile>(RawFile::temporary());
  while (made_ < most_ && !blocks_->epoch_ended()) {
    if (until && Clock::now() >= *until) return false;
    const std::unique_ptr<TokenBlock> block = blocks_->next(stop);
    const int64_t end = std::min(block->end_sample(), most_);
    if (end > fits)
      bad_input(
          "{}: an evaluation of streamed text takes {} samples of {} tokens at most, and the {} part has "
          "more; give fewer --eval-iters, or a smaller share with --split",
          options_.files->files().front().path, fits, options_.seq_length, part_name(options_.split));
    for (int64_t i = block->first_sample(); i < end; ++i, ++made_) {
      block->read(i, sample);
      file_->write_all(std::span<const int32_t>(sample), i * std::ssize(sample));
    }
  }
  if (made_ == 0)
    bad_input(
        "{}: the {} part of the streamed text has fewer tokens than one sample needs, {}; "
        "change --split or give more text",
        options_.files->files().front().path, part_name(options_.split), sample.size());
  return true;
}

bool StreamPass::make(const std::optional<Clock::time_point>& until) const {
  try {
    if (!write_samples(until)) return false;
  } catch (...) {
    error_ = std::current_exception();
  }
  blocks_.reset();
  return true;
}

// Whether the samples are made. One thread makes them for all that wait; without `patience` the call waits until they
// are.
bool StreamPass::is_made(std::optional<std::chrono::milliseconds> patience) const {
  std::optional<Clock::time_point> until;
  if (patience) until = Clock::now() + *patience;
  std::unique_lock lock(mutex_);
  while (!is_made_ && !(until && Clock::now() >= *until)) {
    if (is_making_) {
      changed_.wait_for(lock, std::min(kPoll, patience.value_or(kPoll)));
      continue;
    }
    is_making_ = true;
    lock.unlock();
    const bool all = make(until);
    lock.lock();
    is_making_ = false;
    is_made_ = all;
    changed_.notify_all();
  }
  return is_made_;
}

int64_t StreamPass::made() const {
  is_made(std::nullopt);
  if (error_) rethrow_copy(error_);
  return made_;
}

bool StreamPass::make_ready(int64_t /*index*/, std::chrono::milliseconds patience) const {
  return is_made(patience);
}

int64_t StreamPass::count() const {
  return most_ < std::numeric_limits<int64_t>::max() && options_.files->bytes() > kCounted ? most_ : made();
}

void StreamPass::read(int64_t index, std::span<int32_t> out) const {
  const int64_t found = made();
  check(0 <= index && index < count() && std::ssize(out) == options_.seq_length + 1,
        "sample {} with {} tokens was asked for", index, out.size());
  file_->read_all(out, index % found * std::ssize(out));
}

}  // namespace trifold
