// StreamSamples: a streamed corpus as an endless list of samples, made just in time by a thread of its own.
//
// Reading sample i is a pure function, as every source's: sample i is the same whoever asks, in whatever
// order. It is quick for a reader that goes on from where others are: the thread makes the block behind the
// one that is being read, and the last blocks stay, kMemory bytes of them, for readers that lag. A sample
// before these is made again.
//
// A bookmark says where the block of a sample begins; a run that goes on opens it there and need not make
// what was consumed before. Without one the result is the same, after a longer wait: `read` gives up after
// ten minutes, with a Failure that says where the stream is.
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

#include "data/samples.h"
#include "data/token_blocks.h"

namespace trifold {

class StreamSamples : public Samples {
 public:
  // BadInput for mistakes that a first document shows; later ones come out of `read`.
  explicit StreamSamples(const StreamOptions& options, size_t memory = kMemory);
  ~StreamSamples() override;
  StreamSamples(const StreamSamples&) = delete;
  StreamSamples& operator=(const StreamSamples&) = delete;

  static constexpr size_t kMemory = size_t{1} << 26;  // bytes of tokens that are kept
  static constexpr int64_t kEndless = int64_t{1} << 40;

  int64_t count() const override { return kEndless; }
  void read(int64_t index, std::span<int32_t> out) const override;
  bool make_ready(int64_t index, std::chrono::milliseconds patience) const override;
  std::string bookmark(int64_t index) const override;
  // BadInput where the stream is not the bookmark's (data/stream_bookmark.h).
  void open_at(const std::string& bookmark) const override;

 private:
  // All of this is behind the const functions: what is remembered changes, the samples do not.
  class Maker;
  std::unique_ptr<Maker> maker_;
};

}  // namespace trifold
