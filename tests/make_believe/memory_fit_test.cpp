// A run that the memory of its device cannot hold is refused before anything of it is made. The device has as
// much as the test says.
#include "train/memory_fit.h"

#include <algorithm>
#include <optional>

#include "config/validate.h"
#include "core/error.h"
#include "make_believe/runs.h"
#include "train/plan_report.h"

namespace trifold::test {
namespace {

constexpr size_t kMib = size_t{1} << 20;

// A variable of the environment for as long as this lives.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) { setenv(name, value.c_str(), 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

PretrainConfig run_of(int dp, int pp = 1) {
  PretrainConfig config = on_device(on_mesh(short_run(), dp, 1, pp));
  config.model.num_layers = 8;
  return config;
}

std::vector<size_t> needs_of(const PretrainConfig& config) {
  PlanConfig plan;
  plan.run = config;
  std::vector<size_t> needs;
  for (const PlannedRank& rank : plan_ranks(resolve(std::move(plan))))
    needs.push_back(rank.memory.predicted_total());
  return needs;
}

// What is wrong when the device has so many bytes; empty where nothing is.
std::string problem(const PretrainConfig& config, size_t bytes) {
  const Variable memory("TRIFOLD_MAKE_BELIEVE_MEMORY", std::to_string(bytes));
  try {
    check_memory_fits(config);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    return error.what();
  }
  return "";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

class MemoryOfADevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!is_make_believe()) GTEST_SKIP() << "only the memory of the make-believe device can be set";
  }
};

TEST_F(MemoryOfADevice, HoldsTheRanksThatShareIt) {
  const PretrainConfig one = run_of(1);
  const size_t need = needs_of(one).front();
  EXPECT_EQ(problem(one, need), "");
  const std::string alone = problem(one, need - 1);
  EXPECT_TRUE(has(alone, "1 rank of this run needs ") && has(alone, " of memory on its device, which has "))
      << alone;
  EXPECT_FALSE(has(alone, "mpirun")) << alone;

  const PretrainConfig two = run_of(2);
  const size_t each = needs_of(two).front();
  EXPECT_EQ(problem(two, 2 * each), "");
  const std::string shared = problem(two, 2 * each - 1);
  EXPECT_TRUE(has(shared, "2 ranks of this run need ") && has(shared, " of memory on one device, which has "))
      << shared;
  EXPECT_TRUE(has(shared, "a device for each rank (mpirun -n 2) (")) << shared;
  EXPECT_FALSE(has(problem(two, each - 1), "mpirun")) << "a device alone would not do";
}

// Processes have a device each, and each knows the pipeline rank that it is.
TEST_F(MemoryOfADevice, HoldsTheRankOfAProcess) {
  const PretrainConfig config = run_of(1, 2);
  const std::vector<size_t> needs = needs_of(config);
  const size_t most = std::max(needs[0], needs[1]), least = std::min(needs[0], needs[1]);
  ASSERT_LT(least, most);
  const Variable size("OMPI_COMM_WORLD_SIZE", "2");
  for (const int rank : {0, 1}) {
    const Variable number("OMPI_COMM_WORLD_RANK", std::to_string(rank));
    const std::string told = problem(config, most - 1);
    if (needs[static_cast<size_t>(rank)] == least) {
      EXPECT_EQ(told, "");
      continue;
    }
    EXPECT_TRUE(has(told, fmt::format("pipeline rank {} needs ", rank))) << told;
    EXPECT_TRUE(has(told, "the largest device of this host has ")) << told;
    EXPECT_EQ(problem(config, most), "");
  }
}

TEST_F(MemoryOfADevice, CountsNothingWhereALimitIsGiven) {
  PretrainConfig config = run_of(1);
  config.mesh.memory_limit = 100;
  EXPECT_EQ(problem(config, kMib / 1024), "");
}

}  // namespace
}  // namespace trifold::test
