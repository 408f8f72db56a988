// VectorExchange sends the vectors that a rank looked up in its shards to the ranks that own the samples, by an
// all-to-all, and the gradients in the opposite direction. b = samples of this rank, B = ranks * b, W = columns of the
// shards of a rank, `features` [b, (F + 1) D] as in embedding_tables.h.
//
// For vectors, a rank sends (B - b) W elements and receives b (sum of W over the other ranks); for gradients the
// reverse. Partial sums of a bag from several ranks are added in rank order.
#pragma once

#include <vector>

#include "comm/communicator.h"
#include "embedding/placement.h"
#include "embedding/step_marks.h"

namespace trifold {

class VectorExchange {
 public:
  struct Options {
    int64_t samples = 0;  // b
    DType dtype = DType::F32;
    bool bf16 = false;  // elements are sent as bf16, rounded once
    StepMarks marks;    // called for Vectors and Gradients
  };
  // References must outlive the object; streams are on the device of `ops`. The owner must wait for
  // `comm_stream` before destroying it.
  VectorExchange(const Placement& placement, Communicator& comm, const OpTable& ops, const Options& options,
                 Stream& compute, Stream& comm_stream);
  VectorExchange(const VectorExchange&) = delete;
  VectorExchange& operator=(const VectorExchange&) = delete;

  // [B, W] of this rank's shards: the vectors to send, later the received gradients.
  Tensor made() const;

  void send_vectors();
  // Assigns the vectors to their columns of `features`.
  void receive_vectors(Tensor features);
  void send_gradients(Tensor dfeatures);
  // Receives the gradients into made().
  void receive_gradients();

  // Bytes of its memory; the second form, for any rank, needs no instance.
  size_t bytes() const;
  static size_t bytes(const Placement& placement, int rank, const Options& options);

 private:
  Tensor flat(const Buffer& buffer, int64_t numbers) const {
    return buffer.tensor(options_.dtype, {numbers});
  }
  Tensor block(int64_t at, size_t rank) const;
  void send(Tensor out, Tensor in, Buffer& out_short, Buffer& in_short, StepPart part);
  void mark(StepPart part, bool begins);
  void widen(Tensor out, const Buffer& from);

  Communicator& comm_;
  const OpTable& ops_;
  Options options_;
  Stream& compute_;
  Stream& comm_stream_;
  int64_t ranks_, columns_;
  std::vector<int64_t> made_counts_, received_counts_;
  int64_t made_numbers_ = 0, received_numbers_ = 0;
  std::vector<std::vector<ColumnCopy>> unpack_, pack_;  // from and to each rank
  Buffer made_;                                         // [B, W] of this rank's shards
  Buffer received_;                                     // [b, W_s] from every rank s, in rank order
  Buffer made_short_, received_short_;
  Event arrived_;
};

}  // namespace trifold
