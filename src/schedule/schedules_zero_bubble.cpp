// The schedules that split backward. Other ranks only wait for I; W fills what would be idle time. Qi et al.,
// "Zero Bubble Pipeline Parallelism", 2023 (H1, H2); "Pipeline Parallelism with Controllable Memory", 2024
// (V); DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024 (DualPipe), folded into a V by Sea AI Lab.
#include <algorithm>
#include <deque>
#include <utility>

#include "schedule/rows.h"

namespace trifold {

// Rank r delays its weight gradients by `delay` micro-batches, so that ranks that receive the gradient first keep their
// inputs as long as rank 0 does: all ranks hold the same number of micro-batches.
RankPlan zero_bubble_row(const Row& row, int warm_up, int delay) {
  RowWriter out(row);
  const int first = std::min(warm_up, row.micros);
  for (int micro = 0; micro < first; ++micro) out.add(ActionKind::F, 0, micro);
  for (int micro = 0; micro < row.micros; ++micro) {
    if (first + micro < row.micros) out.add(ActionKind::F, 0, first + micro);
    out.add(ActionKind::I, 0, micro);
    if (micro >= delay) out.add(ActionKind::W, 0, micro - delay);
  }
  for (int micro = std::max(0, row.micros - delay); micro < row.micros; ++micro)
    out.add(ActionKind::W, 0, micro);
  return out.take();
}

namespace {

// Takes micro-batches of two chunks through F, I and W in order, so that a phase only needs to name the kind
// of work and the chunk.
class TwoChunks {
 public:
  explicit TwoChunks(const Row& row) : micros_(row.micros), out_(row) {}

  void forward(int chunk) { add(ActionKind::F, chunk, forwards_[chunk]++); }
  void input(int chunk) { add(ActionKind::I, chunk, backwards_[chunk]++); }
  void weight(int chunk) { add(ActionKind::W, chunk, weights_[chunk]++); }
  void input_and_weight(int chunk) {
    input(chunk);
    weight(chunk);
  }
  int forwards(int chunk) const { return forwards_[chunk]; }
  void remaining_weights(int chunk) {
    while (weights_[chunk] < backwards_[chunk]) weight(chunk);
  }
  RankPlan take() { return out_.take(); }

 private:
  // A phase may count beyond the last micro-batch; the excess is left out.
  void add(ActionKind kind, int chunk, int micro) {
    if (micro < micros_) out_.add(kind, chunk, micro);
  }

  int micros_;
  int forwards_[2] = {0, 0};
  int backwards_[2] = {0, 0};
  int weights_[2] = {0, 0};
  RowWriter out_;
};

}  // namespace

// Every micro-batch passes the ranks in order on chunk 0 and returns on chunk 1, so rank 0 has both ends of
// the model. The phases count at least 2p - 1 micro-batches; a shorter batch leaves out the missing ones.
RankPlan zb_v_row(const Row& row) {
  const int counted = std::max(2 * row.ranks - 1, row.micros);
  TwoChunks out(row);
  for (int i = 0; i < 2 * (row.ranks - row.rank) - 1; ++i) out.forward(0);
  for (int i = 0; i < row.rank; ++i) {  // the first micro-batches return
    out.forward(1);
    out.forward(0);
  }
  for (int i = 0; i < row.ranks - row.rank; ++i) {  // and are turned into gradients
    out.forward(1);
    out.input_and_weight(1);
  }
  while (out.forwards(1) < counted) {  // the steady state: both chunks forward and backward in turn
    if (out.forwards(0) < counted) out.forward(0);
    out.input_and_weight(0);
    out.forward(1);
    out.input_and_weight(1);
  }
  for (int i = 0; i < row.rank; ++i) {  // other ranks wait for these; weight gradients can wait
    out.input(0);
    out.input(1);
  }
  for (int i = 0; i < row.ranks - row.rank; ++i) out.input_and_weight(0);
  out.remaining_weights(1);
  out.remaining_weights(0);
  return out.take();
}

namespace {

// The steps of DualPipe for one rank: a forward on one chunk is paired with a backward on the other, and the
// pair shares the device.
class DualPipe {
 public:
  explicit DualPipe(const Row& row) : out_(row) {}

  void forward(int chunk) { out_.add(ActionKind::F, chunk, forwards_[chunk]++); }
  void backward(int chunk) { out_.add(ActionKind::B, chunk, backwards_[chunk]++); }
  // Computes the input gradient now; the weight gradient joins the queue.
  void input(int chunk) {
    queue_.emplace_back(chunk, backwards_[chunk]);
    out_.add(ActionKind::I, chunk, backwards_[chunk]++);
  }
  void weight() {
    const auto [chunk, micro] = queue_.front();
    queue_.pop_front();
    out_.add(ActionKind::W, chunk, micro);
  }
  void pair(int forward_chunk) {
    forward(forward_chunk);
    backward(1 - forward_chunk);
    out_.overlap_last_two();
  }
  RankPlan take() { return out_.take(); }

 private:
  RowWriter out_;
  int forwards_[2] = {0, 0};
  int backwards_[2] = {0, 0};
  std::deque<std::pair<int, int>> queue_;  // chunk, micro
};

}  // namespace

// The eight steps of DualPipe, of which DualPipe-V keeps one half: rank r of p stands for the ranks r and 2p
// - 1 - r of DualPipe.
RankPlan dualpipe_v_row(const Row& row) {
  const int before = row.rank + 1;
  const int after = row.ranks - row.rank - 1;
  const int paired = row.micros - 2 * row.ranks + before;
  DualPipe out(row);
  for (int i = 0; i < 2 * after; ++i) out.forward(0);  // 1
  for (int i = 0; i < before; ++i) {                   // 2
    out.forward(0);
    out.forward(1);
  }
  for (int i = 0; i < after; ++i) {  // 3
    out.input(1);
    out.weight();
    out.forward(1);
  }
  for (int i = 0; i < paired; ++i) {  // 4
    // The last rank has just computed the output of this forward's partner: nothing to overlap yet.
    if (i == 0 && after == 0) {
      out.forward(0);
      out.backward(1);
    } else {
      out.pair(0);
    }
    out.pair(1);
  }
  for (int i = 0; i < after; ++i) {  // 5
    out.backward(1);
    out.pair(1);
  }
  for (int i = 0; i < 2 * before; ++i)  // 6: the second half delays its weight gradients
    i < before ? out.backward(1 - i % 2) : out.input(1 - i % 2);
  for (int i = 0; i < after; ++i) {  // 7
    out.weight();
    out.input(0);
  }
  for (int i = 0; i < before; ++i) out.weight();  // 8
  return out.take();
}

}  // namespace trifold
