#include "core/control_groups.h"

#include <gtest/gtest.h>

#include <fstream>

#include "checkpoint_bench.h"

namespace trifold {
namespace {

namespace fs = std::filesystem;

// Files of a system of our own.
class ControlGroups : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    const fs::path file = root_.path() / path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  double limit() const { return core_limit(root_.path()); }
  test::TemporaryFolder root_;
};

TEST_F(ControlGroups, WithoutALimitIsZero) {
  EXPECT_EQ(limit(), 0);
  write("proc/self/cgroup", "0::/mine\n");
  write("sys/fs/cgroup/mine/cpu.max", "max 100000\n");
  EXPECT_EQ(limit(), 0);
}

TEST_F(ControlGroups, TheSmallestLimitOfAllAncestorsCounts) {
  write("proc/self/cgroup", "0::/jobs/mine\n");
  write("sys/fs/cgroup/jobs/mine/cpu.max", "400000 100000\n");
  EXPECT_EQ(limit(), 4);
  write("sys/fs/cgroup/jobs/cpu.max", "150000 100000\n");
  EXPECT_EQ(limit(), 1.5);
}

TEST_F(ControlGroups, Version1HasAQuotaAndAPeriod) {
  write("proc/self/cgroup", "4:memory:/other\n3:cpu,cpuacct:/mine\n");
  write("sys/fs/cgroup/cpu/mine/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu/mine/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(limit(), 0);
  write("sys/fs/cgroup/cpu/mine/cpu.cfs_quota_us", "200000\n");
  EXPECT_EQ(limit(), 2);
}

}  // namespace
}  // namespace trifold
