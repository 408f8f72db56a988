// Staged: runs a device's communicator in suites whose tensors are on the host.
//
// Every call copies its tensors to the device, runs there on its own queue, and copies the results back; parts of one
// tensor remain parts of one. The call is complete when the host's stream has passed it. An abort in the middle wakes
// the queue silently and is reported by the next call (comm/cuda/nccl_comm.h), for which an empty exchange is made.
// Device memory is kept until destruction: freeing it would wait for the whole device, and so for kernels of other
// communicators, whose other ranks may wait for this one.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "ops/ops.h"

namespace trifold::test {

class Staged final : public Communicator {
 public:
  // Both must outlive this object.
  Staged(Communicator& inner, const OpTable& ops) : inner_(inner), ops_(ops) {}
  Staged(std::unique_ptr<Communicator> inner, const OpTable& ops)
      : owned_(std::move(inner)), inner_(*owned_), ops_(ops) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::string_view backend() const override { return inner_.backend(); }
  bool sums_in_rank_order() const override { return inner_.sums_in_rank_order(); }
  void barrier() override { inner_.barrier(); }
  void abort(std::string_view why) noexcept override { inner_.abort(why); }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return std::make_unique<Staged>(inner_.split(color, key), ops_);
  }

  void all_reduce(Tensor inout, Reduce how, Stream& stream) override {
    stage(stream, {inout},
          [=](Communicator& on, auto& there, Stream& queue) { on.all_reduce(there[0], how, queue); });
  }
  void reduce_scatter(Tensor out, Tensor in, Reduce how, Stream& stream) override {
    stage(stream, {in, out}, [=](Communicator& on, auto& there, Stream& queue) {
      on.reduce_scatter(there[1], there[0], how, queue);
    });
  }
  void all_gather(Tensor out, Tensor in, Stream& stream) override {
    stage(stream, {out, in},
          [](Communicator& on, auto& there, Stream& queue) { on.all_gather(there[0], there[1], queue); });
  }
  void all_to_all(Tensor out, Tensor in, std::span<const int64_t> out_rows, std::span<const int64_t> in_rows,
                  Stream& stream) override {
    stage(stream, {out, in},
          [out_list = std::vector<int64_t>(out_rows.begin(), out_rows.end()),
           in_list = std::vector<int64_t>(in_rows.begin(), in_rows.end())](Communicator& on, auto& there,
                                                                           Stream& queue) {
            on.all_to_all(there[0], there[1], out_list, in_list, queue);
          });
  }
  void broadcast(Tensor inout, int root, Stream& stream) override {
    stage(stream, {inout},
          [=](Communicator& on, auto& there, Stream& queue) { on.broadcast(there[0], root, queue); });
  }
  void exchange(std::span<const Transfer> transfers, Stream& stream) override {
    std::vector<Tensor> tensors;
    for (const Transfer& transfer : transfers) tensors.push_back(transfer.tensor);
    stage(stream, std::move(tensors),
          [list = std::vector<Transfer>(transfers.begin(), transfers.end())](Communicator& on, auto& there,
                                                                             Stream& queue) mutable {
            for (size_t i = 0; i < list.size(); ++i) list[i].tensor = there[i];
            on.exchange(list, queue);
          });
  }

 private:
  // Calls body(communicator, tensors on the device, queue) when `stream` reaches it. A tensor that is a part of another
  // must follow it.
  template <class Body>
  void stage(Stream& stream, std::vector<Tensor> tensors, Body body) {
    if (stream.mode() == Stream::Mode::Dry) return body(inner_, tensors, stream);
    stream.run([this, tensors = std::move(tensors), body = std::move(body)]() mutable {
      ThreadPool pool(1);
      Stream queue(Stream::Mode::Inline, pool, ops_.device);
      std::vector<Tensor> there;
      for (const Tensor& tensor : tensors) there.push_back(place(tensor, tensors, there, queue));
      body(inner_, there, queue);
      for (size_t i = 0; i < tensors.size(); ++i) ops_.copy(queue, tensors[i], there[i]);
      queue.synchronize();
      inner_.exchange({}, queue);
    });
  }

  // The copy on the device, inside that of an earlier tensor of which it is a part.
  Tensor place(const Tensor& tensor, const std::vector<Tensor>& here, const std::vector<Tensor>& there,
               Stream& queue) {
    const auto* begin = static_cast<const std::byte*>(tensor.data);
    for (size_t i = 0; i < there.size(); ++i) {
      const auto* whole = static_cast<const std::byte*>(here[i].data);
      if (whole == nullptr || begin < whole || begin + tensor.bytes() > whole + here[i].bytes()) continue;
      return {static_cast<std::byte*>(there[i].data) + (begin - whole), tensor.dtype, tensor.shape};
    }
    Buffer buffer(tensor.bytes(), ops_.device);
    const Tensor copy = buffer.tensor(tensor.dtype, tensor.shape);
    {
      const std::lock_guard lock(mutex_);
      buffers_.push_back(std::move(buffer));
    }
    ops_.copy(queue, copy, tensor);
    return copy;
  }

  std::unique_ptr<Communicator> owned_;
  Communicator& inner_;
  const OpTable& ops_;
  std::mutex mutex_;  // for the buffers: calls come from several streams
  std::deque<Buffer> buffers_;
};

}  // namespace trifold::test
