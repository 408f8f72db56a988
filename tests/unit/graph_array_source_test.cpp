#include "graph/data/array_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "data/read_ahead.h"
#include "graph/operations.h"
#include "support/files.h"
#include "text/indexed_writer.h"
#include "unit/array_testing.h"

namespace trifold::graph {
namespace array_source_test {
namespace {

using test::bytes_of;
using test::error_of;
using test::npy_of;

constexpr int64_t kSamples = 7;

// ids [batch, 2] i64 and mask [batch] bool; what blocks read is ids + 100, and mask as a float.
class Files : public ::testing::Test {
 protected:
  Files() {
    ids_ = input("ids", ElementType::I64, {{1, true}, {2}});
    mask_ = input("mask", ElementType::Bool, {{1, true}});
    moved_ = graph_.add({"moved", ElementType::I64, {{1, true}, {2}}});
    graph_.nodes.push_back(
        {find_operation("add.Tensor"), "add.Tensor", {ids_, Extent{100}, Extent{1}}, {moved_}, {}});
    std::vector<int32_t> ids;
    std::vector<uint8_t> mask;
    for (int32_t i = 0; i < kSamples; ++i) {
      ids.insert(ids.end(), {2 * i, 2 * i + 1});
      mask.push_back(i % 2 == 0);
    }
    write("ids", "<i4", "(7, 2)", bytes_of(ids));
    write("mask", "|b1", "(7,)", bytes_of(mask));
  }

  ValueId input(const std::string& name, ElementType type, std::vector<Extent> dims) {
    const ValueId value = graph_.add({name, type, std::move(dims)});
    graph_.inputs.push_back({value, InputKind::Data, name, false, -1});
    return value;
  }
  void write(const std::string& name, std::string_view type, std::string_view shape,
             std::string_view elements) {
    test::write_file(folder_.file(name + ".npy"), npy_of(type, shape, elements));
  }
  std::string given(const std::string& name) const { return name + "=" + folder_.file(name + ".npy"); }
  Preparation prepare() const {
    return {graph_, {moved_, mask_}, DType::F32, [](const Input&) { return Array(); }};
  }
  std::string refusal(const std::vector<std::string>& texts) const {
    return error_of([&] {
      const Preparation preparation = prepare();
      ArraySource source(ArrayFiles(texts), graph_, preparation, {});
    });
  }

  test::TempDir folder_;
  Graph graph_;
  ValueId ids_, mask_, moved_;
};

// The stored positions of the samples of a batch, from its first id.
std::vector<int32_t> samples_of(const Batch& batch) {
  std::vector<int32_t> ids(static_cast<size_t>(2 * batch.samples())), positions;
  std::memcpy(ids.data(), batch.arrays.data, ids.size() * 4);
  for (size_t i = 0; i < ids.size(); i += 2) {
    EXPECT_EQ(ids[i] + 1, ids[i + 1]);
    positions.push_back((ids[i] - 100) / 2);
  }
  return positions;
}

TEST_F(Files, ABatchHasThePreparedArraysOfItsSamples) {
  const Preparation preparation = prepare();
  const ArraySource source(ArrayFiles({given("ids"), given("mask")}), graph_, preparation, {});
  EXPECT_EQ(source.samples(), kSamples);
  EXPECT_EQ(source.array_bytes(3), 128);
  BatchBuffer buffer(source, 3);
  source.read(buffer.batch(), 2);
  EXPECT_EQ(samples_of(buffer.batch()), (std::vector<int32_t>{2, 3, 4}));
  std::vector<float> mask(3);
  std::memcpy(mask.data(), buffer.batch().arrays.as<uint8_t>() + 64, 12);
  EXPECT_EQ(mask, (std::vector<float>{1, 0, 1}));
  EXPECT_EQ(buffer.batch().first_sample, 2);
  EXPECT_EQ(buffer.batch().loss_weight.as<float>()[2], 1);
  EXPECT_EQ(buffer.batch().tokens.shape, (Shape{3, 1}));
  EXPECT_THROW(source.read(buffer.batch(), 5), Error);
}

TEST_F(Files, StreamsAreCutIntoSamplesOfTheModelsShape) {
  const auto write_tokens = [&](const std::string& name, const std::vector<int32_t>& tokens) {
    IndexedWriter writer(folder_.file(name), TokenType::I32);
    writer.add(tokens);
    writer.end_sequence();
    writer.end_document();
    writer.finish();
    return "ids=" + folder_.file(name);
  };
  const std::string corpus =
      write_tokens("corpus", {0, 1, 2, 3, 4, 5, 6, 7, 8});  // a half sample is left over
  write("mask", "|b1", "(4,)", bytes_of(std::vector<uint8_t>{1, 0, 1, 0}));
  const Preparation preparation = prepare();
  const auto ids_of = [&](const std::string& given_ids) {
    const ArraySource source(ArrayFiles({given_ids, given("mask")}), graph_, preparation, {});
    EXPECT_EQ(source.samples(), 4);
    BatchBuffer buffer(source, 3);
    source.read(buffer.batch(), 1);
    std::vector<int32_t> ids(6);
    std::memcpy(ids.data(), buffer.batch().arrays.data, 24);
    return ids;
  };
  EXPECT_EQ(ids_of(corpus), (std::vector<int32_t>{102, 103, 104, 105, 106, 107}));
  EXPECT_EQ(ids_of(corpus + ":1"), (std::vector<int32_t>{103, 104, 105, 106, 107, 108}));
  write("mask", "|b1", "(3,)", bytes_of(std::vector<uint8_t>{1, 0, 1}));
  EXPECT_NE(refusal({corpus, given("mask")}).find("has 4 samples, but 'mask'"), std::string::npos);
  EXPECT_NE(refusal({write_tokens("small", {1, 2}) + ":1", given("mask")})
                .find("too few for a sample of [batch, 2]"),
            std::string::npos);
}

TEST_F(Files, EachPassHasEverySampleOnceInItsOwnOrder) {
  const Preparation preparation = prepare();
  const auto order_of = [&](uint64_t seed) {
    const ArraySource source(ArrayFiles({given("ids"), given("mask")}), graph_, preparation,
                             {.passes = 3, .seed = seed});
    EXPECT_EQ(source.samples(), 3 * kSamples);
    ReadAhead ahead(source, {0, 3, 3, kSamples});  // batches go over the ends of passes
    std::vector<int32_t> all;
    for (int i = 0; i < kSamples; ++i) {
      const std::vector<int32_t> part = samples_of(ahead.get());
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  };
  const std::vector<int32_t> order = order_of(5);
  for (size_t pass = 0; pass < 3; ++pass)
    EXPECT_EQ(std::set<int32_t>(order.begin() + static_cast<int>(pass) * 7,
                                order.begin() + static_cast<int>(pass) * 7 + 7)
                  .size(),
              7U);
  EXPECT_FALSE(std::equal(order.begin(), order.begin() + 7, order.begin() + 7));
  EXPECT_EQ(order_of(5), order);
  EXPECT_NE(order_of(6), order);
}

TEST_F(Files, APartOfTheSamplesInOrder) {
  const Preparation preparation = prepare();
  const ArraySource source(ArrayFiles({given("ids"), given("mask")}), graph_, preparation,
                           {.passes = 2, .begin = 4, .end = 6});
  EXPECT_EQ(source.samples(), 4);
  BatchBuffer buffer(source, 4);
  source.read(buffer.batch(), 0);
  EXPECT_EQ(samples_of(buffer.batch()), (std::vector<int32_t>{4, 5, 4, 5}));
  EXPECT_NE(error_of([&] {
              ArraySource(ArrayFiles({given("ids"), given("mask")}), graph_, preparation, {.begin = 7});
            }).find("but the arrays have 7"),
            std::string::npos);
}

TEST_F(Files, SeveralThreadsRead) {
  const Preparation preparation = prepare();
  const ArraySource source(ArrayFiles({given("ids"), given("mask")}), graph_, preparation,
                           {.passes = 100, .seed = 1});
  BatchBuffer expected(source, 5);
  source.read(expected.batch(), 50);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      BatchBuffer buffer(source, 5);
      for (int i = 0; i < 50; ++i) {
        source.read(buffer.batch(), i);
        source.read(buffer.batch(), 50);
        EXPECT_EQ(samples_of(buffer.batch()), samples_of(expected.batch()));
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_F(Files, NamesArraysThatAreMissingOrNotTaken) {
  EXPECT_EQ(refusal({given("ids")}),
            "no array is given for mask; the model takes ids, mask, and the arrays are ids");
  EXPECT_EQ(refusal({}),
            "no array is given for ids, mask; the model takes ids, mask, and the arrays are none");
  EXPECT_NE(refusal({given("ids"), given("mask"), "other=" + folder_.file("ids.npy")})
                .find("does not take other, only ids, mask"),
            std::string::npos);
}

TEST_F(Files, RefusesArraysThatDoNotFit) {
  const std::vector<std::string> both{given("ids"), given("mask")};
  write("mask", "|b1", "(6,)", std::string(6, '\1'));
  EXPECT_NE(refusal(both).find("has 7 samples, but 'mask'"), std::string::npos);
  write("mask", "|b1", "(7, 1)", std::string(7, '\1'));
  EXPECT_NE(refusal(both).find("has shape [7, 1], but the model takes [batch]"), std::string::npos);
  write("mask", "<f4", "(7,)", std::string(28, '\0'));
  EXPECT_NE(refusal(both).find(
                "is of type f32, which does not become the model's bool without loss: save it as bool"),
            std::string::npos);
  write("mask", "|b1", "()", "\1");
  EXPECT_NE(refusal(both).find("has shape []"), std::string::npos);
}

TEST_F(Files, NamesAnElementThatDoesNotFitItsType) {
  write("mask", "|u1", "(7,)", std::string("\0\1\0\1\0\2\0", 7));
  const Preparation preparation = prepare();
  const ArraySource source(ArrayFiles({given("ids"), given("mask")}), graph_, preparation, {});
  BatchBuffer buffer(source, 2);
  source.read(buffer.batch(), 0);
  EXPECT_NE(error_of([&] {
              source.read(buffer.batch(), 4);
            }).find("element 0 of sample 5 is 2, which bool cannot represent"),
            std::string::npos);
}

}  // namespace
}  // namespace array_source_test
}  // namespace trifold::graph
