#include "comm/planned_comm.h"

#include "core/error.h"

namespace trifold {

namespace {

class PlannedCommunicator final : public Communicator {
 public:
  PlannedCommunicator(int rank, int size) : rank_(rank), size_(size) {
    check(rank >= 0 && rank < size, "there is no rank {} of {}", rank, size);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view backend() const override { return "planned"; }
  bool sums_in_rank_order() const override { return true; }

  void all_reduce(Tensor, Reduce, Stream& stream) override { expect_dry("all_reduce", stream); }
  void reduce_scatter(Tensor, Tensor, Reduce, Stream& stream) override {
    expect_dry("reduce_scatter", stream);
  }
  void all_gather(Tensor, Tensor, Stream& stream) override { expect_dry("all_gather", stream); }
  void all_to_all(Tensor, Tensor, std::span<const int64_t>, std::span<const int64_t>,
                  Stream& stream) override {
    expect_dry("all_to_all", stream);
  }
  void broadcast(Tensor, int, Stream& stream) override { expect_dry("broadcast", stream); }
  void exchange(std::span<const Transfer>, Stream& stream) override { expect_dry("exchange", stream); }

  std::unique_ptr<Communicator> split(int, int) override { refuse("split"); }
  void abort(std::string_view) noexcept override {}
  void barrier() override { refuse("barrier"); }

 private:
  [[noreturn]] static void refuse(const char* what) {
    fail("{}: these ranks are only planned and cannot communicate", what);
  }
  static void expect_dry(const char* what, const Stream& stream) {
    if (stream.mode() != Stream::Mode::Dry) refuse(what);
  }

  int rank_;
  int size_;
};

}  // namespace

std::unique_ptr<Communicator> planned_communicator(int rank, int size) {
  return std::make_unique<PlannedCommunicator>(rank, size);
}

}  // namespace trifold
