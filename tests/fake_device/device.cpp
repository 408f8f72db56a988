#include "fake_device/device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <type_traits>
#include <vector>

#include "core/error.h"

namespace trifold::test {

namespace {

std::byte* map(int file, size_t bytes, int rights) {
  void* memory = mmap(nullptr, bytes, rights, MAP_SHARED, file, 0);
  check(memory != MAP_FAILED, "{} bytes could not be mapped", bytes);
  return static_cast<std::byte*>(memory);
}

// The capture of a thread, which has one at a time.
struct Captures {
  bool writing = false;
  int64_t until_refused = 0;  // captures from here to the one that fails; 0: none does
  int64_t piece = 0;          // where it fails; 0: at its end
  bool refused = false;       // the one being written
};
thread_local Captures captures;

std::atomic<DeviceWatch*> device_watch = nullptr;

template <class... Args>
void tell(void (DeviceWatch::*what)(Args...), std::type_identity_t<Args>... args) {
  if (DeviceWatch* watch = device_watch.load()) (watch->*what)(args...);
}

void refuse_memory_in_capture() {
  check(!captures.writing, "memory cannot be allocated by a thread that captures");
}

}  // namespace

void FakeDevice::watch(DeviceWatch* watch) { device_watch = watch; }

void FakeDevice::refuse_capture(int64_t capture, int64_t piece) {
  captures.until_refused = capture;
  captures.piece = piece;
}

void* FakeDevice::allocate(size_t bytes) {
  refuse_memory_in_capture();
  const int file = memfd_create("fake device", 0);
  check(file >= 0 && ftruncate(file, static_cast<off_t>(bytes)) == 0, "no memory of {} bytes could be made",
        bytes);
  std::byte* own = map(file, bytes, PROT_READ | PROT_WRITE);
  std::byte* shown = map(file, bytes, PROT_NONE);
  close(file);
  keep(shown, {bytes, own, false});
  return shown;
}

void FakeDevice::keep(std::byte* shown, const Block& block) {
  const std::lock_guard lock(mutex_);
  blocks_[shown] = block;
  ++asked_;
}

FakeDevice::Asked FakeDevice::asked() const {
  const std::lock_guard lock(mutex_);
  Asked asked{asked_, 0, 0, workspaces_, captures_, urgent_queues_};
  for (const auto& each : blocks_) (each.second.shared ? asked.shared : asked.device) += each.second.bytes;
  return asked;
}

// As cudaFree does.
void FakeDevice::wait_for_queues() noexcept {
  const std::lock_guard lock(mutex_);
  for (FakeDeviceQueue* queue : queues_) {
    try {
      tell(&DeviceWatch::on_synchronize, *queue);
      queue->worker().synchronize();
    } catch (...) {  // rethrown to the next waiter on the queue
    }
  }
}

void FakeDevice::release(void* memory) noexcept {
  if (memory == nullptr) return;
  wait_for_queues();
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(static_cast<std::byte*>(memory));
  munmap(found->second.own, found->second.bytes);
  munmap(memory, found->second.bytes);
  blocks_.erase(found);
}

void* FakeDevice::allocate_shared(size_t bytes) {
  refuse_memory_in_capture();
  auto* memory = new std::byte[bytes]();
  keep(memory, {bytes, memory, true});
  return memory;
}

void FakeDevice::release_shared(void* memory) noexcept {
  wait_for_queues();
  const std::lock_guard lock(mutex_);
  blocks_.erase(static_cast<std::byte*>(memory));
  delete[] static_cast<std::byte*>(memory);
}

std::unique_ptr<DeviceQueue> FakeDevice::make_queue(QueueUse use) {
  if (use == QueueUse::Communicating) ++urgent_queues_;
  return std::make_unique<FakeDeviceQueue>(*this);
}

void* FakeDevice::real(const void* address) const {
  const auto* at = static_cast<const std::byte*>(address);
  const std::lock_guard lock(mutex_);
  auto next = blocks_.upper_bound(at);
  if (next == blocks_.begin()) return nullptr;
  const auto& [begin, block] = *std::prev(next);
  return at < begin + block.bytes ? block.own + (at - begin) : nullptr;
}

Tensor FakeDevice::real(Tensor tensor) const {
  if (tensor.data == nullptr || tensor.bytes() == 0) return tensor;
  void* own = real(tensor.data);
  check(own != nullptr, "an operation of a device was given {} {} in the host's memory",
        name_of(tensor.dtype), to_string(tensor.shape));
  tensor.data = own;
  return tensor;
}

FakeDeviceQueue::FakeDeviceQueue(FakeDevice& device) : device_(device) {
  const std::lock_guard lock(device.mutex_);
  device.queues_.insert(this);
}

FakeDeviceQueue::~FakeDeviceQueue() {
  tell(&DeviceWatch::on_end, *this);
  const std::lock_guard lock(device_.mutex_);
  device_.queues_.erase(this);
}

namespace {

struct WrittenDown final : DeviceGraph {
  explicit WrittenDown(std::vector<std::function<void()>> pieces) : work(std::move(pieces)) {}
  std::vector<std::function<void()>> work;
};

}  // namespace

void FakeDeviceQueue::refuse_in_capture(const char* what) const {
  check(!capturing_, "{} cannot be part of a graph", what);
}

void FakeDeviceQueue::put(std::function<void()> work) {
  if (!capturing_) return work();
  captured_.push_back(std::move(work));
  if (captures.refused && static_cast<int64_t>(captured_.size()) == captures.piece)
    fail("a test asked for a refusal at piece {}", captures.piece);
}

void FakeDeviceQueue::begin_capture() {
  refuse_in_capture("another capture");
  capturing_ = captures.writing = wrote_graphs_ = true;
  captures.refused = captures.until_refused > 0 && --captures.until_refused == 0;
}

std::unique_ptr<DeviceGraph> FakeDeviceQueue::end_capture() {
  check(capturing_, "a capture ends that has not begun");
  ++device_.captures_;
  capturing_ = captures.writing = false;
  auto graph = std::make_unique<WrittenDown>(std::exchange(captured_, {}));
  check(!std::exchange(captures.refused, false), "a test asked for a refusal at the end");
  return graph;
}

void FakeDeviceQueue::launch(DeviceGraph& graph) {
  refuse_in_capture("another graph");
  for (const auto& work : static_cast<WrittenDown&>(graph).work) work();
  ++device_.graph_launches_;
}

uint64_t FakeDeviceQueue::record() {
  refuse_in_capture("an event for others to wait for");
  const uint64_t ticket = worker_.record().ticket;
  tell(&DeviceWatch::on_record, *this, ticket);
  return ticket;
}

void FakeDeviceQueue::synchronize() {
  refuse_in_capture("work of the host");
  tell(&DeviceWatch::on_synchronize, *this);
  worker_.synchronize();
}

void FakeDeviceQueue::wait(DeviceQueue& other, uint64_t ticket) {
  refuse_in_capture("waiting for another stream");
  tell(&DeviceWatch::on_wait, *this, static_cast<FakeDeviceQueue&>(other), ticket);
  worker_.wait({&static_cast<FakeDeviceQueue&>(other).worker_, ticket});
}

void FakeDeviceQueue::await(uint64_t ticket) {
  tell(&DeviceWatch::on_await, *this, ticket);
  ThreadPool pool(1);
  Stream caller(Stream::Mode::Inline, pool);
  caller.wait({&worker_, ticket});
}

// Ordinary memory is read at once, for its owner may change it; everything else when the queue comes to it.
void FakeDeviceQueue::copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  void* own = device_.real(to);
  std::byte* target = static_cast<std::byte*>(own != nullptr ? own : to);
  if (const void* source = device_.real(from)) {
    put([this, target, source, bytes] {
      worker_.run([target, source, bytes] { std::memmove(target, source, bytes); });
    });
    return;
  }
  refuse_in_capture("a copy from ordinary memory");
  const auto* first = static_cast<const std::byte*>(from);
  worker_.run([target, held = std::vector<std::byte>(first, first + bytes)] {
    std::memcpy(target, held.data(), held.size());
  });
}

void* FakeDeviceQueue::workspace(size_t bytes) {
  if (workspaces_.empty() || workspaces_.back().bytes() < bytes) {
    refuse_in_capture("a workspace larger than any before");
    if (!wrote_graphs_) workspaces_.clear();
    workspaces_.emplace_back(bytes, &device_);
    ++device_.workspaces_;
  }
  return workspaces_.back().data();
}

}  // namespace trifold::test
