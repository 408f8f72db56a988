// Ids that no table has, and labels that are no class, are found before the step.
#include <gtest/gtest.h>

#include "graph/lower/lowered.h"
#include "graph/preparation.h"
#include "graph_small_model.h"
#include "support/files.h"

namespace trifold::graph::lowering {
namespace {

// A lowered model and what the host prepares for a batch of 3.
class Prepared {
 public:
  explicit Prepared(const std::string& text)
      : model_(text),
        lowered_(lower(model_.graph, [](ValueId) { return std::optional<Array>(); })),
        preparation_(
            lowered_.graph, lowered_.prepared, DType::F64,
            [this](const Input& input) { return model_.elements(input, 3); }, lowered_.id_checks) {}

  void run(std::span<const int64_t> samples = {}) {
    std::vector<Array> data;
    for (const Input& input : preparation_.data()) data.push_back(model_.elements(input, 3));
    std::vector<std::byte> block(static_cast<size_t>(preparation_.layout().bytes(3)));
    preparation_.write(data, 3, block, samples);
    EXPECT_EQ(preparation_.run(data, 3).size(), lowered_.prepared.size());
  }
  std::string refusal(std::vector<int64_t> samples = {}) {
    return test::error_of([&] { run(samples); });
  }

 private:
  SmallModel model_;
  LoweredGraph lowered_;
  Preparation preparation_;
};

std::string lookup(const std::string& ids, const std::string& lines) {
  return "e: parameter [5, 2]\ni: data i64 [b, 2] = " + ids + "\n" + lines + "loss y\n";
}
const std::string kPlain = "y [b, 2, 2] = embedding e i\n";

TEST(GraphIds, OutsideOfATableAreNamed) {
  EXPECT_EQ(
      Prepared(lookup("0 1 4 5 2 3", kPlain)).refusal(),
      "the value 5 of sample 1 of the micro-batch in 'i' is out of range: node 'y' (embedding), model.py:1 "
      "looks up rows of 'e', which has 0 to 4");
  EXPECT_EQ(Prepared(lookup("0 1 4 0 2 -1", kPlain)).refusal({70, 80, 90}),
            "the value -1 of sample 90 in 'i' is out of range: node 'y' (embedding), model.py:1 "
            "looks up rows of 'e', which has 0 to 4");
  EXPECT_NO_THROW(Prepared(lookup("0 1 4 0 2 3", kPlain)).run());
}

TEST(GraphIds, PaddingIsARowOfTheTable) {
  const std::string padded = "y [b, 2, 2] = embedding e i 4\n";
  EXPECT_NO_THROW(Prepared(lookup("4 4 4 0 2 3", padded)).run());
  test::expect_has(Prepared(lookup("4 4 -1 0 2 3", padded)).refusal(), "the value -1 of sample 1");
  test::expect_has(Prepared(lookup("5 5 5 0 2 3", "y [b, 2, 2] = embedding e i 5\n")).refusal(),
                   "the value 5 of sample 0");
}

// Columns of an array may be the ids of different tables; the others are not these ids.
TEST(GraphIds, OfAPartOfAnArray) {
  const std::string column = "s i64 [b] = select.int i 1 1\ny [b, 2] = embedding e s\n";
  EXPECT_NO_THROW(Prepared(lookup("900 1 900 0 900 4", column)).run());
  test::expect_has(Prepared(lookup("0 1 0 0 0 900", column)).refusal(),
                   "the value 900 of sample 2 of the micro-batch in 'i'");
}

TEST(GraphIds, ThatTheHostComputes) {
  const std::string next = "n i64 [b, 2] = add.Scalar i 1\ny [b, 2, 2] = embedding e n\n";
  EXPECT_NO_THROW(Prepared(lookup("0 1 3 0 2 -1", next)).run());
  test::expect_has(Prepared(lookup("0 1 3 0 2 4", next)).refusal(),
                   "the value 5 of sample 2 of the micro-batch in 'n'");
}

TEST(GraphIds, OfRowsByIndexMayCountFromTheEnd) {
  const std::string rows = "y [b, 2, 2] = index.Tensor e {i}\n";
  EXPECT_NO_THROW(Prepared(lookup("0 -1 3 0 2 -5", rows)).run());
  test::expect_has(Prepared(lookup("0 -1 3 0 2 -6", rows)).refusal(),
                   "the value -6 of sample 2 of the micro-batch in 'i'");
  test::expect_has(Prepared(lookup("0 -1 3 0 2 5", rows)).refusal(), "the value 5 of sample 2");
}

std::string classes(const std::string& labels, const std::string& loss) {
  return "p: parameter [4]\nx: data [2b, 4]\nl: data i64 [2b] = " + labels +
         "\nh [2b, 4] = mul.Tensor x p\ny [] = cross_entropy_loss " + loss + "\nloss y\n";
}

TEST(GraphIds, LabelsThatAreNoClass) {
  EXPECT_NO_THROW(Prepared(classes("0 3 -100 1 2 -100", "h l")).run());
  EXPECT_EQ(
      Prepared(classes("0 3 -100 4 2 1", "h l")).refusal(),
      "the value 4 of sample 1 of the micro-batch in 'l' is out of range: node 'y' (cross_entropy_sum), "
      "model.py:2 takes it as a class, which has 0 to 3");
  test::expect_has(Prepared(classes("0 3 -100 1 2 -1", "h l")).refusal(), "the value -1 of sample 2");
  EXPECT_NO_THROW(Prepared(classes("0 3 -1 1 2 -1", "h l - 1 -1")).run());
}

TEST(GraphIds, LabelsOfALinearLayer) {
  const std::string text =
      "w: parameter [4, 3]\nx: data [b, 3]\nl: data i64 [b] = 0 4 1\nh [b, 4] = linear x w\n"
      "y [] = cross_entropy_loss h l - 2\nloss y\n";
  test::expect_has(Prepared(text).refusal(), "the value 4 of sample 1 of the micro-batch in 'l'");
}

}  // namespace
}  // namespace trifold::graph::lowering
