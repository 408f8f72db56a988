// StreamSamples: a streamed corpus as an endless list of samples, prepared just in time by a background thread.
//
// Reading sample i is a pure function, as for every source: all readers get the same sample i, in any order. Reading is
// fast for readers that stay close to each other: the thread makes the block after the one that is being read, and
// keeps the latest blocks (kMemory bytes) for readers that lag. Earlier samples are recomputed.
//
// A bookmark records where the block of a sample begins; a resumed run starts there and skips the text consumed before.
// Without one the result is the same, after a longer wait: `read` times out after ten minutes, with a Failure that
// gives the position of the stream.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "text/samples.h"
#include "text/token_blocks.h"

namespace trifold {

class StreamSamples : public Samples {
 public:
  // BadInput for mistakes in the first document; `read` throws those in later ones.
  explicit StreamSamples(const StreamOptions& options, size_t memory = kMemory);
  ~StreamSamples() override;
  StreamSamples(const StreamSamples&) = delete;
  StreamSamples& operator=(const StreamSamples&) = delete;

  static constexpr size_t kMemory = size_t{1} << 26;  // bytes of tokens to keep
  static constexpr int64_t kEndless = int64_t{1} << 40;

  int64_t count() const override { return kEndless; }
  void read(int64_t index, std::span<int32_t> out) const override;
  bool make_ready(int64_t index, std::chrono::milliseconds patience) const override;
  std::string bookmark(int64_t index) const override;
  // BadInput if the bookmark belongs to another stream (text/stream_bookmark.h).
  void open_at(const std::string& bookmark) const override;

 private:
  // Modified by const functions: only caches change, never the samples.
  class Maker;
  std::unique_ptr<Maker> maker_;
};

}  // namespace trifold
