// Which algorithm a product gets, over a fake cuBLASLt (fake_lt.h).
#include "ops/cuda/lt_engine.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "cuda/fake_lt.h"

namespace trifold::test {
namespace {

using cuda::Product;
using cuda::blas::LtEngine;
using Numbers = std::vector<uint64_t>;

class Algorithms : public ::testing::Test {
 protected:
  Algorithms() { fake_lt = {}; }
  ~Algorithms() override { EXPECT_EQ(fake_lt.alive, 0) << "descriptions that were not destroyed"; }

  static Product product(double beta = 0) {
    return {.factors = DType::BF16,
            .result = DType::BF16,
            .m = 48,
            .n = 64,
            .k = 32,
            .transpose_a = true,
            .transpose_b = false,
            .a = nullptr,
            .b = nullptr,
            .d = nullptr,
            .alpha = 1,
            .beta = beta};
  }
  static void reject(const Numbers& which, cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED) {
    fake_lt.answer = [which, status](uint64_t algorithm, float) {
      return std::find(which.begin(), which.end(), algorithm) != which.end() ? status : CUBLAS_STATUS_SUCCESS;
    };
  }
  // The algorithms with which it was asked to multiply since the last call.
  static Numbers multiplied() { return std::exchange(fake_lt.multiplied, {}); }
  template <class Run>
  static std::string failure_of(Run run) {
    try {
      run();
    } catch (const Error& error) {
      return (error.kind() == ErrorKind::BadInput ? "bad input: " : "failure: ") + std::string(error.what());
    }
    return "none";
  }
  std::string failure(const Product& each) {
    return failure_of([&] { engine_.run(each, queue_); });
  }

  FakeQueue queue_;
  LtEngine engine_{fake_lt_table(), "fake:0", "fake"};
};

TEST_F(Algorithms, TheFirstProposalIsTakenWithoutAskingForOthers) {
  fake_lt.proposed = {7, 8};
  for (int i = 0; i < 3; ++i) engine_.run(product(), queue_);
  EXPECT_EQ(multiplied(), (Numbers{7, 7, 7}));
  EXPECT_EQ(fake_lt.asked, std::vector<int>{1});
}

TEST_F(Algorithms, NoMessageIsWrittenForAProductThatRuns) {
  engine_.run(product(), queue_);
  engine_.run(product(), queue_);
  EXPECT_TRUE(engine_.try_run(product(), queue_));
  engine_.run(product(), engine_.propose(product(), 1).front(), queue_);
  EXPECT_EQ(fake_lt.texts, 0);
}

TEST_F(Algorithms, ARejectedOneIsFollowedByTheNextWhichIsKept) {
  fake_lt.proposed = {7, 8, 9, 10};
  for (const cublasStatus_t status :
       {CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_INVALID_VALUE, CUBLAS_STATUS_ARCH_MISMATCH}) {
    reject({7, 8}, status);
    LtEngine engine(fake_lt_table(), "fake:0", "fake");  // as of another rank or run
    fake_lt.asked.clear();
    engine.run(product(), queue_);
    EXPECT_EQ(multiplied(), (Numbers{7, 8, 9}));
    EXPECT_EQ(fake_lt.asked.size(), 2u);
    EXPECT_TRUE(engine.try_run(product(), queue_));
    EXPECT_EQ(multiplied(), Numbers{9});
    EXPECT_EQ(fake_lt.asked.size(), 2u) << "it was asked for proposals again";
  }
}

TEST_F(Algorithms, IfAllAreRejectedTheProductIsNamed) {
  fake_lt.proposed = {7, 8};
  reject({7, 8});
  EXPECT_FALSE(engine_.try_run(product(), queue_));
  EXPECT_EQ(multiplied(), (Numbers{7, 8}));
  EXPECT_FALSE(engine_.try_run(product(), queue_));
  EXPECT_EQ(multiplied(), Numbers{}) << "that there is none was forgotten";
  const std::string said = failure(product());
  for (const char* part : {"bf16 x bf16", "m 48 n 64 k 32, TN", "fake:0",
                           "rejects each of the 2 that it proposes", "fake: not supported"})
    EXPECT_NE(said.find(part), std::string::npos) << part << " is not in: " << said;
}

TEST_F(Algorithms, WithoutProposalsNothingIsMultiplied) {
  fake_lt.proposed = {};
  EXPECT_FALSE(engine_.try_run(product(), queue_));
  EXPECT_EQ(multiplied(), Numbers{});
  EXPECT_NE(failure(product()).find("it proposes none"), std::string::npos) << failure(product());
}

// Then the description is wrong: a caller that has another way must not hide it.
TEST_F(Algorithms, AProductThatIsInvalidForEachAlgorithmIsAnError) {
  fake_lt.proposed = {7, 8};
  reject({7, 8}, CUBLAS_STATUS_INVALID_VALUE);
  for (int i = 0; i < 2; ++i) {
    const std::string said = failure_of([&] { engine_.try_run(product(), queue_); });
    for (const char* part : {"failure: ", "m 48 n 64 k 32, TN", "fake:0",
                             "invalid for each of the 2 algorithms that cuBLASLt proposes"})
      EXPECT_NE(said.find(part), std::string::npos) << part << " is not in: " << said;
  }
  fake_lt.answer = [](uint64_t algorithm, float) {
    return algorithm == 7 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_INVALID_VALUE;
  };
  EXPECT_FALSE(engine_.try_run(product(), queue_));
}

// Such a failure may have left work behind, and the next algorithm would hide it.
TEST_F(Algorithms, AFailedMultiplicationIsNoRejection) {
  fake_lt.proposed = {7, 8};
  reject({7}, CUBLAS_STATUS_EXECUTION_FAILED);
  EXPECT_THROW(engine_.try_run(product(), queue_), Error);
  EXPECT_EQ(multiplied(), Numbers{7});
  EXPECT_NE(failure(product()).find("fake: failed"), std::string::npos) << failure(product());
}

// Whether it adds is not part of a query for proposals.
TEST_F(Algorithms, AProductThatAddsMayHaveAnother) {
  fake_lt.proposed = {7, 8};
  fake_lt.answer = [](uint64_t algorithm, float beta) {
    return algorithm == 7 && beta != 0 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
  };
  for (const double beta : {0.0, 1.0, 0.0, 1.0}) engine_.run(product(beta), queue_);
  EXPECT_EQ(multiplied(), (Numbers{7, 7, 8, 7, 8}));
}

TEST_F(Algorithms, OnlyThoseThatRunAreMeasured) {
  fake_lt.proposed = {7, 8, 9};
  reject({7, 9});
  engine_.measure(true);
  engine_.run(product(), queue_);
  EXPECT_EQ(multiplied().back(), 8u);
  const std::vector<ProductChoice> choices = engine_.choices();
  ASSERT_EQ(choices.size(), 1u);
  EXPECT_EQ(choices[0].algorithm.substr(0, 16), "0000000000000008");
  engine_.measure(false);

  LtEngine other(fake_lt_table(), "fake:0", "fake");
  other.use(choices);
  other.run(product(), queue_);
  EXPECT_EQ(multiplied(), Numbers{8});
}

// The set of algorithms that run depends on it.
TEST_F(Algorithms, AProductThatAddsIsMeasuredAndKeptApart) {
  fake_lt.proposed = {7, 8};
  fake_lt.answer = [](uint64_t algorithm, float beta) {
    return (algorithm == 7) == (beta == 0) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
  };
  engine_.measure(true);
  for (const double beta : {0.0, 1.0}) engine_.run(product(beta), queue_);
  engine_.measure(false);
  EXPECT_EQ(engine_.choices().size(), 2u);
  multiplied();

  LtEngine other(fake_lt_table(), "fake:0", "fake");
  other.use(engine_.choices());
  for (const double beta : {0.0, 1.0}) other.run(product(beta), queue_);
  EXPECT_EQ(multiplied(), (Numbers{7, 8}));
}

// Another would have other bits than the runs before.
TEST_F(Algorithms, AKeptOneThatIsRejectedIsNotReplaced) {
  fake_lt.proposed = {7, 8};
  engine_.measure(true);
  engine_.run(product(), queue_);
  const std::vector<ProductChoice> choices = engine_.choices();
  const uint64_t kept = multiplied().back();
  for (const cublasStatus_t status : {CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_INVALID_VALUE}) {
    reject({kept}, status);
    engine_.use(choices);
    for (const std::string& said :
         {failure(product()), failure_of([&] { engine_.try_run(product(), queue_); })})
      for (const char* part : {"bad input: ", "rejects the algorithm kept for a product (bf16 x bf16",
                               "fake:0", "--tune-products", "measured again"})
        EXPECT_NE(said.find(part), std::string::npos) << part << " is not in: " << said;
    EXPECT_EQ(multiplied(), (Numbers{kept, kept}));
  }
}

TEST_F(Algorithms, ScalesInEightBitsAreAtMultiplesOfSixteenBytes) {
  alignas(32) const std::array<float, 16> scales{};
  Product narrow = product();
  narrow.narrow_a = {cpu::Fp8::E4M3, scales.data()};
  narrow.narrow_b = {cpu::Fp8::E5M2, scales.data() + 4};
  engine_.run(narrow, queue_);
  EXPECT_EQ(fake_lt.scales, (std::vector<const void*>{scales.data(), scales.data() + 4}));
  EXPECT_EQ(fake_lt.scale_modes, std::vector<int32_t>{});
  narrow.narrow_b.scale = scales.data() + 1;
  EXPECT_NE(failure(narrow).find("4 bytes past a multiple of 16"), std::string::npos) << failure(narrow);
}

// Rows of an activation with squares of a weight, and the columns of both factors of a weight's gradient, are other
// products than those with one scale each, so their algorithms are chosen apart.
TEST_F(Algorithms, ScalesOfBlocksAreDescribed) {
  alignas(32) const std::array<float, 16> scales{};
  Product narrow = product();
  narrow.narrow_a = narrow.narrow_b = {cpu::Fp8::E4M3, scales.data()};
  fake_lt.proposed = {7};
  engine_.run(narrow, queue_);
  narrow.narrow_a.form = cuda::ScaleForm::Squares;
  narrow.narrow_b.form = cuda::ScaleForm::Rows;
  engine_.run(narrow, queue_);
  EXPECT_EQ(fake_lt.scale_modes, (std::vector<int32_t>{CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F,
                                                       CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F}));
  narrow.narrow_a.form = cuda::ScaleForm::Rows;
  engine_.run(narrow, queue_);
  EXPECT_EQ(fake_lt.asked.size(), 3U);
  fake_lt.proposed = {};
  narrow.m = 64;
  EXPECT_NE(failure(narrow).find("e4m3 in rows x e4m3 in rows"), std::string::npos) << failure(narrow);
}

}  // namespace
}  // namespace trifold::test
