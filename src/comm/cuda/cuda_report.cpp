#include "comm/cuda/cuda_report.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <utility>

#include "comm/cuda/nccl_table.cuh"
#include "core/cuda/cuda_device.h"
#include "core/error.h"
#include "ops/cuda/cudnn_graph.cuh"
#include "ops/cuda/lt_description.h"

namespace trifold::cuda {

namespace {

// `version` is 10000 * major + 100 * minor + patch, as these libraries give it.
std::string version_text(size_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

template <class Version>
CudaReport::Library library(const char* name, Version version) {
  CudaReport::Library found{name, "", "", false};
  try {
    found.version = version_text(version());
  } catch (const Error& error) {
    found.problem = error.what();
    found.outdated = error.kind() != ErrorKind::BadInput;
  }
  return found;
}

CudaReport::Device device(int index) {
  CudaReport::Device found{fmt::format("cuda:{}", index), 0, ""};
  try {
    found.memory = device_memory(index);
    found.name = CudaDevice(index).name();
  } catch (const Error& error) {
    found.problem = error.what();
  }
  return found;
}

size_t nccl_version() {
  int version = 0;
  nccl().version(&version);
  return static_cast<size_t>(version);
}

}  // namespace

void fill(CudaReport& report) {
  report.needed = CUDART_VERSION;
  if (cudaDriverGetVersion(&report.driver) != cudaSuccess) report.driver = 0;
  try {
    for (int index = 0, count = device_count(); index < count; ++index)
      report.devices.push_back(device(index));
  } catch (const Error& error) {
    report.problem = error.what();
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    report.absent = report.driver == 0 || status == cudaErrorNoDevice || status == cudaSuccess;
  }
  report.libraries = {library("cuBLASLt", [] { return blas::installed_lt().version(); }),
                      library("cuDNN", [] { return cudnn_version(); }), library("NCCL", nccl_version)};
}

}  // namespace trifold::cuda
