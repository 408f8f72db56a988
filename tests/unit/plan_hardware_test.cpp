#include "plan/forecast/hardware.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "plan/forecast/software.h"
#include "plan/resolve.h"
#include "support/refusal.h"

namespace trifold {
namespace {

using test::refusal;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class HardwareFile : public testing::Test {
 protected:
  std::string write(const std::string& text) {
    path_ =
        std::filesystem::temp_directory_path() /
        (std::string("trifold_") + testing::UnitTest::GetInstance()->current_test_info()->name() + ".json");
    std::ofstream(path_) << text;
    return path_.string();
  }
  void TearDown() override { std::filesystem::remove(path_); }

 private:
  std::filesystem::path path_;
};

TEST(Hardware, BuiltInDevicesAreComplete) {
  for (const std::string_view name : hardware_names()) {
    const Hardware hardware = find_hardware(std::string(name), DeviceFigures::Fitted);
    EXPECT_EQ(hardware.name, name);
    EXPECT_GT(hardware.product_rate(), 0) << name;
    EXPECT_GT(hardware.memory_rate(), 0) << name;
    EXPECT_GT(hardware.attention_share, 0) << name;
    EXPECT_GT(hardware.usable_bytes(), 0) << name;
    EXPECT_LT(hardware.usable_bytes(), hardware.memory_gib * (1 << 30)) << name;
  }
}

TEST(Hardware, UnknownNamesAreAnsweredWithTheKnownOnes) {
  const std::string message = refusal([] { find_hardware("v100", DeviceFigures::Fitted); });
  EXPECT_TRUE(contains(message, "v100") && contains(message, "a100-80gb") && contains(message, "b200"))
      << message;
}

TEST(Hardware, ValuesCanBeChanged) {
  Hardware hardware = find_hardware("h100", DeviceFigures::Fitted);
  set_value(hardware, "adapter-gbytes=12.5");
  EXPECT_EQ(hardware.adapter_gbytes, 12.5);
  EXPECT_TRUE(contains(refusal([&] { set_value(hardware, "adapter=1"); }), "adapter-gbytes"));
  EXPECT_TRUE(contains(refusal([&] { set_value(hardware, "tflops=-1"); }), "above 0"));
  EXPECT_TRUE(contains(refusal([&] { set_value(hardware, "tflops=fast"); }), "not a number"));
  EXPECT_TRUE(contains(refusal([&] { set_value(hardware, "tflops"); }), "KEY=VALUE"));
  for (const std::string key : {"wave-loss", "expert-share", "expert-weights-share"}) {
    set_value(hardware, key + "=1");
    EXPECT_TRUE(contains(refusal([&] { set_value(hardware, key + "=1.5"); }), "at most 1")) << key;
  }
}

// Blocks with one scale have no average of bytes that a change could set.
TEST(Hardware, RoundingBytesAreRefusedWithBlocks) {
  PlanConfig config;
  config.hardware = "h100";
  config.hardware_set = {"rounding-bytes=4"};
  config.run.precision.bf16 = config.run.precision.fp8 = true;
  EXPECT_EQ(planned_machine(config).hardware->rounding_bytes, 4);
  config.run.precision.fp8_recipe = Fp8Recipe::Blockwise;
  EXPECT_TRUE(contains(refusal([&] { planned_machine(config); }), "--fp8-recipe tensorwise"));
}

MeshConfig mesh_of(int ranks, std::optional<int> threads = {}) {
  MeshConfig mesh;
  mesh.ranks = ranks;
  mesh.threads_per_rank = threads;
  return mesh;
}

// One rank of 8 threads measured a machine of 8 cores, or two of 4 each.
TEST(Hardware, RanksDivideTheCoresOfAMachine) {
  Hardware one = find_hardware("cpu", DeviceFigures::Fitted);
  one.node_cores = one.rank_cores = one.devices_per_node = 8;
  const auto rate = [&](const Hardware& measured, int ranks, std::optional<int> threads = {}) {
    return of_ranks(measured, mesh_of(ranks, threads)).product_rate() / one.product_rate();
  };
  EXPECT_DOUBLE_EQ(rate(one, 1), 1);
  EXPECT_DOUBLE_EQ(rate(one, 2), 0.5);
  EXPECT_DOUBLE_EQ(rate(one, 3), 0.25);    // 2 threads each
  EXPECT_DOUBLE_EQ(rate(one, 16), 0.125);  // on two machines
  EXPECT_DOUBLE_EQ(rate(one, 2, 1), 0.125);
  EXPECT_DOUBLE_EQ(rate(one, 4, 8), 0.25);  // the cores are shared
  EXPECT_DOUBLE_EQ(of_ranks(one, mesh_of(4)).memory_rate(), one.memory_rate() / 4);
  EXPECT_DOUBLE_EQ(of_ranks(one, mesh_of(4)).memory_gib, one.memory_gib / 4);
  Hardware two = one;
  two.rank_cores = 4;
  two.devices_per_node = 2;
  two.tflops = one.tflops / 2;
  two.memory_gib = one.memory_gib / 2;
  EXPECT_DOUBLE_EQ(rate(two, 1), 1);
  EXPECT_DOUBLE_EQ(rate(two, 2), 0.5);
  EXPECT_DOUBLE_EQ(rate(two, 8), 0.5);  // on four machines
  EXPECT_DOUBLE_EQ(of_ranks(two, mesh_of(1)).memory_gib, one.memory_gib);
  EXPECT_DOUBLE_EQ(of_ranks(find_hardware("h100", DeviceFigures::Fitted), mesh_of(8)).tflops,
                   find_hardware("h100", DeviceFigures::Fitted).tflops);
}

TEST_F(HardwareFile, TakesTheRestFromItsBase) {
  const Hardware hardware = find_hardware(write(R"({"name": "lab", "base": "h200", "adapter-gbytes": 6.25})"),
                                          DeviceFigures::Fitted);
  EXPECT_EQ(hardware.name, "lab");
  EXPECT_EQ(hardware.adapter_gbytes, 6.25);
  EXPECT_EQ(hardware.memory_gib, find_hardware("h200", DeviceFigures::Fitted).memory_gib);
}

TEST_F(HardwareFile, IsNamedWithItsMistake) {
  for (const char* text : {R"({"base": "h200", "speed": 3})", R"({"base": "h200", "memory-gib": -3})"}) {
    const std::string file = write(text);
    const std::string message = refusal([&] { find_hardware(file, DeviceFigures::Fitted); });
    EXPECT_TRUE(contains(message, file)) << message;
  }
}

TEST_F(HardwareFile, WithoutBaseEveryKeyIsNeeded) {
  const std::string file = write(R"({"tflops": 100})");
  const std::string message = refusal([&] { find_hardware(file, DeviceFigures::Fitted); });
  EXPECT_TRUE(contains(message, "memory-gbytes") && contains(message, "base")) << message;
}

TEST_F(HardwareFile, ValuesAreInRange) {
  const auto message = [&](const std::string& rest) {
    const std::string file = write(R"({"base": "h100", )" + rest + "}");
    return refusal([&] { find_hardware(file, DeviceFigures::Fitted, "auto-layout"); });
  };
  EXPECT_TRUE(contains(message(R"("devices-per-node": 0.5)"), "must be at least 1"));
  EXPECT_TRUE(contains(message(R"("devices-per-node": 1e300)"), "it must be between"));
  EXPECT_TRUE(contains(message(R"("nvlink-gbytes": 1e-300)"), "it must be between"));
  const std::string half = message(R"("node-cores": 8)");
  EXPECT_TRUE(contains(half, "rank-cores") && contains(half, "--auto-layout")) << half;
  Hardware changed = find_hardware("h100", DeviceFigures::Fitted);
  set_value(changed, "node-cores=8");
  EXPECT_TRUE(contains(refusal([&] { of_ranks(changed, mesh_of(2)); }), "give both, or neither"));
}

TEST_F(HardwareFile, UnknownKeysAreRefused) {
  const std::string file = write(R"({"base": "h200", "adapter": 1})");
  const std::string message = refusal([&] { find_hardware(file, DeviceFigures::Fitted); });
  EXPECT_TRUE(contains(message, "'adapter'") && contains(message, "adapter-gbytes")) << message;
  const std::string other = write(R"({"base": "h300"})");
  EXPECT_TRUE(contains(refusal([&] { find_hardware(other, DeviceFigures::Fitted); }), "h200"));
}

TEST(Software, AssumptionsAreRead) {
  Software software;
  set_value(software, "attention=unfused");
  set_value(software, "overlap-gradients=0");
  set_value(software, "tensor-overlap=0.8");
  EXPECT_EQ(software.attention, AttentionKernel::Unfused);
  EXPECT_FALSE(software.overlap_gradients);
  EXPECT_EQ(software.tensor_overlap, 0.8);
  EXPECT_TRUE(contains(refusal([&] { set_value(software, "attention=slow"); }), "unfused"));
  EXPECT_TRUE(contains(refusal([&] { set_value(software, "tensor-overlap=2"); }), "0 to 1"));
  EXPECT_TRUE(contains(refusal([&] { set_value(software, "overlap=1"); }), "overlap-gradients"));
}

}  // namespace
}  // namespace trifold
