#include "data/stream_pass.h"

#include <algorithm>
#include <limits>

#include "core/error.h"

namespace trifold {

StreamPass::StreamPass(const StreamOptions& options, int64_t most, int64_t largest)
    : options_(options), most_(most), largest_(largest) {
  options_.one_pass = true;
  blocks_ = std::make_unique<TokenBlocks>(options_);
}

void StreamPass::write_samples(RawFile& file) const {
  const std::atomic<bool> stop{false};
  const int64_t fits = largest_ / ((options_.seq_length + 1) * static_cast<int64_t>(sizeof(int32_t)));
  std::vector<int32_t> sample(static_cast<size_t>(options_.seq_length) + 1);
  int64_t count = 0;
  while (count < most_ && !blocks_->epoch_ended()) {
    const std::unique_ptr<TokenBlock> block = blocks_->next(stop);
    const int64_t end = std::min(block->end_sample(), most_);
    if (end > fits)
      bad_input(
          "{}: an evaluation of streamed text takes {} samples of {} tokens at most, and the {} part has "
          "more; give fewer --eval-iters, or a smaller share with --split",
          options_.files->files().front().path, fits, options_.seq_length, name_of(options_.split));
    for (int64_t i = block->first_sample(); i < end; ++i, ++count) {
      block->read(i, sample);
      file.write_all(std::span<const int32_t>(sample), i * std::ssize(sample));
    }
  }
  if (count == 0)
    bad_input(
        "{}: the {} part of the streamed text has fewer tokens than one sample needs, {}; change --split or "
        "give more text",
        options_.files->files().front().path, name_of(options_.split), sample.size());
  made_ = count;
}

void StreamPass::make() const {
  try {
    auto file = std::make_unique<RawFile>(RawFile::temporary());
    write_samples(*file);
    file_ = std::move(file);
  } catch (...) {
    error_ = std::current_exception();
  }
  blocks_.reset();
}

int64_t StreamPass::made() const {
  const std::lock_guard lock(mutex_);
  if (!file_ && !error_) make();
  if (error_) rethrow_copy(error_);
  return made_;
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
