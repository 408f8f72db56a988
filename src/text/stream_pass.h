// StreamPass: the first samples of one pass over a streamed corpus, for evaluation, which reads them repeatedly. They
// are made once, when the first is needed, and kept in a temporary file (four bytes per token, at most kLargest bytes),
// so memory stays bounded.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>

#include "core/clock.h"
#include "files/raw_file.h"
#include "text/samples.h"
#include "text/token_blocks.h"

namespace trifold {

class StreamPass : public Samples {
 public:
  // The pass has at most `most` samples. Counting them means reading everything, so for a corpus larger than kCounted
  // bytes the count is assumed to be `most`, and a pass that ends earlier is repeated.
  static constexpr int64_t kCounted = int64_t{1} << 26;
  static constexpr int64_t kLargest = int64_t{1} << 30;

  // The file has `largest` bytes at most.
  StreamPass(const StreamOptions& options, int64_t most, int64_t largest = kLargest);

  // BadInput (also from `read`) for a pass of less than one sample or of more than kLargest bytes. Every call throws an
  // error in making the samples.
  int64_t count() const override;
  void read(int64_t index, std::span<int32_t> out) const override;
  bool make_ready(int64_t index, std::chrono::milliseconds patience) const override;

 private:
  bool is_made(std::optional<std::chrono::milliseconds> patience) const;
  int64_t made() const;
  bool make(const std::optional<Clock::time_point>& until) const;
  bool write_samples(const std::optional<Clock::time_point>& until) const;

  StreamOptions options_;
  int64_t most_;
  int64_t largest_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  // Whether a thread is making the samples. It alone uses the members below until it is done; then they are constant.
  mutable bool is_making_ = false;
  mutable bool is_made_ = false;                 // done, successfully or with an error
  mutable std::unique_ptr<TokenBlocks> blocks_;  // null once the samples are made
  mutable std::unique_ptr<RawFile> file_;        // seq_length + 1 tokens of four bytes for each sample
  mutable int64_t made_ = 0;
  mutable std::exception_ptr error_;
};

}  // namespace trifold
