#include "comm/cuda_module.h"

#include <dlfcn.h>

#include <string>

#include "comm/mpi_module.h"
#include "core/error.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;

constexpr const char* kAdvice =
    "Build Trifold where CUDA 12.8 or newer is (nvcc, cuBLASLt, cuDNN and NCCL; TRIFOLD_CUDA=ON), or name "
    "the "
    "module's folder in TRIFOLD_MODULE_PATH, or compute on the processor with --device cpu.";

void* open_module(std::span<const fs::path> folders) {
  std::string tried;
  for (const fs::path& folder : folders) {
    const fs::path file = folder / kCudaModuleFile;
    std::error_code error;
    if (!fs::exists(file, error)) {
      tried += fmt::format("\n  {}: there is no such file", file.string());
      continue;
    }
    if (void* module = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) return module;
    const char* reason = dlerror();
    tried += fmt::format("\n  {}", reason != nullptr ? reason : file.string() + ": cannot be loaded");
  }
  bad_input("CUDA was asked for, but its module {} cannot be loaded:{}\n{}", kCudaModuleFile, tried, kAdvice);
}

template <class Function>
Function* find(void* module, const char* name) {
  void* symbol = dlsym(module, name);
  check(symbol != nullptr, "the module {} has no function {}: it is not of this build of Trifold",
        kCudaModuleFile, name);
  return reinterpret_cast<Function*>(symbol);
}

void* load(std::span<const fs::path> folders) {
  void* module = open_module(folders);
  const int64_t version = find<CudaModuleVersion>(module, "trifold_cuda_version")();
  check(version == kCudaModuleVersion,
        "the module {} is of another build of Trifold (version {}, not {}): build and install both together",
        kCudaModuleFile, version, kCudaModuleVersion);
  return module;
}

void* module() {
  static void* const kModule = load(module_folders());
  return kModule;
}

}  // namespace

int cuda_device_count() { return find<CudaModuleDeviceCount>(module(), "trifold_cuda_device_count")(); }

int cuda_device_count_from(std::span<const fs::path> folders) {
  return find<CudaModuleDeviceCount>(load(folders), "trifold_cuda_device_count")();
}

std::unique_ptr<Communicator> connect_nccl(Communicator& host, int device,
                                           std::chrono::milliseconds timeout) {
  const auto connect = find<CudaModuleConnect>(module(), "trifold_cuda_connect_nccl");
  return std::unique_ptr<Communicator>(connect(&host, device, timeout.count()));
}

const OpTable& cuda_ops(int index) { return *find<CudaModuleOps>(module(), "trifold_cuda_ops")(index); }

}  // namespace trifold
