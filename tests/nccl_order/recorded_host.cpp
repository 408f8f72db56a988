#include "nccl_order/recorded_host.h"

#include <fmt/format.h>

#include <numeric>

namespace trifold::test {

namespace {

class RecordedHost final : public Communicator {
 public:
  RecordedHost(Communicator& inner, std::unique_ptr<Communicator> owned, const RecordPort& port,
               const std::string& key, std::vector<int> world_ranks)
      : inner_(inner),
        owned_(std::move(owned)),
        port_(port),
        key_(key),
        world_ranks_(std::move(world_ranks)),
        number_(port.comm(&key_, &world_ranks_)) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::string_view backend() const override { return inner_.backend(); }
  bool sums_in_rank_order() const override { return inner_.sums_in_rank_order(); }

  void all_reduce(Tensor inout, Reduce reduction, Stream& stream) override {
    record(reduction == Reduce::Sum ? "all_reduce(sum)" : "all_reduce(max)", &inout);
    inner_.all_reduce(inout, reduction, stream);
  }
  void reduce_scatter(Tensor out, Tensor in, Reduce reduction, Stream& stream) override {
    record(reduction == Reduce::Sum ? "reduce_scatter(sum)" : "reduce_scatter(max)", &out);
    inner_.reduce_scatter(out, in, reduction, stream);
  }
  void all_gather(Tensor out, Tensor in, Stream& stream) override {
    record("all_gather", &in);
    inner_.all_gather(out, in, stream);
  }
  void all_to_all(Tensor out, Tensor in, std::span<const int64_t> out_rows, std::span<const int64_t> in_rows,
                  Stream& stream) override {
    record("all_to_all", nullptr);
    inner_.all_to_all(out, in, out_rows, in_rows, stream);
  }
  void broadcast(Tensor inout, int root, Stream& stream) override {
    record("broadcast", &inout, root);
    inner_.broadcast(inout, root, stream);
  }
  void exchange(std::span<const Transfer> transfers, Stream& stream) override;
  std::unique_ptr<Communicator> split(int color, int key) override;
  void abort(std::string_view why) noexcept override { inner_.abort(why); }
  void barrier() override {
    record("barrier", nullptr);
    inner_.barrier();
  }
  std::string status() override { return inner_.status(); }

 private:
  int me() const { return world_ranks_[static_cast<size_t>(rank())]; }
  void record(const char* operation, const Tensor* tensor, int root = -1) {
    OrderEntry entry;
    entry.kind = OrderEntry::Kind::HostCall;
    entry.comm = number_;
    entry.operation = operation;
    entry.root = root;
    if (tensor != nullptr) {
      entry.count = tensor->elements();
      entry.type = name_of(tensor->dtype);
    }
    port_.add(me(), &entry);
  }

  Communicator& inner_;
  std::unique_ptr<Communicator> owned_;  // `inner_`, if it was split from another
  const RecordPort& port_;
  const std::string key_;
  const std::vector<int> world_ranks_;
  const int number_;
  int splits_ = 0;
};

// An empty list asks for news of an abort.
void RecordedHost::exchange(std::span<const Transfer> transfers, Stream& stream) {
  if (!transfers.empty()) {
    OrderEntry entry;
    entry.kind = OrderEntry::Kind::HostMessages;
    entry.comm = number_;
    for (const Transfer& transfer : transfers)
      entry.messages.push_back({transfer.direction == Transfer::Direction::Send, transfer.peer,
                                transfer.tensor.elements(), std::string(name_of(transfer.tensor.dtype))});
    port_.add(me(), &entry);
  }
  inner_.exchange(transfers, stream);
}

std::unique_ptr<Communicator> RecordedHost::split(int color, int key) {
  record("split", nullptr);
  std::unique_ptr<Communicator> child = inner_.split(color, key);
  std::vector<int64_t> members(static_cast<size_t>(child->size()));
  int64_t mine = me();
  ThreadPool pool(1);
  Stream stream(Stream::Mode::Inline, pool);
  child->all_gather({members.data(), DType::I64, {child->size()}}, {&mine, DType::I64, {1}}, stream);
  Communicator& inner = *child;
  auto recorded = std::make_unique<RecordedHost>(inner, std::move(child), port_,
                                                 fmt::format("{}/{}.{}", key_, splits_++, color),
                                                 std::vector<int>(members.begin(), members.end()));
  recorded->join(*this, recorded->world_ranks_);
  return recorded;
}

}  // namespace

std::unique_ptr<Communicator> recorded_host(Communicator& world, const RecordPort& port) {
  std::vector<int> ranks(static_cast<size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return std::make_unique<RecordedHost>(world, nullptr, port, "host", std::move(ranks));
}

}  // namespace trifold::test
