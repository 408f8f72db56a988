#include "comm/cuda_module.h"

#include <string>

#include "core/error.h"
#include "core/module.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;

constexpr const char* kCudaAdvice =
    "Build Trifold with CUDA 12.8 or newer (nvcc, cuBLASLt, cuDNN and NCCL; TRIFOLD_CUDA=ON), or name the "
    "module's folder in TRIFOLD_MODULE_PATH, or compute on the CPU with --device cpu.";

constexpr ModuleInfo kCudaModule{kCudaModuleFile, "trifold_cuda_version", kCudaModuleVersion};

template <class Function>
Function* in_cuda_module(void* module, const char* name) {
  return reinterpret_cast<Function*>(function_in(module, kCudaModuleFile, name));
}

void* load_cuda(std::span<const fs::path> folders) {
  std::string tried;
  void* module = open_module(folders, kCudaModule, tried);
  if (module == nullptr)
    bad_input("CUDA was asked for, but its module {} cannot be loaded:{}\n{}", kCudaModuleFile, tried,
              kCudaAdvice);
  return module;
}

void* module() {
  static void* const kModule = load_cuda(module_folders());
  return kModule;
}

}  // namespace

int cuda_device_count() {
  return in_cuda_module<CudaModuleDeviceCount>(module(), "trifold_cuda_device_count")();
}

size_t cuda_device_memory(int index) {
  return in_cuda_module<CudaModuleDeviceMemory>(module(), "trifold_cuda_device_memory")(index);
}

int cuda_device_count_from(std::span<const fs::path> folders) {
  return in_cuda_module<CudaModuleDeviceCount>(load_cuda(folders), "trifold_cuda_device_count")();
}

CudaReport report_cuda() {
  CudaReport report;
  report.module = report_module(module_folders(), kCudaModule);
  if (report.module.module != nullptr)
    in_cuda_module<CudaModuleReport>(report.module.module, "trifold_cuda_report")(&report);
  return report;
}

std::unique_ptr<Communicator> connect_nccl(Communicator& host, int device,
                                           std::chrono::milliseconds timeout) {
  const auto connect = in_cuda_module<CudaModuleConnect>(module(), "trifold_cuda_connect_nccl");
  return std::unique_ptr<Communicator>(connect(&host, device, timeout.count()));
}

ProductTuning& cuda_products(int index) {
  return *in_cuda_module<CudaModuleProducts>(module(), "trifold_cuda_products")(index);
}

const OpTable& cuda_ops(int index, const CudaTable& which) {
  return *in_cuda_module<CudaModuleOps>(module(), "trifold_cuda_ops")(index, which);
}

}  // namespace trifold
