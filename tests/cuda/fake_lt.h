// A fake cuBLASLt: it proposes numbered algorithms, rejects those that a test names, and records what it was
// asked for. It multiplies nothing.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ops/cuda/lt_engine.h"

namespace trifold::test {

// State for tests to set and inspect; one test at a time.
struct FakeLt {
  // The numbers of the algorithms that it proposes, best first.
  std::vector<uint64_t> proposed = {1};
  // The answer to a multiplication with an algorithm, for a beta.
  std::function<cublasStatus_t(uint64_t algorithm, float beta)> answer = [](uint64_t, float) {
    return CUBLAS_STATUS_SUCCESS;
  };

  std::vector<int> asked;            // proposals wanted by each query
  std::vector<uint64_t> multiplied;  // algorithms, in the order of the calls
  std::vector<const void*> scales;   // addresses set in descriptions
  std::vector<int32_t> scale_modes;  // and modes of scales
  int alive = 0;                     // descriptions that were not destroyed
  int texts = 0;                     // texts of a status that were asked for
};
extern FakeLt fake_lt;

const cuda::blas::Lt& fake_lt_table();

// A queue whose workspace is the host's.
class FakeQueue final : public DeviceQueue {
 public:
  void* native() override { return nullptr; }
  uint64_t record() override { return 0; }
  void wait(DeviceQueue&, uint64_t) override {}
  void await(uint64_t) override {}
  void synchronize() override {}
  void copy(void*, const void*, size_t) override {}
  void* workspace(size_t) override { return nullptr; }
  void check_launch(const char*) override {}
  void begin_capture() override {}
  std::unique_ptr<DeviceGraph> end_capture() override { return nullptr; }
  void launch(DeviceGraph&) override {}
};

}  // namespace trifold::test
