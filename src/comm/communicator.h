// Communicator: a fixed, ordered set of ranks that exchange typed buffers.
//
// Contract of every operation:
//   * It is enqueued on the given stream, takes tensors of any dtype in the memory of that stream's device
//     (or of the host), and does nothing on a Dry stream. Tensors must stay valid and untouched until the
//     stream has passed it; lists of rows and transfers are copied at once.
//   * All ranks of the communicator call the same operations in the same order with matching counts and
//     dtypes. A mismatch is an Error on every rank that says which rank called what (operation, count, dtype,
//     sequence number).
//   * Every wait has the time-out of the world; when it expires, an Error names the missing
//     ranks and the world is aborted. `abort` wakes every waiting rank of the whole world with an Error.
//   * If sums_in_rank_order() is true, sums are in rank order, so they are reproducible bit for bit.
//   * A sum of 16-bit floats is computed in f32 and rounded to 16 bits after each addition, p - 1 times over
//     p ranks: for activations and their gradients. Values that must be exact are summed in f32.
//   * Over NCCL, the first collective of a communicator, and the first message from one rank to another over
//     it, connect its ranks: the call blocks the host until the others have reached theirs, whatever the
//     stream. To keep first calls from blocking, or if ranks reach communicators in different orders, connect
//     them beforehand: run one untimed collective, and meet() (comm/meet.h) for messages.
//   * Calls on one communicator come from one stream at a time. A size of 1 works and only copies locally.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/call_kind.h"
#include "core/flight/flight_recorder.h"
#include "core/function_ref.h"
#include "core/small_list.h"
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

// Where `split` puts a rank.
struct SplitPlace {
  int color = 0;
  int key = 0;
};

// Added to the identity of a communicator (Work::group) that carries gradients of activations.
constexpr unsigned kGradientsGroup = 1U << 8;

// Bytes that a rank has sent.
struct Traffic {
  int64_t sent = 0;       // to other ranks
  int64_t left_node = 0;  // to ranks on other nodes
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string_view backend() const = 0;  // "thread", "mpi", "nccl"
  virtual bool sums_in_rank_order() const = 0;
  // Whether calls on a device's stream only enqueue work there, so that the stream needs no thread.
  virtual bool enqueues() const { return false; }

  // inout = sum (or max) over ranks.
  virtual void all_reduce(Tensor inout, Reduce reduction, Stream& stream) = 0;
  // `in` is size() equal parts; out = sum (or max) over ranks of part rank(). `out` may be that part of `in`.
  virtual void reduce_scatter(Tensor out, Tensor in, Reduce reduction, Stream& stream) = 0;
  // out = the ranks' `in`, concatenated in rank order. `in` may be part rank() of `out`.
  virtual void all_gather(Tensor out, Tensor in, Stream& stream) = 0;
  // Rows (first dim) of `in` go to ranks in order, in_rows[r] of them to rank r; out_rows[r] rows come from
  // rank r.
  virtual void all_to_all(Tensor out, Tensor in, std::span<const int64_t> out_rows,
                          std::span<const int64_t> in_rows, Stream& stream) = 0;
  virtual void broadcast(Tensor inout, int root, Stream& stream) = 0;
  // A batch of sends and receives among connected ranks (see above). They may complete in any order, but
  // between one pair of ranks sends match receives in the order listed. Only the named peers call it.
  // Rendezvous semantics: a send may wait for its receive.
  virtual void exchange(std::span<const Transfer> transfers, Stream& stream) = 0;

  // Collective: ranks with equal colors form a new communicator, ordered by key, then by rank here. Runs
  // immediately, on no stream. The result must not outlive the world.
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;
  // As `split`, where every rank knows the place of every rank of this communicator, so that ranks that do not exist
  // can have theirs (comm/absent_comm.h). `group` identifies the new communicator, as Work::group does.
  virtual std::unique_ptr<Communicator> split_by(FunctionRef<SplitPlace(int rank)> place,
                                                 unsigned /*group*/) {
    const SplitPlace mine = place(rank());
    return split(mine.color, mine.key);
  }
  // Another communicator of the same ranks. `group` as in split_by. Collective.
  std::unique_ptr<Communicator> duplicate(unsigned group = 0) {
    return split_by([](int rank) { return SplitPlace{0, rank}; }, group);
  }
  // Wakes all waiting ranks of the world with an Error that carries `why`; later calls fail with it too.
  virtual void abort(std::string_view why) noexcept = 0;

  // Collective: returns when every rank has called it. Runs immediately, on no stream.
  virtual void barrier() = 0;

  // What every rank of the world is doing, a line each, ranks that others wait for first; empty if another rank is
  // asking at the same time. May be called by any thread, at any time; waits up to two seconds for the other ranks.
  virtual std::string status() { return {}; }

  // Records the calls of this rank, on this communicator and on those split from it later, in `recorder`. Waits of the
  // rank then have the recorder's time-out, if it is the shorter one. Call it on the world's communicator before that
  // is split.
  virtual void record_in(std::shared_ptr<FlightRecorder> recorder);
  // Does not record calls on this communicator from now on: for threads that do other work than the rank's.
  void stop_recording();
  // The recorder of this rank; null: nothing is recorded.
  FlightRecorder* recorder() const { return world_->recorder.get(); }

  // Bytes that this rank has sent through this communicator, and through all communicators of its world,
  // counted as the algorithms with the least traffic (rings) send them, whatever the back end does: for n
  // ranks and tensors of b bytes, 2 b (n-1)/n for an all_reduce, b (n-1)/n of the whole for a reduce_scatter
  // or all_gather; messages count in full. In a ring a rank sends to the next one, so its bytes leave the
  // node if that one is on another. Dry streams do not count.
  Traffic traffic() const { return mine_.read(); }
  int64_t bytes_sent() const { return traffic().sent; }
  Traffic world_traffic() const { return world_->counters.read(); }

  // Sets the node of each rank of the world, for the counts; by default all ranks are on one node. Call it on the
  // world's communicator before it is split.
  void set_nodes(std::vector<int> node_of_rank);
  // The node of each world rank; empty if all are on one node.
  std::span<const int> world_nodes() const { return world_->nodes; }

 protected:
  // `split` must call this on its result; `world_ranks` are the world ranks of its ranks.
  void join(const Communicator& parent, std::span<const int> world_ranks);
  // `rounds` passes of a ring over a tensor of `bytes`. Returns the bytes that this rank sends, as the others do.
  int64_t count_ring(int64_t rounds, size_t bytes, const Stream& stream);
  void count_transfers(std::span<const Transfer> transfers, const Stream& stream);
  // Counts in_rows[r] rows of `in` for each rank r; this rank's own rows are not sent.
  int64_t count_rows(const Tensor& in, std::span<const int64_t> in_rows, const Stream& stream);

  // Scope guard: records a call on this communicator, or messages that are exchanged together. They end with the scope,
  // unless an exception ends it.
  class Recorded {
   public:
    explicit Recorded(Communicator& comm) : comm_(comm) {}
    // A collective that sends `bytes` from this rank.
    Recorded(Communicator& comm, CallKind kind, int64_t bytes);
    ~Recorded();
    Recorded(const Recorded&) = delete;
    Recorded& operator=(const Recorded&) = delete;

    // A message to or from `peer`, which has the rank `world_peer` in the world.
    void add_message(Transfer::Direction direction, int peer, int world_peer, size_t bytes);
    // The events so far end when somebody calls FlightRecorder::end, not with this scope.
    SmallList<uint64_t, 4> release() { return std::exchange(tickets_, {}); }

   private:
    Communicator& comm_;
    SmallList<uint64_t, 4> tickets_;
    int exceptions_ = std::uncaught_exceptions();
  };

 private:
  struct Counters {
    std::atomic<int64_t> sent{0};
    std::atomic<int64_t> left_node{0};
    Traffic read() const {
      return {sent.load(std::memory_order_relaxed), left_node.load(std::memory_order_relaxed)};
    }
  };
  // State shared by the communicators of one rank.
  struct World {
    std::vector<int> nodes;
    Counters counters;
    std::shared_ptr<FlightRecorder> recorder;
  };
  // The numbers of the next messages to and from a peer.
  struct Messages {
    int64_t sent = 0, received = 0;
  };

  void enter_recorder(std::span<const int> world_ranks);

  bool leaves_node(int peer) const;
  void count_sent(int64_t bytes, bool leaves, const Stream& stream);

  std::shared_ptr<World> world_ = std::make_shared<World>();
  std::vector<int> nodes_;  // node of each rank of this communicator; empty if all are on one node
  Counters mine_;
  int32_t group_ = -1;              // index of this communicator in the recorder
  int64_t recorded_calls_ = 0;      // number of the next collective
  std::vector<Messages> messages_;  // by peer; empty without a recorder
};

// Bytes that a rank sends in `rounds` passes of a ring of `ranks` over a tensor of `bytes`.
constexpr int64_t ring_bytes(int64_t rounds, size_t bytes, int ranks) {
  return rounds * static_cast<int64_t>(bytes) * (ranks - 1) / ranks;
}

constexpr std::chrono::milliseconds kDefaultCommTimeout{std::chrono::minutes(10)};

}  // namespace trifold
