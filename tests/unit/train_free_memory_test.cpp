#include "train/free_memory.h"

#include <gtest/gtest.h>

#include <fstream>

#include "checkpoint_bench.h"

namespace trifold {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;

constexpr size_t kOneMib = size_t{1} << 20;

void put_file(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

TEST(FreeMemory, IsWhatTheSystemSays) {
  const TemporaryFolder root;
  EXPECT_EQ(free_memory(root.path()), 0U);  // nothing is known
  put_file(root.path() / "proc/meminfo", "MemTotal:  8192 kB\nMemFree:  1024 kB\nMemAvailable:  4096 kB\n");
  EXPECT_EQ(free_memory(root.path()), 4 * kOneMib);
  EXPECT_GT(free_memory(), 0U);
}

// The group of the process has no limit, one around it does; its cache of files gives way.
TEST(FreeMemory, IsWhatTheControlGroupsLeave) {
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
