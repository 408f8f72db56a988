#include "make_believe/device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "core/error.h"

namespace trifold::test {

namespace {

std::byte* map(int file, size_t bytes, int rights) {
  void* memory = mmap(nullptr, bytes, rights, MAP_SHARED, file, 0);
  check(memory != MAP_FAILED, "{} bytes could not be mapped", bytes);
  return static_cast<std::byte*>(memory);
}

}  // namespace

void* MakeBelieveDevice::allocate(size_t bytes) {
  const int file = memfd_create("make-believe device", 0);
  check(file >= 0 && ftruncate(file, static_cast<off_t>(bytes)) == 0, "no memory of {} bytes could be made",
        bytes);
  std::byte* own = map(file, bytes, PROT_READ | PROT_WRITE);
  std::byte* shown = map(file, bytes, PROT_NONE);
  close(file);
  const std::lock_guard lock(mutex_);
  blocks_[shown] = {bytes, own};
  return shown;
}

// As cudaFree does.
void MakeBelieveDevice::wait_for_queues() noexcept {
  const std::lock_guard lock(mutex_);
  for (MakeBelieveQueue* queue : queues_) {
    try {
      queue->synchronize();
    } catch (...) {  // whoever waits for the queue next is told
    }
  }
}

void MakeBelieveDevice::release(void* memory) noexcept {
  if (memory == nullptr) return;
  wait_for_queues();
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(static_cast<std::byte*>(memory));
  munmap(found->second.own, found->second.bytes);
  munmap(memory, found->second.bytes);
  blocks_.erase(found);
}

void* MakeBelieveDevice::allocate_shared(size_t bytes) {
  auto* memory = new std::byte[bytes]();
  const std::lock_guard lock(mutex_);
  blocks_[memory] = {bytes, memory};
  return memory;
}

void MakeBelieveDevice::release_shared(void* memory) noexcept {
  wait_for_queues();
  const std::lock_guard lock(mutex_);
  blocks_.erase(static_cast<std::byte*>(memory));
  delete[] static_cast<std::byte*>(memory);
}

std::unique_ptr<DeviceQueue> MakeBelieveDevice::make_queue() {
  return std::make_unique<MakeBelieveQueue>(*this);
}

void* MakeBelieveDevice::real(const void* address) const {
  const auto* at = static_cast<const std::byte*>(address);
  const std::lock_guard lock(mutex_);
  auto next = blocks_.upper_bound(at);
  if (next == blocks_.begin()) return nullptr;
  const auto& [begin, block] = *std::prev(next);
  return at < begin + block.bytes ? block.own + (at - begin) : nullptr;
}

Tensor MakeBelieveDevice::real(Tensor tensor) const {
  if (tensor.data == nullptr || tensor.bytes() == 0) return tensor;
  void* own = real(tensor.data);
  check(own != nullptr, "an operation of a device was given {} {} in the host's memory",
        name_of(tensor.dtype), to_string(tensor.shape));
  tensor.data = own;
  return tensor;
}

MakeBelieveQueue::MakeBelieveQueue(MakeBelieveDevice& device) : device_(device) {
  const std::lock_guard lock(device.mutex_);
  device.queues_.insert(this);
}

MakeBelieveQueue::~MakeBelieveQueue() {
  const std::lock_guard lock(device_.mutex_);
  device_.queues_.erase(this);
}

void MakeBelieveQueue::wait(DeviceQueue& other, uint64_t ticket) {
  worker_.wait({&static_cast<MakeBelieveQueue&>(other).worker_, ticket});
}

void MakeBelieveQueue::await(uint64_t ticket) {
  ThreadPool pool(1);
  Stream caller(Stream::Mode::Inline, pool);
  caller.wait({&worker_, ticket});
}

// Ordinary memory is read at once, for its owner may change it; everything else when the queue comes to it.
void MakeBelieveQueue::copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  void* own = device_.real(to);
  std::byte* target = static_cast<std::byte*>(own != nullptr ? own : to);
  if (const void* source = device_.real(from)) {
    worker_.run([target, source, bytes] { std::memmove(target, source, bytes); });
    return;
  }
  const auto* first = static_cast<const std::byte*>(from);
  worker_.run([target, held = std::vector<std::byte>(first, first + bytes)] {
    std::memcpy(target, held.data(), held.size());
  });
}

void* MakeBelieveQueue::workspace(size_t bytes) {
  if (workspace_.bytes() < bytes) workspace_ = Buffer(bytes, &device_);
  return workspace_.data();
}

}  // namespace trifold::test
