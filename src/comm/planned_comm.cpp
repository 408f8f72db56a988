#include "comm/planned_comm.h"

#include <algorithm>

#include "core/error.h"

namespace trifold {

namespace {

class PlannedCommunicator final : public Communicator {
 public:
  PlannedCommunicator(int rank, int size, unsigned group) : rank_(rank), size_(size), group_(group) {
    check(rank >= 0 && rank < size, "there is no rank {} of {}", rank, size);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view backend() const override { return "planned"; }
  bool sums_in_rank_order() const override { return true; }

  void all_reduce(Tensor inout, Reduce, Stream& stream) override {
    pass_around("all_reduce", 2, inout, stream);
  }
  void reduce_scatter(Tensor, Tensor in, Reduce, Stream& stream) override {
    pass_around("reduce_scatter", 1, in, stream);
  }
  void all_gather(Tensor out, Tensor, Stream& stream) override { pass_around("all_gather", 1, out, stream); }
  void all_to_all(Tensor out, Tensor in, std::span<const int64_t> out_rows, std::span<const int64_t> in_rows,
                  Stream& stream) override {
    write_down("all_to_all", size_ - 1, in,
               std::max(bytes_of_others(in, in_rows), bytes_of_others(out, out_rows)), stream);
  }
  void broadcast(Tensor inout, int, Stream& stream) override { pass_around("broadcast", 1, inout, stream); }
  void exchange(std::span<const Transfer> transfers, Stream& stream) override {
    double sent = 0;
    Tensor first;
    for (const Transfer& transfer : transfers) {
      if (transfer.direction != Transfer::Direction::Send) continue;
      if (first.rank() == 0) first = transfer.tensor;
      sent += static_cast<double>(transfer.tensor.bytes());
    }
    write_down("exchange", 1, first, sent, stream);
  }

  std::unique_ptr<Communicator> split(int, int) override { refuse("split"); }
  void abort(std::string_view) noexcept override {}
  void barrier() override { refuse("barrier"); }

 private:
  [[noreturn]] static void refuse(const char* what) {
    fail("{}: these ranks are only planned and cannot communicate", what);
  }

  double bytes_of_others(const Tensor& tensor, std::span<const int64_t> rows) const {
    int64_t others = 0;
    for (size_t rank = 0; rank < rows.size(); ++rank)
      if (rank != static_cast<size_t>(rank_)) others += rows[rank];
    const double row = static_cast<double>(tensor.bytes()) /
                       static_cast<double>(std::max<int64_t>(1, tensor.rank() > 0 ? tensor.dim(0) : 1));
    return row * static_cast<double>(others);
  }

  void pass_around(const char* name, int passes, const Tensor& whole, Stream& stream) const {
    write_down(name, passes * (size_ - 1), whole,
               static_cast<double>(ring_bytes(passes, whole.bytes(), size_)), stream);
  }

  void write_down(const char* name, int hops, const Tensor& tensor, double sent, Stream& stream) const {
    if (stream.mode() != Stream::Mode::Dry) refuse(name);
    if (stream.log() == nullptr || size_ == 1) return;
    Work work;
    work.name = name;
    work.kind = Work::Kind::Collective;
    work.dtype = tensor.dtype;
    work.result = tensor.shape;
    work.ranks = size_;
    work.group = group_;
    work.sent = sent;
    work.hops = hops;
    stream.write_down(work);
  }

  int rank_;
  int size_;
  unsigned group_;
};

}  // namespace

std::unique_ptr<Communicator> planned_communicator(int rank, int size, unsigned group) {
  return std::make_unique<PlannedCommunicator>(rank, size, group);
}

}  // namespace trifold
