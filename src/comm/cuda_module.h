// CUDA, loaded on demand: the program itself names no symbol of CUDA, so it starts on machines that have
// none.
//
// Everything that calls CUDA is in the module trifold_cuda.so (src/core/cuda, src/ops/cuda, src/comm/cuda),
// which is looked for in module_folders() (comm/module.h) and stays until the process ends. The libraries it
// computes with (cuBLASLt, cuDNN, NCCL) it opens itself when they are needed first.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <span>

#include "comm/communicator.h"
#include "ops/product_tuning.h"

namespace trifold {

// How many CUDA devices this process can use. Throws an Error(BadInput) that says what is missing and what to
// do when the module, the driver or a device is.
int cuda_device_count();

// Bytes of memory that CUDA device `index` has, whatever is in use now. Asking takes none of it: the device
// is not opened. Throws as cuda_device_count does.
size_t cuda_device_memory(int index);

// Which of a device's tables, that differ in some operations.
struct CudaTable {
  bool fp8 = false;           // products of linear layers in 8 bits (ops/cuda/fp8.h)
  bool deterministic = true;  // attention's backward has the same bits each time (ops/cuda/attention.h)
  bool tf32 = false;          // products of f32 from factors rounded to TF32 (ops/cuda/gemm.h)

  auto operator<=>(const CudaTable&) const = default;
};

// A table of CUDA device `index`, and with it the device (`ops.device`), which all of its tables share. One
// of each kind, until the process ends. Throws as cuda_device_count does, and BadInput where the device has
// no products in 8 bits.
const OpTable& cuda_ops(int index, const CudaTable& which = {});

// How the products of CUDA device `index` get their algorithms. Throws as cuda_device_count does.
ProductTuning& cuda_products(int index);

// The ranks of `host` with a CUDA device each, `device` here, through NCCL (comm/cuda/nccl_comm.h).
// Collective over `host`, which must outlive the result; what is on streams of the host goes through it.
std::unique_ptr<Communicator> connect_nccl(Communicator& host, int device,
                                           std::chrono::milliseconds timeout = kDefaultCommTimeout);

// cuda_device_count with the module looked for in `folders` only.
int cuda_device_count_from(std::span<const std::filesystem::path> folders);

// What the module exports, with C names. A change of any type that crosses the border changes the version.
constexpr const char* kCudaModuleFile = "trifold_cuda.so";
constexpr int64_t kCudaModuleVersion = 9 + 1000 * int64_t{sizeof(Stream)} +
                                       1'000'000 * int64_t{sizeof(Tensor)} +
                                       1'000'000'000 * int64_t{sizeof(OpTable)};
using CudaModuleVersion = int64_t();
using CudaModuleDeviceCount = int();
using CudaModuleDeviceMemory = size_t(int index);
using CudaModuleOps = const OpTable*(int index, const CudaTable& which);
using CudaModuleProducts = ProductTuning*(int index);
using CudaModuleConnect = Communicator*(Communicator* host, int device, int64_t timeout_ms);

}  // namespace trifold
