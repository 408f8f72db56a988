#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "data/read_ahead.h"
#include "train/judge/request_samples.h"
#include "train/judge/task_file.h"
#include "train/judge/task_scores.h"

namespace trifold {
namespace {

TEST(JudgeRequests, CutContextsAndKeepChoices) {
  const ByteTokenizer tokenizer;
  const RequestEncoder encoder(tokenizer, '\n', 6);
  const ScoringRequest cut = encoder.pair("0123456789 ", "ab");
  EXPECT_EQ(cut.tokens, (std::vector<int32_t>{'6', '7', '8', '9', ' ', 'a', 'b'}));
  EXPECT_EQ(cut.scored, 3);  // the space too
  EXPECT_EQ(encoder.pair("", "ab").tokens, (std::vector<int32_t>{'\n', 'a', 'b'}));
  EXPECT_EQ(encoder.pair("", "\nab").tokens, (std::vector<int32_t>{'\n', 'a', 'b'}));
  EXPECT_THROW((void)encoder.pair("a", "1234567"), Error);
  EXPECT_THROW((void)encoder.pair(" ", "a"), Error);
}

TEST(JudgeRequests, ScoreEachTokenOfATextOnce) {
  const ByteTokenizer tokenizer;
  const RequestEncoder encoder(tokenizer, '\n', 4);
  const std::vector<ScoringRequest> requests = encoder.rolling("0123456789");
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_EQ(requests[0].tokens, (std::vector<int32_t>{'\n', '0', '1', '2', '3'}));
  EXPECT_EQ(requests[1].tokens, (std::vector<int32_t>{'3', '4', '5', '6', '7'}));
  EXPECT_EQ(requests[2].tokens, (std::vector<int32_t>{'5', '6', '7', '8', '9'}));
  EXPECT_EQ(requests[0].scored + requests[1].scored + requests[2].scored, 10);
}

TEST(JudgeRequests, ArePackedWithoutOverlap) {
  std::vector<ScoringRequest> requests;
  for (const int64_t tokens : {6, 4, 3, 9, 2, 2})
    requests.push_back({std::vector<int32_t>(static_cast<size_t>(tokens), static_cast<int32_t>(tokens)), 1});
  const RequestSamples samples(requests, 8);
  EXPECT_EQ(samples.samples(), 3);  // inputs 5 + 3, 2 + 1 + 1, 8
  BatchBuffer buffer(samples, samples.samples());
  Batch& batch = buffer.batch();
  read_padded(samples, batch, 0, samples.samples());
  std::vector<int> seen(requests.size());
  for (int64_t sample = 0; sample < samples.samples(); ++sample)
    for (const RequestSamples::Place& place : samples.places(sample)) {
      const ScoringRequest& request = requests[static_cast<size_t>(place.request)];
      ++seen[static_cast<size_t>(place.request)];
      for (int64_t i = 0; i < request.inputs(); ++i) {
        const int64_t at = sample * 8 + place.begin + i;
        EXPECT_EQ(batch.tokens.as<int32_t>()[at], request.tokens[static_cast<size_t>(i)]);
        EXPECT_EQ(batch.positions.as<int32_t>()[at], i);
        EXPECT_EQ(batch.document_begin.as<int32_t>()[at], place.begin);
        EXPECT_EQ(batch.padding.as<int32_t>()[at], 0);
        EXPECT_EQ(batch.loss_weight.as<float>()[at], i + 1 == request.inputs() ? 1.0F : 0.0F);
      }
    }
  EXPECT_EQ(seen, std::vector<int>(requests.size(), 1));
  const float* weights = batch.loss_weight.as<float>();
  EXPECT_EQ(std::count(weights, weights + batch.loss_weight.elements(), 1.0F), 6);
  const int32_t* padding = batch.padding.as<int32_t>();
  EXPECT_EQ(std::count(padding, padding + batch.padding.elements(), 1), 4);
}

TEST(JudgeScores, CountWordsAndCharactersOfUnicode) {
  EXPECT_EQ(count_words("a b\n\nc"), 3);
  EXPECT_EQ(count_words(" a\u2003b\x1c"), 4);  // empty parts before and after
  EXPECT_EQ(count_characters("\u00e9\u6f22\U0001F600a"), 4);
}

TEST(JudgeScores, HaveTheErrorOfASample) {
  const MeanWithError share = mean_with_error(std::vector<double>{1, 0, 1, 1});
  EXPECT_DOUBLE_EQ(share.mean, 0.75);
  EXPECT_DOUBLE_EQ(share.error.value(), 0.25);
  EXPECT_FALSE(mean_with_error(std::vector<double>{1}).error.has_value());
}

}  // namespace
}  // namespace trifold
