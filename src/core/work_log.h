// WorkLog: the work of a walk on Dry streams (computation, messages and waits), in order.
//
// Code that enqueues work runs unchanged on Dry streams that share a log. Operations of a counting table
// (ops/counting.h) and planned communicators (comm/planned_comm.h) log their work instead of doing it, and streams log
// their waits. The log determines the flops of a model, the bytes that a rank sends, and, with the rates of a machine,
// the time of a step, so layers need not state their costs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace trifold {

// One piece of work on one rank.
struct Work {
  enum class Kind : uint8_t {
    Movement,    // reads and writes memory
    Product,     // `batch` matrix products [rows, inner] x [inner, columns]
    Attention,   // attention of `batch` heads with head_dim `inner`: scores [rows, columns]
    Collective,  // a collective among `ranks` ranks, or messages between them
    // The stream waits for all work of stream `other` among the first `until` entries of the log.
    Wait
  };
  const char* name = "";  // operation or collective; a string with static lifetime
  Kind kind = Kind::Movement;
  DType dtype = DType::F32;  // dtype of the factors or of the sent data; otherwise of the result
  double times = 1;          // consecutive repetitions; the values below are for one of them
  int stream = 0;            // index of the stream, in the order in which streams joined the log
  Shape result;              // shape of the first tensor of an operation
  double rows = 0, columns = 0, inner = 0, batch = 1;
  bool causal = false;    // Attention: later keys are masked
  double visible = 1;     // Attention: the fraction of the scores that is computed
  bool gradient = false;  // Attention: backward
  bool sums_rows =
      false;  // Product: the rows of the first factor are added up too, for the gradient of a bias
  // Flops of matrix products, by Megatron-LM's convention: 2 for each multiplication, and under a causal mask half of
  // the scores.
  double flops = 0;
  double bytes = 0;  // memory traffic: the bytes of each tensor argument once
  double rounded =
      0;          // Product of a linear layer: bytes that rounding its factors to 8 bits moves (ops/narrow.h)
  int ranks = 1;  // Collective
  unsigned group = 0;  // Collective: identifies the communicator (planned_communicator)
  double sent = 0;     // bytes that this rank sends or receives, whichever is more, counted as Traffic does
  int hops = 0;        // Collective: messages that follow one another
  int other = 0;       // Wait
  size_t until = 0;    // Wait

  bool operator==(const Work&) const = default;
};

class WorkLog {
 public:
  // `load`: the rows of experts on this rank, relative to the mean over the ranks that share the experts. No other
  // value of a walk depends on data.
  explicit WorkLog(double load = 1) : load_(load) {}

  double load() const { return load_; }
  const std::vector<Work>& list() const { return list_; }
  void add(const Work& work) { list_.push_back(work); }
  // Multiplies the repetitions of all entries from `first` on by `times`; for loops with equal iterations.
  void repeat(size_t first, int64_t times) {
    for (size_t entry = first; entry < list_.size(); ++entry)
      list_[entry].times *= static_cast<double>(times);
  }
  // Returns the list and clears the log. Streams keep their indices.
  std::vector<Work> take() { return std::exchange(list_, {}); }

  // Called by a stream that joins: returns its index.
  int join() { return streams_++; }

 private:
  double load_;
  int streams_ = 0;
  std::vector<Work> list_;
};

}  // namespace trifold
