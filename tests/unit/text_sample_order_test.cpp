// The order of samples against golden values: NumPy's shuffle, splits, Megatron-LM's indices and blends.
#include <nlohmann/json.hpp>

#include "support/files.h"
#include "support/test_data.h"
#include "text/blend.h"
#include "text/gpt_indices.h"
#include "text/numpy_random.h"
#include "text/split.h"

namespace trifold {
namespace {

using nlohmann::json;
using test::error_of;
using test::expect_has;

json golden(const std::string& name) {
  return json::parse(test::read_file(test::test_data() + "/golden/" + name));
}

TEST(NumpyRandom, ShufflesAsRandomState) {
  const json seeds = golden("megatron_data.json")["rng"];
  ASSERT_EQ(seeds.size(), 3U);
  for (const auto& [seed, expected] : seeds.items()) {
    NumpyRandom words(static_cast<uint32_t>(std::stoul(seed)));
    for (const auto& word : expected["first8_u32"]) EXPECT_EQ(words.next_u32(), word.get<uint32_t>());
    for (int count : {10, 37}) {
      NumpyRandom random(static_cast<uint32_t>(std::stoul(seed)));
      std::vector<int> values;
      for (int i = 0; i < count; ++i) values.push_back(i);
      random.shuffle(std::span(values));
      EXPECT_EQ(json(values), expected[fmt::format("shuffle_arange{}", count)]);
    }
  }
}

void expect_golden(const json& expected) {
  const auto sizes = expected["sizes"].get<std::vector<int64_t>>();
  std::vector<int32_t> sequences;
  for (size_t i = 0; i < sizes.size(); ++i) sequences.push_back(static_cast<int32_t>(i));
  std::optional<int64_t> num_samples;
  if (!expected["num_samples"].is_null()) num_samples = expected["num_samples"].get<int64_t>();
  const GptIndices indices = build_gpt_indices(
      sequences, [&](int32_t s) { return sizes[static_cast<size_t>(s)]; },
      expected["seq_length"].get<int64_t>(), num_samples, expected["seed"].get<uint32_t>());
  EXPECT_EQ(indices.epochs, expected["epochs"].get<int64_t>());
  EXPECT_EQ(indices.separate_final_epoch, expected["separate_final_epoch"].get<bool>());
  EXPECT_EQ(json(indices.document_index), expected["doc"]);
  EXPECT_EQ(json(indices.shuffle_index), expected["shuffle"]);
  json starts = json::array();
  for (const SampleStart& start : indices.sample_index) starts.push_back({start.position, start.offset});
  EXPECT_EQ(starts, expected["sample"]);
}

TEST(GptIndices, MatchesGoldenValues) {
  const json cases = golden("megatron_data.json")["dataset"];
  ASSERT_GE(cases.size(), 10U);
  for (const json& expected : cases) expect_golden(expected);
}

TEST(GptIndices, MatchesLargerCasesMadeWithNumpy) {
  const json cases = golden("sample_order.json")["cases"];
  ASSERT_EQ(cases.size(), 9U);
  bool separate = false;
  bool together = false;
  for (const json& expected : cases) {
    expect_golden(expected);
    const bool several = expected["epochs"].get<int64_t>() > 1;
    separate |= several && expected["separate_final_epoch"].get<bool>();
    together |= several && !expected["separate_final_epoch"].get<bool>();
  }
  EXPECT_TRUE(separate && together);  // the cases cover both
}

TEST(GptIndices, NeedsOneSample) {
  const std::vector<int32_t> sequences{0};
  const auto build = [&](int64_t length) {
    return build_gpt_indices(
        sequences, [](int32_t) { return 8; }, length, std::nullopt, 1);
  };
  EXPECT_EQ(build(7).samples(), 1);
  expect_has(error_of([&] { build(8); }, ErrorKind::Failure), "8 tokens are too few for a sample");
}

TEST(Blend, MatchesGoldenValues) {
  const json cases = golden("megatron_data.json")["blend"];
  ASSERT_EQ(cases.size(), 2U);
  for (const json& expected : cases) {
    auto weights = expected["weights"].get<std::vector<double>>();
    double sum = 0;
    for (double weight : weights) sum += weight;
    for (double& weight : weights) weight /= sum;
    const BlendOrder blend = blend_by_weight(weights, expected["size"].get<int64_t>());
    json datasets = json::array(), samples = json::array();
    for (int64_t i = 0; i < blend.samples(); ++i) {
      datasets.push_back(blend.at(i).dataset);
      samples.push_back(blend.at(i).sample);
    }
    EXPECT_EQ(datasets, expected["dataset_index"]);
    EXPECT_EQ(samples, expected["dataset_sample_index"]);
  }
}

TEST(Blend, ExhaustsEveryDataset) {
  const std::vector<int64_t> sizes{3, 1, 6};
  const BlendOrder blend = blend_exhaustive(sizes);
  ASSERT_EQ(blend.samples(), 10);
  std::vector<int64_t> next(3, 0);
  for (int64_t i = 0; i < 10; ++i) EXPECT_EQ(blend.at(i).sample, next[blend.at(i).dataset]++);
  EXPECT_EQ(next, sizes);
}

TEST(Blend, ParsesDataPaths) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(parse_data_paths(Words{"a"}).paths, Words{"a"});
  EXPECT_FALSE(parse_data_paths(Words{"a", "b"}).weights);
  EXPECT_EQ(parse_data_paths(Words{"1", "a", "2"}).paths, (Words{"1", "a", "2"}));  // odd: paths only
  const DataPaths weighted = parse_data_paths(Words{"30", "a", "70", "b"});
  EXPECT_EQ(weighted.paths, (Words{"a", "b"}));
  EXPECT_EQ(*weighted.weights, (std::vector<double>{0.3, 0.7}));
  expect_has(error_of([] { parse_data_paths(Words{"30", "a", "b", "c"}); }), "\"b\" stands where a weight");
  expect_has(error_of([] { parse_data_paths(Words{"-1", "a", "1", "c"}); }), "negative");
  expect_has(error_of([] { parse_data_paths(Words{"0", "a"}); }), "all 0");
  expect_has(error_of([] { parse_data_paths(Words{}); }), "--data-path is missing");
}

TEST(Split, CutsAsMegatron) {
  const SplitFractions usual("969, 30, 1");
  EXPECT_EQ(usual.of(Split::Train, 1000).end, 969);
  EXPECT_EQ(usual.of(Split::Valid, 1000).end, 999);
  EXPECT_EQ(usual.of(Split::Test, 1000).end, 1000);
  // Bounds are rounded half to even: 2.5 to 2, 7.5 to 8.
  EXPECT_EQ(SplitFractions("50,50").of(Split::Train, 5).end, 2);
  EXPECT_EQ(SplitFractions("50,50").of(Split::Train, 15).end, 8);
  const SplitFractions two("90,10");
  EXPECT_FALSE(two.empty(Split::Valid));
  EXPECT_TRUE(two.empty(Split::Test));
  EXPECT_EQ(two.of(Split::Test, 77).size(), 0);
}

TEST(Split, RefusesNonsense) {
  expect_has(error_of([] { SplitFractions split("90;10"); }), "\";10\" is not a number");
  expect_has(error_of([] { SplitFractions split("0.9.1,1"); }), "is not a number");
  expect_has(error_of([] { SplitFractions split("-1,2"); }), "is not a number");
  expect_has(error_of([] { SplitFractions split("1,2,3,4"); }), "has 4 numbers");
  expect_has(error_of([] { SplitFractions split("0,0,0"); }), "every part is empty");
  expect_has(error_of([] { SplitFractions split(""); }), "every part is empty");
}

TEST(Split, CountsSamplesAsMegatron) {
  EXPECT_EQ(samples_needed(Split::Train, 100, 30, 5, 8), 800);
  EXPECT_EQ(samples_needed(Split::Valid, 100, 30, 5, 8), 4 * 5 * 8);
  EXPECT_EQ(samples_needed(Split::Valid, 100, 0, 5, 8), 5 * 8);
  EXPECT_EQ(samples_needed(Split::Test, 100, 30, 5, 8), 40);
}

}  // namespace
}  // namespace trifold
