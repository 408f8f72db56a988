// WorkLog: what a walk on Dry streams would compute and send, in order.
//
// Code that enqueues work runs unchanged on Dry streams that share a log. Operations of a counting table
// (ops/counting.h) and planned communicators (comm/planned_comm.h) write down what they are asked for instead of doing
// it, and the streams which work waits for which. From such a list follow the flops of a model, the bytes that a rank
// sends, and, with the rates of a machine, the time of a step: no layer states its own costs.
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
    Attention,   // of `batch` heads: scores [rows, columns] of vectors of `inner` numbers
    Collective,  // among `ranks` ranks, or messages between them
    Wait  // of its stream, for the first `until` entries of the log as far as they are on stream `other`
  };
  const char* name = "";  // of the operation or the collective; it lives as long as the program
  Kind kind = Kind::Movement;
  DType dtype = DType::F32;  // of the factors or of what is sent; else of the result
  double times = 1;          // that this is done, one after the other; the numbers below are of one time
  int stream = 0;            // in the order in which the streams joined the log
  Shape result;              // the first tensor of an operation
  double rows = 0, columns = 0, inner = 0, batch = 1;
  bool causal = false;    // Attention: half of the scores count
  bool gradient = false;  // Attention: of a backward
  // Of matrix products, by Megatron-LM's convention: 2 for each multiplication, and under a causal mask half of the
  // scores.
  double flops = 0;
  double bytes = 0;    // of memory: each tensor once, as it is given
  int ranks = 1;       // Collective
  unsigned group = 0;  // which communicator: the number that its owner gave it
  double sent =
      0;  // bytes that this rank sends, or those that it gets if these are more; as Traffic counts them
  int hops = 0;      // Collective: messages that follow one another
  int other = 0;     // Wait
  size_t until = 0;  // Wait

  bool operator==(const Work&) const = default;
};

class WorkLog {
 public:
  // `load`: how many times the mean number of rows of experts come to this rank, if it shares experts with others. It is
  // the only number of a walk that depends on data.
  explicit WorkLog(double load = 1) : load_(load) {}

  double load() const { return load_; }
  const std::vector<Work>& list() const { return list_; }
  void add(const Work& work) { list_.push_back(work); }
  // Makes all work from entry `first` on, so far, that of `times` repetitions: for loops over equal parts.
  void repeat(size_t first, int64_t times) {
    for (size_t entry = first; entry < list_.size(); ++entry)
      list_[entry].times *= static_cast<double>(times);
  }
  // Hands over the list; the log begins anew. Streams keep their numbers.
  std::vector<Work> take() { return std::exchange(list_, {}); }

  // For streams: the number of a stream that joins.
  int join() { return streams_++; }

 private:
  double load_;
  int streams_ = 0;
  std::vector<Work> list_;
};

}  // namespace trifold
