// Preferences: their files, and the pairs of samples that they become.
#include "tasks/preference/preferences.h"

#include <gtest/gtest.h>

#include <set>

#include "data/read_ahead.h"
#include "support/files.h"
#include "support/refusal.h"
#include "tasks/preference/pair_samples.h"

namespace trifold::test {
namespace {

std::vector<Preference> preferences_of(const std::string& text) {
  const TempDir dir;
  write_file(dir.file("p.jsonl"), text);
  return read_preferences(dir.file("p.jsonl"));
}

// What is wrong with the second line.
std::string mistake_in(const std::string& line) {
  const std::string text = refusal([&] {
    preferences_of(R"({"prompt": "p", "chosen": "a", "rejected": "b"})"
                   "\n" +
                   line + "\n");
  });
  const size_t at = text.find("p.jsonl, line 2: ");
  return at == std::string::npos ? "no line: " + text : text.substr(at + 17);
}

TEST(PreferenceFile, HasTexts) {
  const auto all = preferences_of(R"({"prompt": "Why? ", "chosen": "So.", "rejected": "No."})"
                                  "\n");
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(std::get<PromptAnswer>(all[0].chosen).prompt, "Why? ");
  EXPECT_EQ(std::get<PromptAnswer>(all[0].chosen).answer, "So.");
  EXPECT_EQ(std::get<PromptAnswer>(all[0].rejected).answer, "No.");
}

TEST(PreferenceFile, HasMessages) {
  const char* const kMessages[] = {
      R"({"prompt": [{"role": "user", "content": "Why?"}], "chosen": [{"role": "assistant", "content": "So."}],
          "rejected": [{"role": "assistant", "content": "No."}]})",
      R"({"chosen": [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}],
          "rejected": [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "No."}]})",
      R"({"prompt": "Why?", "chosen": [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}],
          "rejected": [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "No."}]})",
      R"({"prompt": [{"role": "user", "content": "Why?"}], "chosen": "So.", "rejected": "No."})"};
  for (const char* const record : kMessages) {
    const auto all = preferences_of("[" + std::string(record) + "]");
    ASSERT_EQ(all.size(), 1U);
    const auto& chosen = std::get<Conversation>(all[0].chosen);
    const auto& rejected = std::get<Conversation>(all[0].rejected);
    EXPECT_EQ(chosen.answers_from, 1U);
    EXPECT_EQ(rejected.answers_from, 1U);
    ASSERT_EQ(chosen.messages.size(), 2U);
    EXPECT_EQ(chosen.messages[0]["content"], "Why?");
    EXPECT_EQ(chosen.messages[1]["content"], "So.");
    EXPECT_EQ(rejected.messages[1]["role"], "assistant");
    EXPECT_EQ(rejected.messages[1]["content"], "No.");
  }
}

TEST(PreferenceFile, NamesTheMistake) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"prompt": "p", "chosen": "a"})", "no field \"rejected\""},
      {R"({"chosen": "a", "rejected": "b"})", "the field \"prompt\" is not a text"},
      {R"({"prompt": "p", "chosen": "a", "rejected": "a"})", "both answers are the same"},
      {R"({"prompt": "p", "chosen": "", "rejected": "a"})", "the field \"chosen\" is empty"},
      {R"({"prompt": "p", "chosen": "a", "rejected": [{"role": "assistant", "content": "b"}]})",
       "the field \"rejected\" is not a text"},
      {R"({"prompt": [{"role": "boss", "content": "p"}], "chosen": "a", "rejected": "b"})", "role 'boss'"},
      {R"({"prompt": [{"role": "user", "content": "p"}], "chosen": [{"role": "user", "content": "a"}],
           "rejected": "b"})",
       "no message of the role \"assistant\""},
      {"[1]", "is not a JSON object"},
  };
  for (const auto& [line, mistake] : cases) {
    std::string one = line;
    std::erase(one, '\n');
    EXPECT_NE(mistake_in(one).find(mistake), std::string::npos) << one << "\n" << mistake_in(one);
  }
  EXPECT_THROW(preferences_of("\n"), Error);
}

std::shared_ptr<PreferencePairs> three_pairs(bool means) {
  auto pairs = std::make_shared<PreferencePairs>();
  pairs->seq_length = 6;
  pairs->pad = 9;
  pairs->means = means;
  for (int32_t i = 0; i < 3; ++i) {
    const int32_t id = 10 * (i + 1);
    pairs->pairs.push_back({EncodedChat{{id, id + 1, id + 2, id + 3}, {0, 0, 1, 1}},
                            EncodedChat{{id, id + 1, id + 5}, {0, 0, 1}}});
  }
  return pairs;
}

TEST(PairSamples, AreNeighbours) {
  const auto values = std::make_shared<PairValues>();
  const PairSamples samples(three_pairs(false), values, 2, true, 5);
  values->set({-1, -2, -3, -4, -5, -6});
  ASSERT_EQ(samples.samples(), 12);
  BatchBuffer buffer(samples, 4);
  std::multiset<int32_t> seen;
  for (int64_t first = 0; first < 12; first += 4) {
    Batch batch = buffer.batch();
    samples.read(batch, first);
    for (int64_t b = 0; b < 4; b += 2) {
      const int32_t* chosen = batch.tokens.as<int32_t>() + 6 * b;
      const int32_t* rejected = chosen + 6;
      EXPECT_EQ(chosen[0], rejected[0]) << "they have one prompt";
      EXPECT_EQ(chosen[2], chosen[0] + 2);
      EXPECT_EQ(rejected[2], chosen[0] + 5);
      const double pair = chosen[0] / 10 - 1;
      EXPECT_EQ(batch.sample_values.as<double>()[b], -1 - 2 * pair);
      EXPECT_EQ(batch.sample_values.as<double>()[b + 1], -2 - 2 * pair);
      seen.insert(chosen[0]);
    }
  }
  EXPECT_EQ(seen, (std::multiset<int32_t>{10, 10, 20, 20, 30, 30}));
}

TEST(PairSamples, CountTheTokensOfAnswers) {
  for (const bool means : {false, true}) {
    const PairSamples samples(three_pairs(means), std::make_shared<PairValues>(), 1, false, 5);
    BatchBuffer buffer(samples, 2);
    Batch batch = buffer.batch();
    samples.read(batch, 2);
    const std::vector<int32_t> labels(batch.labels.as<int32_t>(), batch.labels.as<int32_t>() + 12);
    EXPECT_EQ(labels, (std::vector<int32_t>{21, 22, 23, 9, 9, 9, 21, 25, 9, 9, 9, 9}));
    const std::vector<float> weights(batch.loss_weight.as<float>(), batch.loss_weight.as<float>() + 12);
    const float half = means ? 0.5F : 1.0F;
    EXPECT_EQ(weights, (std::vector<float>{0, half, half, 0, 0, 0, 0, 1, 0, 0, 0, 0}));
    const std::vector<int32_t> padding(batch.padding.as<int32_t>(), batch.padding.as<int32_t>() + 12);
    EXPECT_EQ(padding, (std::vector<int32_t>{0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1}));
    EXPECT_EQ(batch.sample_values.as<double>()[0], 0) << "no values are known";
  }
}

TEST(PairSamples, AreRecognisedByABookmark) {
  const auto values = std::make_shared<PairValues>();
  const auto made = [&](std::shared_ptr<PreferencePairs> pairs, const char* goal) {
    pairs->goal = goal;
    return PairSamples(std::move(pairs), values, 1, false, 0);
  };
  const PairSamples samples = made(three_pairs(false), "a goal");
  EXPECT_NO_THROW(samples.open_at(made(three_pairs(false), "a goal").bookmark(0)));
  EXPECT_THROW(samples.open_at(made(three_pairs(true), "a goal").bookmark(0)), Error);
  EXPECT_THROW(samples.open_at(made(three_pairs(false), "another goal").bookmark(0)), Error);
  auto other = three_pairs(false);
  other->pairs[1][1].tokens[2] = 26;
  EXPECT_THROW(samples.open_at(made(other, "a goal").bookmark(0)), Error);
}

}  // namespace
}  // namespace trifold::test
