#include "train/tune_products.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "core/error.h"
#include "support/ranks.h"

namespace trifold::test {
namespace {

// The tuning of one rank, with its own ranking of algorithms.
class Opinion final : public ProductTuning {
 public:
  explicit Opinion(std::string device, std::string way) : device_(std::move(device)), way_(std::move(way)) {}
  std::string made_for() const override { return device_; }
  void measure(bool on) override { measures_ = on; }
  std::vector<ProductChoice> choices() const override {
    std::vector<ProductChoice> all;
    for (const auto& [product, algorithm] : kept_) all.push_back({product, algorithm});
    return all;
  }
  void use(std::span<const ProductChoice> choices) override {
    kept_.clear();
    for (const ProductChoice& choice : choices) kept_[choice.product] = choice.algorithm;
  }
  void meet(const std::string& product) {
    if (measures_) kept_.emplace(product, way_);
  }

 private:
  std::string device_, way_;
  bool measures_ = false;
  std::map<std::string, std::string> kept_;
};

std::string file_of_test() {
  return std::filesystem::temp_directory_path() / fmt::format("trifold_tune_products_{}.json", getpid());
}

TEST(TuneProducts, TheLowestRankThatHasAProductDecides) {
  const std::string file = file_of_test();
  std::filesystem::remove(file);
  // The second time the file has all but one.
  for (const std::string_view late : {"none", "late"})
    run_ranks(3, [&](Communicator& world) {
      Opinion tuning("card", fmt::format("{} of rank {}", late, world.rank()));
      ProductMeasuring measuring(world, tuning, file);
      if (world.rank() > 0) tuning.meet("head");
      if (world.rank() < 2) tuning.meet("block");
      if (world.rank() == 2) tuning.meet("tail");
      if (world.rank() == 1 && late == "late") tuning.meet("late");
      const std::string note = measuring.finish();
      tuning.meet("never");  // it is over
      std::vector<ProductChoice> expected{
          {"block", "none of rank 0"}, {"head", "none of rank 1"}, {"tail", "none of rank 2"}};
      if (late == "late") expected.insert(expected.begin() + 2, {"late", "late of rank 1"});
      EXPECT_EQ(tuning.choices(), expected);
      if (world.rank() == 0) {
        EXPECT_EQ(note,
                  fmt::format("{} kept in {}",
                              late == "late" ? "1 product was measured and" : "3 products were measured and",
                              file));
      }
    });
  std::filesystem::remove(file);
}

TEST(TuneProducts, RanksNeedTheSameKindOfDevice) {
  std::string message;
  try {
    run_ranks(2, [&](Communicator& world) {
      Opinion tuning(world.rank() == 0 ? "card" : "other card", "x");
      const ProductMeasuring measuring(world, tuning, file_of_test());
    });
  } catch (const Error& error) {
    message = error.what();
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
  }
  EXPECT_NE(message.find("rank 0 has card, rank 1 has other card"), std::string::npos) << message;
}

TEST(TuneProducts, TextsAreReadAsTheyWereWritten) {
  const ProductTable table{"a card", {{"a \"product\"", "00ff"}, {"another\nproduct", ""}}};
  const ProductTable read = parse_products(to_text(table), "here");
  EXPECT_EQ(read.made_for, table.made_for);
  EXPECT_EQ(read.choices, table.choices);
}

// Its products don't say whether they add.
TEST(TuneProducts, AFileOfTheFirstFormatIsRefused) {
  std::string text = to_text({"a card", {{"a product", "00ff"}}});
  const std::string key = "\"trifold_products\": ";
  const size_t at = text.find(key);
  ASSERT_NE(at, std::string::npos) << text;
  text[at + key.size()] = '1';
  std::string message = "none";
  try {
    parse_products(text, "here");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    message = error.what();
  }
  EXPECT_NE(message.find("its format is 1, and this version of Trifold has 2"), std::string::npos) << message;
}

}  // namespace
}  // namespace trifold::test
