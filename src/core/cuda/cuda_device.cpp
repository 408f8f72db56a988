#include "core/cuda/cuda_device.h"

#include <mutex>

#include "core/cuda/cuda_error.cuh"
#include "core/cuda/cuda_queue.h"

namespace trifold::cuda {

namespace {

constexpr const char* kAdvice =
    "Install NVIDIA's driver (nvidia-smi shows whether it runs and which CUDA version it supports), "
    "or compute on the CPU with --device cpu.";

thread_local bool captures_here = false;  // on any device: a thread captures on one stream at a time

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

}  // namespace

int device_count() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return count;
  int driver = 0;
  const bool no_driver = cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0;
  if (no_driver) bad_input("CUDA cannot be used here: there is no driver on this machine. {}", kAdvice);
  if (status == cudaErrorInsufficientDriver)
    bad_input("CUDA cannot be used here: the driver is for CUDA {}, but this build needs {}. {}",
              version_text(driver), version_text(CUDART_VERSION), kAdvice);
  if (status == cudaSuccess || status == cudaErrorNoDevice)
    bad_input("CUDA cannot be used here: the driver sees no device. {}", kAdvice);
  bad_input("CUDA cannot be used here: {} ({}). {}", cudaGetErrorString(status), cudaGetErrorName(status),
            kAdvice);
}

size_t device_memory(int index) {
  cudaDeviceProp found{};
  check_cuda(cudaGetDeviceProperties(&found, index), "asking for the properties of device {}", index);
  return found.totalGlobalMem;
}

CudaDevice::CudaDevice(int index) : index_(index) {
  const int count = device_count();
  if (index < 0 || index >= count)
    bad_input("there is no CUDA device {}: this process sees {} of them", index, count);
  cudaDeviceProp found{};
  check_cuda(cudaGetDeviceProperties(&found, index), "asking for the properties of device {}", index);
  properties_ = {found.name, found.major, found.minor, found.multiProcessorCount};
  if (found.major < 8)
    bad_input("CUDA device {} ({}) has compute capability {}.{}, but at least 8.0 (A100) is needed", index,
              found.name, found.major, found.minor);
}

void CudaDevice::use() const { check_cuda(cudaSetDevice(index_), "choosing device {}", index_); }

std::string CudaDevice::name() const { return fmt::format("cuda:{} ({})", index_, properties_.name); }

DeviceMemory CudaDevice::memory() const {
  use();
  DeviceMemory memory;
  check_cuda(cudaMemGetInfo(&memory.free, &memory.total), "asking {} for its free memory", name());
  return memory;
}

void* CudaDevice::allocate(size_t bytes) {
  use();
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, bytes);
  if (status == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());  // clears the error, which is reported here
    const DeviceMemory left = this->memory();
    fail("out of memory on {}: {} bytes were asked for, {} of {} are free", name(), bytes, left.free,
         left.total);
  }
  check_cuda(status, "allocating {} bytes on {}", bytes, name());
  // Cleared before the address is returned, so that every stream finds zeros.
  check_cuda(cudaMemset(memory, 0, bytes), "clearing {} bytes on {}", bytes, name());
  check_cuda(cudaStreamSynchronize(nullptr), "clearing {} bytes on {}", bytes, name());
  return memory;
}

// cudaFree waits for the device, so work that still uses the memory finishes first.
void CudaDevice::release(void* memory) noexcept {
  static_cast<void>(cudaSetDevice(index_));
  static_cast<void>(cudaFree(memory));
}

void* CudaDevice::allocate_shared(size_t bytes) {
  use();
  void* memory = nullptr;
  check_cuda(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped),
             "allocating {} bytes of host memory that {} can reach", bytes, name());
  __builtin_memset(memory, 0, bytes);
  return memory;
}

void CudaDevice::capture_begins() {
  captures_.lock_shared();
  captures_here = true;
}

void CudaDevice::capture_ended() {
  captures_here = false;
  captures_.unlock_shared();
}

void CudaDevice::release_shared(void* memory) noexcept {
  std::unique_lock no_capture(captures_, std::defer_lock);
  if (!captures_here) no_capture.lock();  // else CUDA refuses to synchronize, and end_capture reports it
  static_cast<void>(cudaSetDevice(index_));
  static_cast<void>(cudaDeviceSynchronize());
  static_cast<void>(cudaFreeHost(memory));
}

std::unique_ptr<DeviceQueue> CudaDevice::make_queue(QueueUse use) {
  return std::make_unique<CudaQueue>(*this, use);
}

}  // namespace trifold::cuda
