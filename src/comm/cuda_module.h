// CUDA, loaded on demand: the program does not link CUDA, so it starts on machines without it.
//
// Everything that calls CUDA is in the module trifold_cuda.so (src/core/cuda, src/ops/cuda, src/comm/cuda),
// which is searched for in module_folders() (core/module.h) and stays loaded until the process ends. The module opens
// cuBLASLt, cuDNN and NCCL on first use.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/module.h"
#include "ops/product_tuning.h"

namespace trifold {

// The number of CUDA devices that this process can use. Throws Error(BadInput), saying what to do, if the
// module, the driver or a device is missing.
int cuda_device_count();

// Total bytes of memory of CUDA device `index`. The device is not opened, so the call uses no device memory. Throws as
// cuda_device_count does.
size_t cuda_device_memory(int index);

// Selects a variant of a device's table.
struct CudaTable {
  bool fp8 = false;           // products of linear layers in 8 bits (ops/cuda/fp8.h)
  bool fp8_blocks = false;    // with fp8: factors have scales of blocks (ops/cuda/fp8_blocks.h)
  bool deterministic = true;  // attention's backward has the same bits each time (ops/cuda/attention.h)
  bool tf32 = false;          // products of f32 from factors rounded to TF32 (ops/cuda/gemm.h)

  auto operator<=>(const CudaTable&) const = default;
};

// The table of this variant for CUDA device `index`. There is one table of each variant, and all of a device's tables
// share the device (`ops.device`); they live until the process ends. Throws as cuda_device_count does, and BadInput if
// the device has no products in 8 bits.
const OpTable& cuda_ops(int index, const CudaTable& which = {});

// The choice of algorithms for the products of CUDA device `index`. Throws as cuda_device_count does.
ProductTuning& cuda_products(int index);

// A communicator of the ranks of `host` over NCCL (comm/cuda/nccl_comm.h); this rank uses `device`.
// Collective over `host`, which must outlive the result and carries calls on streams of the host.
std::unique_ptr<Communicator> connect_nccl(Communicator& host, int device,
                                           std::chrono::milliseconds timeout = kDefaultCommTimeout);

// cuda_device_count, searching for the module in `folders` only.
int cuda_device_count_from(std::span<const std::filesystem::path> folders);

// The CUDA module of this installation, its driver, devices and libraries, for a report. Fields but `module` are empty
// unless the module is Usable.
struct CudaReport {
  struct Device {
    std::string name;     // "cuda:0 (NVIDIA H200)"
    size_t memory = 0;    // bytes
    std::string problem;  // why this build cannot use it; empty: it can
  };
  struct Library {
    std::string name;       // "cuDNN"
    std::string version;    // "9.10.2"; empty: it cannot be opened
    std::string problem;    // why not
    bool outdated = false;  // it lacks functions that this build needs
  };
  ModuleReport module;
  int driver = 0;  // the newest CUDA that the driver supports, 1000 * major + 10 * minor; 0: no driver
  int needed = 0;  // the CUDA of this build, likewise
  std::vector<Device> devices;
  std::string problem;  // why no device can be used; empty: there are devices
  bool absent = false;  // because the driver or a device is absent, not because it fails
  std::vector<Library> libraries;
};
CudaReport report_cuda();

// The interface of the module, with C names. A change of any type in it must change the version.
constexpr const char* kCudaModuleFile = "trifold_cuda.so";
constexpr int64_t kCudaModuleVersion = 11 + 1000 * int64_t{sizeof(Stream)} +
                                       1'000'000 * int64_t{sizeof(Tensor)} +
                                       1'000'000'000 * int64_t{sizeof(OpTable)};
using CudaModuleVersion = int64_t();
using CudaModuleDeviceCount = int();
using CudaModuleDeviceMemory = size_t(int index);
using CudaModuleOps = const OpTable*(int index, const CudaTable& which);
using CudaModuleReport = void(CudaReport* report);  // sets all fields but `module`
using CudaModuleProducts = ProductTuning*(int index);
using CudaModuleConnect = Communicator*(Communicator* host, int device, int64_t timeout_ms);

}  // namespace trifold
