// Where the programs of this folder find the module, before it is looked for first.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "nccl_order/over_nccl.h"
#include "support/start_ranks.h"

namespace trifold::test {
namespace {

class OrderModule : public ::testing::Environment {
 public:
  void SetUp() override {
    setenv("TRIFOLD_MODULE_PATH", NCCL_ORDER_MODULE, 1);
    setenv("TRIFOLD_CUDA_LIBRARY_PATH", NCCL_ORDER_MODULE, 1);
    setenv("TRIFOLD_FAKE_DEVICES", std::to_string(kMostRanks).c_str(), 1);
#ifdef NCCL_ORDER_OF_EVERY_RUN
    setenv("TRIFOLD_TEST_DEVICE", "cuda", 1);
    start_ranks = start_and_check_order;
#else
    start_ranks = start_over_nccl;
#endif
  }
};
const auto* const kOrderModule = ::testing::AddGlobalTestEnvironment(new OrderModule);

}  // namespace
}  // namespace trifold::test
