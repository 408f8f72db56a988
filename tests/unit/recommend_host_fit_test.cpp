// A recommender that does not fit its host is rejected before it starts, with ways that do fit.
#include "recommend/planning/host_fit.h"

#include <gtest/gtest.h>

#include <regex>

namespace trifold::test {
namespace {

constexpr size_t kGib = size_t{1} << 30;

ClickSchema tables_of_a_host() {
  ClickSchema schema;
  schema.dense = 3;
  schema.tables = {{"C1", 100'000'000, 1}, {"C2", 50'000'000, 1}, {"C3", 20, 1}};
  return schema;
}

RecommendConfig on_ranks(int ranks, ComputeDevice device) {
  RecommendConfig config;
  config.model.embedding_dim = 16;
  config.model.bottom_mlp = {16};
  config.model.top_mlp = {8, 1};
  config.training.global_batch_size = 1024;
  config.placement.placement = TablePlacements::parse("row");
  config.mesh.ranks = ranks;
  config.mesh.device = device;
  if (device == ComputeDevice::Cuda) config.placement.table_cache = 0.1;
  return config;
}

// What all ranks take on one host.
size_t needed(const RecommendConfig& config) {
  const RecommenderSetup setup = recommender_setup(config, tables_of_a_host(), config.mesh.ranks);
  const bool has_device = config.mesh.device == ComputeDevice::Cuda;
  size_t sum = 0;
  for (const RecommenderMemory& rank :
       memory_of_ranks(setup, placement_of(setup, config.mesh.ranks), has_device))
    sum += rank.on_host(has_device);
  return sum;
}

// The message of a rejection; empty if accepted.
std::string refusal(const RecommendConfig& config, size_t host) {
  try {
    check_host_fits(config, recommender_setup(config, tables_of_a_host(), config.mesh.ranks), host);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    return error.what();
  }
  return {};
}

TEST(HostFit, CountsTheRanksOfAHostTogether) {
  for (const ComputeDevice device : {ComputeDevice::Cpu, ComputeDevice::Cuda}) {
    const RecommendConfig config = on_ranks(4, device);
    const size_t all = needed(config);
    EXPECT_GT(all, 89 * kGib / 10);  // 150 million rows of 64 bytes are 8.94 GiB
    EXPECT_LT(all, 10 * kGib);
    EXPECT_EQ(refusal(config, all), "");
    EXPECT_EQ(refusal(config, 0), "") << "the system does not say what it has";
    const std::string text = refusal(config, all - 1);
    const bool has_device = device == ComputeDevice::Cuda;
    EXPECT_TRUE(std::regex_search(
        text,
        std::regex(
            has_device
                ? R"(4 ranks of this run need at least [89]\.\d+ GiB of memory for the tables of devices on this host, )"
                  R"(which has [89]\.\d+ GiB: up to 2\.\d+ GiB a rank \(pinned 2\.\d+ GiB, owners of rows and caches )"
                : R"(4 ranks of this run need at least [89]\.\d+ GiB of memory on this host, which has [89]\.\d+ GiB: )"
                  R"(up to 2\.\d+ GiB a rank \(tables 2\.\d+ GiB, )")))
        << text;
  }
}

// What the message names does fit.
TEST(HostFit, SaysWhatWouldDo) {
  for (const ComputeDevice device : {ComputeDevice::Cpu, ComputeDevice::Cuda}) {
    const RecommendConfig config = on_ranks(2, device);
    const size_t host = 3 * kGib;
    const std::string text = refusal(config, host);
    std::smatch found;
    ASSERT_TRUE(std::regex_search(
        text, found,
        std::regex(R"(it fits with --table-storage DIR --table-cache ([\d.]+) \((.*) on this host\), )"
                   R"(or with --ranks (\d+) on (\d+) times as many hosts \(2\.\d+ GiB on each\))")))
        << text;
    RecommendConfig files = config;
    files.placement.table_storage = ".";
    files.placement.table_cache = std::stod(found[1]);
    EXPECT_EQ(refusal(files, host), "");
    EXPECT_EQ(std::stoi(found[3]), 2 * std::stoi(found[4]));
    RecommendConfig more = config;
    more.mesh.ranks = std::stoi(found[3]);
    EXPECT_LE(needed(more) / std::stoul(found[4]), host);
    more.mesh.ranks /= 2;
    EXPECT_GT(needed(more) / (std::stoul(found[4]) / 2), host);
    EXPECT_NE(
        refusal(config, 1024)
            .find("neither tables in files (--table-storage) nor up to 64 times as many ranks make it fit"),
        std::string::npos);
  }
}

}  // namespace
}  // namespace trifold::test
