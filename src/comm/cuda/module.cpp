// The functions that trifold_cuda.so exports; comm/cuda_module.cpp finds these by name.
#include <map>
#include <memory>
#include <mutex>

#include "comm/cuda/cuda_report.h"
#include "comm/cuda/nccl_comm.h"
#include "comm/cuda_module.h"
#include "core/cuda/cuda_device.h"
#include "ops/cuda/attention.h"
#include "ops/cuda/fp8.h"
#include "ops/cuda/fp8_blocks.h"
#include "ops/cuda/gemm.h"
#include "ops/cuda/lt_product.h"
#include "ops/cuda/table.h"

namespace {

using trifold::cuda::F32Products;

// Devices and their tables are created on first use and live as long as the process: CUDA may be shut down
// before static objects are destroyed.
struct Opened {
  explicit Opened(int index) : device(index) {}
  trifold::cuda::CudaDevice device;
  std::map<trifold::CudaTable, trifold::OpTable> tables;
};

Opened& open(int index) {
  static std::mutex mutex;
  static auto& all = *new std::map<int, std::unique_ptr<Opened>>();
  const std::lock_guard lock(mutex);
  auto& opened = all[index];
  if (opened == nullptr) opened = std::make_unique<Opened>(index);
  return *opened;
}

}  // namespace

extern "C" {

int64_t trifold_cuda_version() { return trifold::kCudaModuleVersion; }

int trifold_cuda_device_count() { return trifold::cuda::device_count(); }

size_t trifold_cuda_device_memory(int index) { return trifold::cuda::device_memory(index); }

void trifold_cuda_report(trifold::CudaReport* report) { trifold::cuda::fill(*report); }

const trifold::OpTable* trifold_cuda_ops(int index, const trifold::CudaTable& which) {
  static std::mutex mutex;
  Opened& opened = open(index);
  const std::lock_guard lock(mutex);
  if (const auto made = opened.tables.find(which); made != opened.tables.end()) return &made->second;
  trifold::OpTable table =
      which.fp8_blocks ? trifold::cuda::make_fp8_blocks_table(&opened.device)
      : which.fp8
          ? trifold::cuda::make_fp8_table(&opened.device)
          : trifold::cuda::make_table(&opened.device, which.tf32 ? F32Products::Tf32 : F32Products::Exact);
  if (!which.deterministic) table.attention_backward = trifold::cuda::attention_backward_in_any_order;
  return &opened.tables.emplace(which, table).first->second;
}

trifold::ProductTuning* trifold_cuda_products(int index) {
  return &trifold::cuda::product_tuning(open(index).device);
}

// The caller owns the result.
trifold::Communicator* trifold_cuda_connect_nccl(trifold::Communicator* host, int device,
                                                 int64_t timeout_ms) {
  return trifold::cuda::connect_nccl(*host, open(device).device, std::chrono::milliseconds(timeout_ms))
      .release();
}
}
