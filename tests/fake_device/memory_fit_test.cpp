// A run that does not fit its device's memory is rejected before anything is allocated. The test sets the size of the
// memory.
#include "plan/memory_fit.h"

#include <algorithm>
#include <optional>

#include "config/commands/validate.h"
#include "core/error.h"
#include "fake_device/runs.h"
#include "run/ranks.h"
#include "support/plans.h"

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
  for (const PlannedRank& rank : ranks_of(resolve(std::move(plan))))
    needs.push_back(rank.memory.predicted_total());
  return needs;
}

// The problem if the device has `bytes` bytes; empty if there is none.
std::string problem(const PretrainConfig& config, size_t bytes) {
  const Variable memory("TRIFOLD_FAKE_DEVICE_MEMORY", std::to_string(bytes));
  try {
    check_memory_fits(config, PlannedRuns(run_spec_here(config)));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    return error.what();
  }
  return "";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// The number of workspaces allocated or grown so far.
int64_t work_spaces() {
  int64_t made = 0;
  int64_t captures = 0;
  int64_t urgent = 0;
  fake_device_function<void(int64_t*, int64_t*, int64_t*)>("fake_device_made")(&made, &captures, &urgent);
  return made;
}

class MemoryOfADevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!is_fake_device()) GTEST_SKIP() << "only the memory of the fake device can be set";
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
    const std::string text = problem(config, most - 1);
    if (needs[static_cast<size_t>(rank)] == least) {
      EXPECT_EQ(text, "");
      continue;
    }
    EXPECT_TRUE(has(text, fmt::format("pipeline rank {} needs ", rank))) << text;
    EXPECT_TRUE(has(text, "the largest device of this host has ")) << text;
    EXPECT_EQ(problem(config, most), "");
  }
}

TEST_F(MemoryOfADevice, CountsNothingWhereALimitIsGiven) {
  PretrainConfig config = run_of(1);
  config.mesh.memory_limit = 100;
  EXPECT_EQ(problem(config, kMib / 1024), "");
}

// What a rank's stream of computation holds after steps, asked of itself: as much as a plan says and not a
// byte more. In bf16 the attention of these shapes takes more than products do.
TEST_F(MemoryOfADevice, HoldsTheWorkSpaceOfAPlanToTheByte) {
  for (const bool bf16 : {false, true})
    for (const int tp : {1, 2}) {
      SCOPED_TRACE(fmt::format("bf16 {}, {} tensor ranks", bf16, tp));
      PretrainConfig config = on_device(on_mesh(short_run(), 1, tp));
      config.model.num_layers = 1;
      config.model.hidden_size = 64;
      config.model.num_attention_heads = 8;
      config.model.ffn_hidden_size = 64;
      config.model.seq_length = config.model.max_position_embeddings.emplace(1024);
      config.batch.micro_batch_size = 8;
      config.batch.global_batch_size = 8;
      config.precision.bf16 = bf16;
      PlanConfig plan;
      plan.run = config;
      const std::vector<PlannedRank> planned = ranks_of(resolve(std::move(plan)));
      const std::unique_ptr<DataSource> data = few_tokens(config.model);
      run_on_ranks(config.mesh, [&](Communicator& world) {
        Trainer trainer(world, config, *data, nullptr);
        trainer.step();
        trainer.step();
        world.barrier();
        if (world.rank() == 0) {
          const size_t bytes = planned.front().memory.workspace;
          EXPECT_EQ(bytes > size_t{34} << 20, bf16);
          DeviceQueue& queue = *trainer.replica().compute().queue();
          const int64_t before = work_spaces();
          queue.workspace(bytes);
          EXPECT_EQ(work_spaces(), before) << "it holds less than " << bytes << " bytes";
          queue.workspace(bytes + 1);
          EXPECT_EQ(work_spaces(), before + 1) << "it holds more than " << bytes << " bytes";
        }
        world.barrier();
      });
    }
}

}  // namespace
}  // namespace trifold::test
