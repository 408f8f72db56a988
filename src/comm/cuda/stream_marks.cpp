#include "comm/cuda/stream_marks.cuh"

#include "core/cuda/cuda_error.cuh"

namespace trifold::cuda {

namespace {

class CudaMarks final : public StreamMarks {
 public:
  explicit CudaMarks(CudaDevice& device) : device_(device) {}

  std::string device_name() const override { return device_.name(); }
  void use() noexcept override { static_cast<void>(cudaSetDevice(device_.index())); }
  cudaEvent_t make() override {
    cudaEvent_t mark = nullptr;
    check_cuda(cudaEventCreateWithFlags(&mark, cudaEventDisableTiming), "making an event on {}",
               device_.name());
    return mark;
  }
  void record(cudaEvent_t mark, cudaStream_t stream) override {
    check_cuda(cudaEventRecord(mark, stream), "recording an event on {}", device_.name());
  }
  bool passed(cudaEvent_t mark) noexcept override { return cudaEventQuery(mark) != cudaErrorNotReady; }
  void destroy(cudaEvent_t mark) noexcept override { static_cast<void>(cudaEventDestroy(mark)); }

 private:
  CudaDevice& device_;
};

}  // namespace

std::unique_ptr<StreamMarks> cuda_marks(CudaDevice& device) { return std::make_unique<CudaMarks>(device); }

}  // namespace trifold::cuda
