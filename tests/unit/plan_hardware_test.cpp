#include "plan/forecast/hardware.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "plan/forecast/software.h"

namespace trifold {
namespace {

// The message of the BadInput that `body` throws.
template <class Body>
std::string refusal(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}

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
    const Hardware hardware = find_hardware(std::string(name));
    EXPECT_EQ(hardware.name, name);
    EXPECT_GT(hardware.product_rate(), 0) << name;
    EXPECT_GT(hardware.memory_rate(), 0) << name;
    EXPECT_GT(hardware.attention_share, 0) << name;
    EXPECT_GT(hardware.usable_bytes(), 0) << name;
    EXPECT_LT(hardware.usable_bytes(), hardware.memory_gib * (1 << 30)) << name;
  }
}

TEST(Hardware, UnknownNamesAreAnsweredWithTheKnownOnes) {
  const std::string message = refusal([] { find_hardware("v100"); });
  EXPECT_TRUE(contains(message, "v100") && contains(message, "a100-80gb") && contains(message, "b200"))
      << message;
}

TEST(Hardware, ValuesCanBeChanged) {
  Hardware hardware = find_hardware("h100");
  set_value(hardware, "adapter-gbytes=12.5");
  EXPECT_EQ(hardware.adapter_gbytes, 12.5);
  EXPECT_TRUE(contains(refusal([&] { set_value(hardware, "adapter=1"); }), "adapter-gbytes"));
  EXPECT_TRUE(contains(refusal([&] { set_value(hardware, "tflops=-1"); }), "above 0"));
  EXPECT_TRUE(contains(refusal([&] { set_value(hardware, "tflops=fast"); }), "not a number"));
  EXPECT_TRUE(contains(refusal([&] { set_value(hardware, "tflops"); }), "KEY=VALUE"));
}

TEST_F(HardwareFile, TakesTheRestFromItsBase) {
  const Hardware hardware =
      find_hardware(write(R"({"name": "lab", "base": "h200", "adapter-gbytes": 6.25})"));
  EXPECT_EQ(hardware.name, "lab");
  EXPECT_EQ(hardware.adapter_gbytes, 6.25);
  EXPECT_EQ(hardware.memory_gib, find_hardware("h200").memory_gib);
}

TEST_F(HardwareFile, WithoutBaseEveryKeyIsNeeded) {
  const std::string file = write(R"({"tflops": 100})");
  const std::string message = refusal([&] { find_hardware(file); });
  EXPECT_TRUE(contains(message, "memory-gbytes") && contains(message, "base")) << message;
}

TEST_F(HardwareFile, UnknownKeysAreRefused) {
  const std::string file = write(R"({"base": "h200", "adapter": 1})");
  const std::string message = refusal([&] { find_hardware(file); });
  EXPECT_TRUE(contains(message, "'adapter'") && contains(message, "adapter-gbytes")) << message;
  const std::string other = write(R"({"base": "h300"})");
  EXPECT_TRUE(contains(refusal([&] { find_hardware(other); }), "h200"));
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
