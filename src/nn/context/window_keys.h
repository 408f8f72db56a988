// WindowKeys: context-parallel attention with a sliding window. A rank has the queries of its own positions and receives
// only the keys and values of other ranks that their windows cover, in one exchange of messages, which overlaps with
// attention over its own keys; a second step of attention covers what arrived. Backward receives keys and values again,
// and the gradients of the received ones return to their owners.
//
// A rank sends and keeps memory for at most a window of positions for each of its runs of positions, whatever the length
// of the sequence. Sums are in a fixed order, but in another one than on a single rank, so bits differ from its.
#pragma once

#include "core/function_ref.h"
#include "nn/layer.h"

namespace trifold {

class WindowKeys {
 public:
  // Packed projections [R, first + columns] have `first` columns of queries, then `columns` columns of keys and values. A
  // query sees the keys from `left` before it to `right` behind it.
  WindowKeys(const Mesh& mesh, int64_t first, int64_t columns, int64_t left, int64_t right)
      : parts_(mesh.size(Axis::Cp)),
        part_(mesh.coord(Axis::Cp)),
        first_(first),
        columns_(columns),
        left_(left),
        right_(right) {}

  // Whether windows cover at most half of the positions of other ranks; if not, another exchange is better.
  bool saves(const Run& run) const;

  // As in KeyRing.
  void forward(Run& run, Tensor out, Tensor lse, Tensor packed, Attention attention) const;
  void backward(Run& run, Tensor dpacked, Tensor dout, Tensor packed, Tensor out, Tensor lse,
                Attention attention) const;

 private:
  // Rows [owned, owned + count) of the owner's keys are rows [needed, needed + count) of the keys that a rank receives.
  struct Piece {
    int64_t owned, needed, count;
  };

  // The positions of other ranks that the windows of queries at `rows` cover.
  SequenceRows needed_by(const SequenceRows& rows) const;
  // The most positions of a sample that a rank receives, and the most rows that a rank sends. Every rank takes memory for
  // as many, so that the plan of one is that of all.
  int64_t most_needed(const Run& run) const;
  int64_t most_sent(const Run& run) const;
  // Calls body for each piece of the keys of rank `owner` that rank `needer` receives, in the same order on both.
  void for_each_piece(const Run& run, int owner, int needer, FunctionRef<void(Piece)> body) const;
  // Enqueues on run.side: receives the needed rows of other ranks' `own` in `received`.
  void fetch(Run& run, Tensor own, Tensor received) const;
  // Adds to `own` the gradients that other ranks computed for these rows; `received` has this rank's gradients of the
  // rows it received.
  void return_gradients(Run& run, Tensor own, Tensor received) const;

  int parts_, part_;
  int64_t first_, columns_;
  int64_t left_, right_;
};

}  // namespace trifold
