#include "core/host_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "checkpoint_bench.h"

namespace trifold {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;

constexpr size_t kKib = 1024;
constexpr size_t kOneMib = size_t{1} << 20;

void put_file(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

// Files of a system of our own.
class HostMemory : public ::testing::Test {
 protected:
  HostMemory() {
    write("proc/meminfo", "MemTotal:       1000 kB\nMemFree:  1 kB\nSwapTotal:       200 kB\n");
  }
  void write(const std::string& path, const std::string& text) { put_file(root_.path() / path, text); }
  size_t memory() const { return host_memory(root_.path()); }
  TemporaryFolder root_;
};

TEST_F(HostMemory, IsMemoryAndSwapSpace) {
  EXPECT_EQ(memory(), 1200 * kKib);
  EXPECT_EQ(host_memory(root_.path() / "nowhere"), 0U);
  EXPECT_GT(host_memory(), size_t{64} << 20);
}

TEST_F(HostMemory, ThatIsResidentIsThisProcess) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  write("proc/self/statm", "900 70 12 1 0 50 0\n");
  EXPECT_EQ(resident_memory(root_.path()), 70 * page);
  EXPECT_EQ(resident_memory(root_.path() / "nowhere"), 0U);
  EXPECT_GT(resident_memory(), kOneMib);
}

TEST_F(HostMemory, WithoutSwapSpaceCanBePinned) {
  EXPECT_EQ(physical_memory(root_.path()), 1000 * kKib);
  EXPECT_EQ(physical_memory(root_.path() / "nowhere"), 0U);
  write("proc/self/cgroup", "0::/mine\n");
  write("sys/fs/cgroup/mine/memory.max", std::to_string(500 * kKib));
  EXPECT_EQ(physical_memory(root_.path()), 500 * kKib);
}

TEST_F(HostMemory, IsLimitedByEveryGroupAroundTheProcess) {
  write("proc/self/cgroup", "0::/jobs/mine\n");
  write("sys/fs/cgroup/jobs/mine/memory.max", "max\n");
  EXPECT_EQ(memory(), 1200 * kKib);
  write("sys/fs/cgroup/jobs/memory.max", std::to_string(500 * kKib) + "\n");
  EXPECT_EQ(memory(), 700 * kKib);
  write("sys/fs/cgroup/jobs/memory.swap.max", "0\n");
  EXPECT_EQ(memory(), 500 * kKib);
}

// The container's own tree begins at its group, whose path is still that of the host.
TEST_F(HostMemory, IsLimitedByTheRootOfAContainer) {
  write("proc/self/cgroup", "0::/system.slice/docker-1234.scope\n");
  write("sys/fs/cgroup/memory.max", std::to_string(300 * kKib));
  write("sys/fs/cgroup/memory.swap.max", "0");
  EXPECT_EQ(memory(), 300 * kKib);
}

TEST_F(HostMemory, KnowsVersion1OfControlGroups) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/a/b\n0::/\n");
  write("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(memory(), 1200 * kKib);
  write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", std::to_string(400 * kKib));
  EXPECT_EQ(memory(), 600 * kKib);
  write("sys/fs/cgroup/memory/a/memory.memsw.limit_in_bytes", std::to_string(450 * kKib));
  EXPECT_EQ(memory(), 450 * kKib);
}

TEST(FreeMemory, EqualsTheFigureOfTheSystem) {
  const TemporaryFolder root;
  EXPECT_EQ(free_memory(root.path()), 0U);  // nothing is known
  put_file(root.path() / "proc/meminfo", "MemTotal:  8192 kB\nMemFree:  1024 kB\nMemAvailable:  4096 kB\n");
  EXPECT_EQ(free_memory(root.path()), 4 * kOneMib);
  EXPECT_GT(free_memory(), 0U);
}

// The group of the process has no limit, one around it does; its cache of files gives way.
TEST(FreeMemory, EqualsTheRestOfTheControlGroups) {
  const TemporaryFolder root;
  put_file(root.path() / "proc/meminfo", "MemAvailable:  1048576 kB\n");
  put_file(root.path() / "proc/self/cgroup", "0::/job/step\n");
  const fs::path job = root.path() / "sys/fs/cgroup/job";
  put_file(job / "step/memory.max", "max\n");
  put_file(job / "step/memory.current", "1000\n");
  put_file(job / "memory.max", fmt::format("{}\n", 100 * kOneMib));
  put_file(job / "memory.current", fmt::format("{}\n", 80 * kOneMib));
  put_file(job / "memory.stat", fmt::format("anon 5\ninactive_file {}\n", 30 * kOneMib));
  EXPECT_EQ(free_memory(root.path()), 50 * kOneMib);
  put_file(job / "memory.current", fmt::format("{}\n", 200 * kOneMib));
  EXPECT_EQ(free_memory(root.path()), 1U);  // nothing is left, which is not the same as not known
}

TEST(FreeMemory, KnowsTheFirstVersionOfControlGroups) {
  const TemporaryFolder root;
  put_file(root.path() / "proc/meminfo", "MemAvailable:  1048576 kB\n");
  put_file(root.path() / "proc/self/cgroup", "5:cpu,cpuacct:/\n4:memory:/docker/0123\n");
  const fs::path memory = root.path() / "sys/fs/cgroup/memory";
  put_file(memory / "memory.limit_in_bytes", fmt::format("{}\n", 64 * kOneMib));
  put_file(memory / "memory.usage_in_bytes", fmt::format("{}\n", 60 * kOneMib));
  put_file(memory / "memory.stat", fmt::format("cache 7\ntotal_inactive_file {}\n", 4 * kOneMib));
  EXPECT_EQ(free_memory(root.path()), 8 * kOneMib);
}

}  // namespace
}  // namespace trifold
