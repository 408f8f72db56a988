// MpiCommunicator: the Communicator of a group of MPI ranks.
//
// Every collective begins with each rank sending its Call to every other rank (size() - 1 messages of a few
// bytes), which detects mismatches and missing ranks before data moves. A reduction then sends every part
// directly to the rank that adds it, in rank order, and sends the sums to all ranks: the same data per rank as a ring,
// and the same bits as thread ranks.
#pragma once

#include <memory>
#include <vector>

#include "comm/call.h"
#include "comm/communicator.h"
#include "comm/mpi/mpi_world.h"

namespace trifold {

class MpiCommunicator final : public Communicator {
 public:
  // The world's communicator: owns `world`.
  explicit MpiCommunicator(std::unique_ptr<MpiWorld> world);
  // A group's communicator: `world_ranks` in the order of their ranks here.
  MpiCommunicator(MpiWorld& world, std::vector<int> world_ranks, int context);
  ~MpiCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(world_ranks_.size()); }
  std::string_view backend() const override { return "mpi"; }
  bool sums_in_rank_order() const override { return true; }

  void all_reduce(Tensor inout, Reduce reduction, Stream& stream) override;
  void reduce_scatter(Tensor out, Tensor in, Reduce reduction, Stream& stream) override;
  void all_gather(Tensor out, Tensor in, Stream& stream) override;
  void all_to_all(Tensor out, Tensor in, std::span<const int64_t> out_rows, std::span<const int64_t> in_rows,
                  Stream& stream) override;
  void broadcast(Tensor inout, int root, Stream& stream) override;
  void exchange(std::span<const Transfer> transfers, Stream& stream) override;
  std::unique_ptr<Communicator> split(int color, int key) override;
  void abort(std::string_view why) noexcept override { world_.abort(why); }
  void barrier() override;
  std::string status() override { return world_.status(); }
  void record_in(std::shared_ptr<FlightRecorder> recorder) override;

 private:
  struct Workspace;
  struct Item;
  // A piece of memory and the rank it comes from or goes to.
  struct Piece {
    int peer;
    void* data;
    size_t bytes;
  };

  void agree(Call call);
  void move(std::span<const Piece> to_send, std::span<const Piece> to_receive, MpiTag tag);
  std::string missing(const MpiRequests& requests, std::span<const Piece> to_receive) const;
  template <class T>
  std::vector<T> from_all(const std::vector<T>& for_each, MpiTag tag);
  int64_t segment(DType dtype) const;
  void reduce_parts(const Tensor& out, std::span<const Tensor> parts, Reduce reduction, ThreadPool& pool);
  void check_rows(std::span<const int64_t> out_rows, std::span<const int64_t> in_rows);
  bool advance(std::vector<Item>& items);
  std::string pending(const std::vector<Item>& items) const;
  int world_rank(int peer) const { return world_ranks_[static_cast<size_t>(peer)]; }

  std::unique_ptr<MpiWorld> owned_;
  MpiWorld& world_;
  const std::vector<int> world_ranks_;
  const int context_;
  int rank_ = 0;
  std::shared_ptr<const std::string> group_;
  const std::string& name_ = *group_;
  Call call_;  // the latest call
  uint64_t calls_ = 0;
  std::unique_ptr<Workspace> workspace_;
};

}  // namespace trifold
