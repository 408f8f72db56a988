// Communicator: a fixed, ordered set of ranks that move typed buffers between them.
//
// Contract of every operation:
//   * It is enqueued on the given stream, takes host tensors of any dtype, and does nothing on a Dry stream.
//   Tensors
//     must stay valid and untouched until the stream has passed it; lists of rows and transfers are copied at
//     once.
//   * All ranks of the communicator call the same operations in the same order with matching counts and
//   dtypes. A
//     mismatch is an Error on every rank that says which rank called what (operation, count, dtype, sequence
//     number).
//   * Every wait has the time-out given when the world was made; it ends in an Error that names the ranks
//   that did not
//     come, and aborts the world. `abort` wakes every waiting rank of the whole world with an Error.
//   * Sums are in rank order wherever the back end says so (`sums_in_rank_order`), so they repeat bit for
//   bit.
//   * A sum of 16-bit floats is made in f32 and rounded to 16 bits after each addition, p - 1 times over p
//   ranks: for activations and their gradients. What must be exact is summed in f32.
//   * Calls on one communicator come from one stream at a time. A size of 1 works and moves nothing but
//   copies.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

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

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string_view backend() const = 0;  // "thread", "mpi"
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
  // A batch of sends and receives that may complete in any order; between one pair of ranks, sends match
  // receives in the order listed. Only the ranks named as peers take part. Rendezvous semantics: a send may
  // wait for its receive.
  virtual void exchange(std::span<const Transfer> transfers, Stream& stream) = 0;

  // Collective: ranks with one color form a new communicator, ordered by key, then by rank here. Runs at
  // once, on no stream. The result must not outlive the world.
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;
  // Wakes all waiting ranks of the world with an Error that carries `why`; later calls fail with it too.
  virtual void abort(std::string_view why) noexcept = 0;

  // Collective: returns when every rank has called it. Runs at once, on no stream.
  virtual void barrier() = 0;

  // Bytes this rank has sent through this communicator, as the algorithms with the least traffic (rings) send
  // them, whatever the back end does: of n ranks' tensors of b bytes an all_reduce takes 2 b (n-1)/n, a
  // reduce_scatter or all_gather b (n-1)/n of the whole, messages what they carry. Dry streams do not count.
  int64_t bytes_sent() const { return bytes_sent_.load(std::memory_order_relaxed); }

 protected:
  // `rounds` passes of a ring over a tensor of `bytes`.
  void count_ring(int64_t rounds, size_t bytes, const Stream& stream) {
    const int ranks = size();
    count_sent(rounds * static_cast<int64_t>(bytes) * (ranks - 1) / ranks, stream);
  }
  void count_sent(int64_t bytes, const Stream& stream) {
    if (stream.mode() != Stream::Mode::Dry) bytes_sent_.fetch_add(bytes, std::memory_order_relaxed);
  }
  void count_transfers(std::span<const Transfer> transfers, const Stream& stream) {
    for (const Transfer& transfer : transfers)
      if (transfer.direction == Transfer::Direction::Send)
        count_sent(static_cast<int64_t>(transfer.tensor.bytes()), stream);
  }
  // Rows of `in` for each rank; those for this rank itself do not travel.
  void count_rows(const Tensor& in, std::span<const int64_t> in_rows, const Stream& stream) {
    int64_t rows = 0;
    for (size_t r = 0; r < in_rows.size(); ++r)
      if (static_cast<int>(r) != rank()) rows += in_rows[r];
    if (in.dim(0) > 0) count_sent(rows * static_cast<int64_t>(in.bytes()) / in.dim(0), stream);
  }

 private:
  std::atomic<int64_t> bytes_sent_{0};
};

constexpr std::chrono::milliseconds kDefaultCommTimeout{std::chrono::minutes(10)};

}  // namespace trifold
