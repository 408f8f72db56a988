// Communicator: a fixed, ordered set of ranks that move typed buffers between them.
//
// Contract of every operation:
//   * It is enqueued on the given stream, takes tensors of any dtype that live where the stream does (on its
//     device, or on the host), and does nothing on a Dry stream. Tensors must stay valid and untouched until
//     the stream has passed it; lists of rows and transfers are copied at once.
//   * All ranks of the communicator call the same operations in the same order with matching counts and
//     dtypes. A mismatch is an Error on every rank that says which rank called what (operation, count, dtype,
//     sequence number).
//   * Every wait has the time-out given when the world was made; it ends in an Error that names the ranks
//     that did not come, and aborts the world. `abort` wakes every waiting rank of the whole world with an
//     Error.
//   * Sums are in rank order wherever the back end says so (`sums_in_rank_order`), so they repeat bit for
//     bit.
//   * A sum of 16-bit floats is made in f32 and rounded to 16 bits after each addition, p - 1 times over p
//     ranks: for activations and their gradients. What must be exact is summed in f32.
//   * Over NCCL the first collective of a communicator, and the first message from one rank to another over
//     it, connect its ranks: the call waits on the host until the others have come to theirs, whatever the
//     stream. Who wants calls to return at once, or comes to communicators in an order that differs from rank
//     to rank, connects them before: by a collective that nobody measures, and by meet() (comm/meet.h) for
//     messages.
//   * Calls on one communicator come from one stream at a time. A size of 1 works and moves nothing but
//     copies.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/stream.h"
#include "core/tensor.h"
#include "ops/ops.h"

namespace trifold {

// One half of a point-to-point transfer inside `exchange`.
struct Transfer {
  enum class Direction { Send, Receive };
  Direction direction;
  int peer;
  Tensor tensor;
};

// Bytes that a rank has sent, and those of them that went to another node.
struct Traffic {
  int64_t sent = 0;
  int64_t left_node = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string_view backend() const = 0;  // "thread", "mpi", "nccl"
  virtual bool sums_in_rank_order() const = 0;

  // inout = sum (or max) over ranks.
  virtual void all_reduce(Tensor inout, Reduce how, Stream& stream) = 0;
  // `in` is size() equal parts; out = sum (or max) over ranks of part rank(). `out` may be that part of `in`.
  virtual void reduce_scatter(Tensor out, Tensor in, Reduce how, Stream& stream) = 0;
  // out = the ranks' `in`, concatenated in rank order. `in` may be part rank() of `out`.
  virtual void all_gather(Tensor out, Tensor in, Stream& stream) = 0;
  // Rows (first dim) of `in` go to ranks in order, in_rows[r] of them to rank r; out_rows[r] rows come from
  // rank r.
  virtual void all_to_all(Tensor out, Tensor in, std::span<const int64_t> out_rows,
                          std::span<const int64_t> in_rows, Stream& stream) = 0;
  virtual void broadcast(Tensor inout, int root, Stream& stream) = 0;
  // A batch of sends and receives that may complete in any order, among ranks that have met (above); between
  // one pair of ranks, sends match receives in the order listed. Only the ranks named as peers take part.
  // Rendezvous semantics: a send may wait for its receive.
  virtual void exchange(std::span<const Transfer> transfers, Stream& stream) = 0;

  // Collective: ranks with one color form a new communicator, ordered by key, then by rank here. Runs at
  // once, on no stream. The result must not outlive the world.
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;
  // Wakes all waiting ranks of the world with an Error that carries `why`; later calls fail with it too.
  virtual void abort(std::string_view why) noexcept = 0;

  // Collective: returns when every rank has called it. Runs at once, on no stream.
  virtual void barrier() = 0;

  // What this rank has sent through this communicator, and through all communicators of its world together,
  // as the algorithms with the least traffic (rings) send it, whatever the back end does: of n ranks' tensors
  // of b bytes an all_reduce takes 2 b (n-1)/n, a reduce_scatter or all_gather b (n-1)/n of the whole,
  // messages what they carry. In a ring a rank sends to the next one, so its bytes leave the node where that
  // lives on another. Dry streams do not count.
  Traffic traffic() const { return mine_.read(); }
  int64_t bytes_sent() const { return traffic().sent; }
  Traffic world_traffic() const { return world_->counters.read(); }

  // Says which node each rank of this world lives on, for the counts; until then all are on one. To be called
  // on the world's communicator before it is split.
  void set_nodes(std::vector<int> node_of_rank);
  // By rank of the world; empty: all on one.
  std::span<const int> world_nodes() const { return world_->nodes; }

 protected:
  // To be called by `split` on what it has made: its ranks are those of the world.
  void join(const Communicator& parent, std::span<const int> world_ranks);
  // `rounds` passes of a ring over a tensor of `bytes`.
  void count_ring(int64_t rounds, size_t bytes, const Stream& stream);
  void count_transfers(std::span<const Transfer> transfers, const Stream& stream);
  // Rows of `in` for each rank; those for this rank itself do not travel.
  void count_rows(const Tensor& in, std::span<const int64_t> in_rows, const Stream& stream);

 private:
  struct Counters {
    std::atomic<int64_t> sent{0};
    std::atomic<int64_t> left_node{0};
    Traffic read() const {
      return {sent.load(std::memory_order_relaxed), left_node.load(std::memory_order_relaxed)};
    }
  };
  // What the communicators of one rank share.
  struct World {
    std::vector<int> nodes;
    Counters counters;
  };

  bool leaves_node(int peer) const;
  void count_sent(int64_t bytes, bool leaves, const Stream& stream);

  std::shared_ptr<World> world_ = std::make_shared<World>();
  std::vector<int> nodes_;  // of the ranks here; empty: all on one
  Counters mine_;
};

// Bytes that a rank sends in `rounds` passes of a ring of `ranks` over a tensor of `bytes`.
constexpr int64_t ring_bytes(int64_t rounds, size_t bytes, int ranks) {
  return rounds * static_cast<int64_t>(bytes) * (ranks - 1) / ranks;
}

constexpr std::chrono::milliseconds kDefaultCommTimeout{std::chrono::minutes(10)};

}  // namespace trifold
