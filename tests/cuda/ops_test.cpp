// Every entry of the CUDA table against the processor's in f64 and in its own type, on a GPU: the cases that
// the kernels pass under the emulation (conformance/emulated_ops_test.cpp), here with cuBLASLt's products and
// cuDNN's attention. Without a GPU the tests skip with the reason.
#include <gtest/gtest.h>

#include "conformance/op_table.h"
#include "support/device_ops.h"

namespace trifold::conformance {
namespace {

std::vector<OpCase> all_cases() {
  std::vector<OpCase> cases = op_cases();
  for (OpCase& test : recommender_op_cases()) cases.push_back(std::move(test));
  for (OpCase& test : block_op_cases()) cases.push_back(std::move(test));
  return cases;
}

class CudaOps : public testing::TestWithParam<OpCase> {};

TEST_P(CudaOps, AgreesWithTheProcessor) {
  std::string why;
  const OpTable* ops = test::device_ops(why);
  if (ops == nullptr) GTEST_SKIP() << why;
  ThreadPool pool(1);
  Stream stream(Stream::Mode::Inline, pool, ops->device);
  check_case(GetParam(), *ops, stream);
}

TEST(CudaNormsInParts, HaveTheBitsOfTheWhole) {
  std::string why;
  const OpTable* ops = test::device_ops(why);
  if (ops == nullptr) GTEST_SKIP() << why;
  ThreadPool pool(1);
  Stream stream(Stream::Mode::Inline, pool, ops->device);
  check_norms_in_parts(*ops, stream);
}

INSTANTIATE_TEST_SUITE_P(All, CudaOps, testing::ValuesIn(all_cases()),
                         [](const testing::TestParamInfo<OpCase>& one) {
                           std::string name = std::to_string(one.index) + "_";
                           for (char c : one.param.name) name += std::isalnum(c) != 0 ? c : '_';
                           return name;
                         });

}  // namespace
}  // namespace trifold::conformance
