#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <tuple>

#include "cuda/probe.h"

namespace trifold::probe {
namespace {

// Every measurement takes a second of its clock; algorithm i takes 8 - i ms, an unfused product 10 ms.
class Pretended final : public ProbeDevice {
 public:
  std::string name() override { return "pretended"; }
  double copy(int64_t bytes) override { return after(static_cast<double>(bytes) / 1e12); }
  std::vector<double> product(const ProductCase& each, int most) override {
    after(0);
    if (each.variant == Variant::GeluAux) throw std::runtime_error("no such epilogue");
    std::vector<double> seconds;
    for (int i = 0; i < most; ++i) seconds.push_back(1e-3 * (8 - i));
    return seconds;
  }
  double unfused(const ProductCase& /*each*/) override { return after(1e-2); }
  double attention(const Model& /*model*/, bool backward, bool deterministic) override {
    return after(backward ? (deterministic ? 3e-3 : 2e-3) : 1e-3);
  }
  double loss(const Model& /*model*/, int64_t rows) override { return after(1 / static_cast<double>(rows)); }
  double now = 0;

 private:
  double after(double result) {
    now += 1;
    return result;
  }
};

nlohmann::json report_within(double seconds, int* saves = nullptr) {
  Pretended device;
  return run(device, {seconds, [&] { return device.now; },
                      [&](const nlohmann::json& /*report*/) {
                        if (saves != nullptr) ++*saves;
                      }});
}

TEST(Probe, ProductsAreThoseOfABlock) {
  for (const Model& model : models()) {
    std::set<std::tuple<std::string, Variant>> all;
    double flops = 0;
    for (const ProductCase& each : products_of(model)) {
      EXPECT_TRUE(all.emplace(each.layer, each.variant).second);
      if (each.variant == Variant::Plain || each.variant == Variant::F32) flops += each.flops();
    }
    // Forward, and two gradients: 6 operations a weight and position, of 12 width^2 weights.
    EXPECT_DOUBLE_EQ(flops, 6.0 * 12 * static_cast<double>(model.width * model.width * model.rows()));
    EXPECT_EQ(all.count({"up", Variant::GeluAux}), 1U);
    EXPECT_EQ(all.count({"down_input", Variant::DGelu}), 1U);
    EXPECT_EQ(all.size(), 4U * 5 + 2);
  }
}

TEST(Probe, ReportsEveryMeasurementAndGoesOnAfterAFailure) {
  int saves = 0;
  const nlohmann::json report = report_within(1e9, &saves);
  EXPECT_EQ(report["left_out"], 0);
  EXPECT_EQ(report["copies"].size(), 3U);
  EXPECT_EQ(report["products"].size(), 3U * 21);
  EXPECT_EQ(report["attention"].size(), 3U);
  EXPECT_EQ(report["loss"].size(), 3 * loss_chunks().size());
  ASSERT_EQ(report["failures"].size(), 3U);
  EXPECT_EQ(report["failures"][0]["what"], "1558M up gelu_aux");
  EXPECT_EQ(report["failures"][0]["why"], "no such epilogue");
  for (const auto& line : report["products"]) {
    EXPECT_EQ(line["seconds"].size(), 8U);
    EXPECT_DOUBLE_EQ(line["best"].get<double>(), 1e-3);
    const std::string variant = line["variant"];
    EXPECT_EQ(line.contains("unfused"), variant == "bias" || variant == "dgelu");
  }
  EXPECT_EQ(report["attention"][0]["backward_deterministic"], 3e-3);
  EXPECT_EQ(saves, 4);
  EXPECT_EQ(summary(report)[3],
            "1558M: products by the first algorithm 168.000 ms, by the best 21.000 ms; fused 5.000 ms, "
            "unfused 50.000 ms");
}

TEST(Probe, EndsInTimeAndCountsTheRest) {
  const nlohmann::json all = report_within(1e9);
  const nlohmann::json some = report_within(20);
  EXPECT_LE(some["seconds"].get<double>(), 21);
  EXPECT_GT(some["left_out"].get<int>(), 0);
  EXPECT_EQ(some["products"][0]["model"], "1558M") << "the largest model comes first";
  EXPECT_TRUE(some["loss"].empty());
  EXPECT_FALSE(summary(some).empty());
}

}  // namespace
}  // namespace trifold::probe
