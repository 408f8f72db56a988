#include "recommend/check_bags.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "core/error.h"
#include "support/files.h"

namespace trifold {
namespace {

class LongBags final : public ClickSource {
 public:
  LongBags() { schema_.tables = {{"user", 10, 1}, {"words", 10, 1000}}; }
  const ClickSchema& schema() const override { return schema_; }
  int64_t samples() const override { return 100; }
  void fill(std::span<const int64_t> /*positions*/, ClickPart& /*out*/) const override {}
  std::optional<int64_t> longest_bag(int table) const override {
    return table == 1 ? std::optional<int64_t>(42) : std::nullopt;
  }

 private:
  ClickSchema schema_;
};

TEST(CheckBags, NamesTheTableAndTheSampleThatNeedMost) {
  const LongBags source;
  const int64_t needed = int64_t{256} * 1001 * 4 * 2;
  check_bags(source, 256, needed);
  const std::string text = test::error_of([&] { check_bags(source, 256, needed - 8 * 256); });
  for (const char* part :
       {"two batches of 256 samples", "table words, 1000 ids a sample because of sample 42", "--max-bag N",
        "--global-batch-size"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

}  // namespace
}  // namespace trifold
