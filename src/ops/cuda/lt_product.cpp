#include "ops/cuda/lt_product.h"

#include <bit>
#include <cstddef>
#include <map>
#include <mutex>

#include "core/cuda/cuda_device.h"
#include "core/cuda/cuda_queue.h"
#include "ops/cuda/lt_engine.h"

namespace trifold::cuda {

namespace {

// One per device, until the process ends.
blas::LtEngine& engine_of(CudaDevice& device) {
  static std::mutex mutex;
  static auto& all = *new std::map<int, blas::LtEngine>();
  const std::lock_guard lock(mutex);
  if (const auto found = all.find(device.index()); found != all.end()) return found->second;
  device.use();
  const blas::Lt& lt = blas::installed_lt();
  const Properties& is = device.properties();
  return all
      .try_emplace(device.index(), lt, device.name(),
                   fmt::format("{} ({}.{}), cuBLASLt {}", is.name, is.major, is.minor, lt.version()))
      .first->second;
}

// cuBLASLt does not require an alignment of a bias, but its epilogues load whole vectors of it; and rows of the second
// output are a multiple of 8 numbers apart.
bool are_vectors(const Product& product) {
  constexpr uint32_t kVector = 16;
  constexpr int64_t kRow = 8;
  return blas::alignment_of(product.bias) >= kVector && blas::alignment_of(product.aux) >= kVector &&
         (product.aux == nullptr || product.m % kRow == 0);
}

}  // namespace

ProductTuning& product_tuning(CudaDevice& device) { return engine_of(device); }

void run_product(CudaQueue& queue, const Product& product) { engine_of(queue.device()).run(product, queue); }

bool try_product(CudaQueue& queue, const Product& product) {
  return are_vectors(product) && engine_of(queue.device()).try_run(product, queue);
}

std::vector<ProductAlgorithm> proposed_algorithms(CudaQueue& queue, const Product& product, int most) {
  queue.device().use();
  std::vector<ProductAlgorithm> algorithms;
  for (const auto& algorithm : engine_of(queue.device()).propose(product, most))
    algorithms.push_back(std::bit_cast<ProductAlgorithm>(algorithm));
  return algorithms;
}

void run_product(CudaQueue& queue, const Product& product, const ProductAlgorithm& algorithm) {
  engine_of(queue.device()).run(product, std::bit_cast<cublasLtMatmulAlgo_t>(algorithm), queue);
}

void enqueue_product(Stream& stream, const Product& product) {
  if (product.m == 0 || product.n == 0) return;
  stream.enqueue(
      [queue = stream.queue(), product] { run_product(static_cast<CudaQueue&>(*queue), product); });
}

bool try_product(Stream& stream, const Product& product) {
  if (stream.mode() == Stream::Mode::Dry || product.m == 0 || product.n == 0) return true;
  if (stream.mode() == Stream::Mode::Worker) return false;
  return try_product(static_cast<CudaQueue&>(*stream.queue()), product);
}

std::byte* factor_memory(CudaQueue& queue, size_t bytes) {
  return static_cast<std::byte*>(queue.workspace(kProductWorkspace + bytes)) + kProductWorkspace;
}

}  // namespace trifold::cuda
