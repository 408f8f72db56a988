#include "data/stream_pass.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "core/error.h"

namespace trifold {

StreamPass::StreamPass(const StreamOptions& options, int64_t most) : options_(options), most_(most) {
  options_.one_pass = true;
  blocks_ = std::make_unique<TokenBlocks>(options_);
}

void StreamPass::make() const {
  const std::string path =
      (std::filesystem::temp_directory_path() / fmt::format("trifold-{}-{}", getpid(), fmt::ptr(this)))
          .string();
  auto file = std::make_unique<RawFile>(path, RawFile::Mode::Create);
  std::filesystem::remove(path);  // it stays as long as it is open
  const std::atomic<bool> stop{false};
  std::vector<int32_t> sample(static_cast<size_t>(options_.seq_length) + 1);
  int64_t count = 0;
  while (count < most_ && !blocks_->epoch_ended()) {
    const std::unique_ptr<TokenBlock> block = blocks_->next(stop);
    for (int64_t i = block->first_sample(); i < std::min(block->end_sample(), most_); ++i, ++count) {
      block->read(i, sample);
      file->write_all(std::span<const int32_t>(sample), i * std::ssize(sample));
    }
  }
  if (count == 0)
    bad_input(
        "{}: the {} part of the streamed text has fewer tokens than one sample needs, {}; change --split or "
        "give more text",
        options_.files->files().front().path, name_of(options_.split), sample.size());
  file_ = std::move(file);
  made_ = count;
  blocks_.reset();
}

int64_t StreamPass::made() const {
  const std::lock_guard lock(mutex_);
  if (!file_) make();
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
