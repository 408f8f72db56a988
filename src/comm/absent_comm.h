// AbsentCommunicator: the communicator of one rank of a world whose other ranks do not exist. With it a rank's real
// program runs alone (rehearse/rehearse.h): every call has the contract of communicator.h, is counted and recorded as
// among real ranks, and completes alone.
//
// What arrives is plausible, not right:
//   * Floats are finite. A part that a peer would send is the part that this rank sends in its place, so that records of
//     several numbers stay valid; a message is drawn from N(0, 1), or from N(0, 2^-24) on a communicator of gradients
//     (kGradientsGroup), unless this rank sends one at the same time. A sum over n ranks is this rank's part times
//     sqrt(n), the scale of a sum of independent parts.
//   * Bytes that hold floats, as in quantized weights, are zeros where AbsentPeers::zeros says so: a part of this
//     rank put elsewhere would have its scales at other places.
//   * Integers, other bytes and f64 numbers of the host, with which ranks agree, are as if every peer said what this rank
//     says: a sum over n ranks is n times the number. AbsentPeers may say something else.
//   * What arrives depends on (seed, communicator, number of the call) only, so runs repeat.
//
// A communicator is split by split_by or duplicate: `split` cannot know the colors of ranks that do not exist, and throws.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "core/work_log.h"

namespace trifold {

// What the absent ranks contribute, where that is not what this rank says. `group` identifies the communicator, as in
// Work::group. Called on the threads of streams, at the time of the call.
class AbsentPeers {
 public:
  virtual ~AbsentPeers() = default;
  // Seconds that a collective or an exchange takes; the other members of `call` are as a planned communicator logs them.
  virtual double seconds(const Work& /*call*/) const { return 0; }
  // Turns f64 numbers of this rank, in host memory, into their sum over `ranks` ranks, which may be 1: what this rank
  // says may itself depend on absent ranks. False: each adds the same.
  virtual bool sum(unsigned /*group*/, int /*ranks*/, Tensor /*numbers*/) const { return false; }
  // Integers that each rank contributes to an all_gather, in rank order, in host memory that stays valid; `mine` are
  // this rank's, without data if they are in a device's memory. Without dims: each says the same as this rank.
  virtual Tensor gathered(unsigned /*group*/, int /*ranks*/, const Tensor& /*mine*/) const { return {}; }
  // Fills `out`, integers in host memory, with the rows that arrive in an all_to_all, out_rows[r] of them from rank r; this
  // rank's own are overwritten. False: peer r sends what this rank sends to it.
  virtual bool rows(unsigned /*group*/, Tensor /*out*/, std::span<const int64_t> /*out_rows*/) const {
    return false;
  }
  // Whether the peers' parts of an all_gather into `out`, in place, stay as they are.
  virtual bool keeps(const Tensor& /*out*/) const { return false; }
  // Whether the peers' bytes in an all_gather into `out` are zeros: bytes of quantized weights have scales among them,
  // which must be finite.
  virtual bool zeros(const Tensor& /*out*/) const { return false; }
};

// The calls of one kind on communicators of one group.
struct AbsentCalls {
  unsigned group = 0;  // as in Work::group; 0: the world
  std::string name;    // "all_reduce", or "exchange"
  int ranks = 1;       // size of the communicator
  int64_t count = 0;   // calls
  int64_t bytes = 0;   // that this rank sends in the largest
  int64_t all_bytes = 0;
  double seconds = 0;  // AbsentPeers::seconds of all together
};

// Counts calls by kind and group, in the order in which kinds first occur. Thread-safe.
class AbsentCallCounts {
 public:
  void add(const Work& call, int64_t bytes, double seconds);
  void restart();
  std::vector<AbsentCalls> list() const;

 private:
  mutable std::mutex mutex_;
  std::vector<AbsentCalls> list_;
};

struct AbsentWorldOptions {
  uint64_t seed = 0;
  const AbsentPeers* peers = nullptr;  // must outlive the world; null: as if each said the same
  AbsentCallCounts* counts = nullptr;  // likewise; null: calls are not counted by kind
  const OpTable* ops = nullptr;        // table of the device whose tensors are sent; null: the host's
  bool waits = false;                  // calls take AbsentPeers::seconds, on the stream's thread
};

// The world communicator of rank `rank` of `size`. Its memory does not depend on `size`, except for four bytes a rank.
std::unique_ptr<Communicator> absent_world(int rank, int size, const AbsentWorldOptions& options);

}  // namespace trifold
