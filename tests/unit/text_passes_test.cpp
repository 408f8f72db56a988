// Passes over a corpus: every sample once in each.
#include <map>

#include "data/read_ahead.h"
#include "text/corpus.h"
#include "unit/text_corpus_testing.h"

namespace trifold {
namespace {

using test::config_of;
using test::counting_text;
using test::error_of;
using test::expect_has;
using test::row;
using test::sample_text;
using test::TempDir;
using test::write_eight;
using test::write_file;

// Texts of the samples of a pass, and how often each came.
std::map<std::vector<int32_t>, int> samples_of_pass(const DataSource& source, int64_t pass, int64_t each) {
  std::map<std::vector<int32_t>, int> texts;
  for (int64_t i = pass * each; i < (pass + 1) * each; ++i) ++texts[sample_text(source, i)];
  return texts;
}

// Indexed data, a text, and a blend of both.
TEST(Passes, GiveEverySampleOnceInEach) {
  const TempDir dir;
  write_eight(dir.file("d"));
  write_file(dir.file("t"), counting_text(101));
  const std::vector<std::pair<std::vector<std::string>, int64_t>> corpora = {
      {{dir.file("d")}, (47 - 1) / 8},
      {{dir.file("t")}, 100 / 8},
      {{dir.file("t"), dir.file("d")}, 100 / 8 + (47 - 1) / 8}};
  for (const auto& [paths, each] : corpora) {
    const auto source = Corpus(config_of(paths), 256).passes(Split::Train, 8, 3, 1234);
    ASSERT_EQ(source->samples(), 3 * each);
    const auto first = samples_of_pass(*source, 0, each);
    EXPECT_EQ(static_cast<int64_t>(first.size()), each);  // all different
    for (int64_t pass : {1, 2}) {
      EXPECT_EQ(samples_of_pass(*source, pass, each), first);
      int same = 0;
      for (int64_t i = 0; i < each; ++i)
        same += sample_text(*source, i) == sample_text(*source, pass * each + i) ? 1 : 0;
      EXPECT_LT(same, each) << "the order of pass " << pass << " is that of the first";
    }
  }
  // One pass is in Megatron-LM's order.
  const auto indexed = open_data(config_of({dir.file("d")}), Split::Train, 8, 5, 1234, 128);
  const auto pass = Corpus(config_of({dir.file("d")}), 128).passes(Split::Train, 8, 1, 1234);
  for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(sample_text(*pass, i), sample_text(*indexed, i));
  const Corpus weighted(config_of({"1", dir.file("d"), "2", dir.file("t")}), 256);
  expect_has(error_of([&] { weighted.passes(Split::Train, 8, 1, 1); }, ErrorKind::BadInput),
             "no single pass");
}

TEST(Passes, AreFilledUpWithoutWeight) {
  const TempDir dir;
  write_eight(dir.file("d"));
  const auto source = Corpus(config_of({dir.file("d")}), 128).passes(Split::Train, 8, 1, 1234);
  ReadAhead ahead(*source, {.stride = 4, .micro_batch_size = 4, .count = 3, .end = 5});
  const auto weights = [](const Batch& batch) {
    float sum = 0;
    for (int64_t i = 0; i < batch.loss_weight.elements(); ++i) sum += batch.loss_weight.as<float>()[i];
    return sum;
  };
  EXPECT_EQ(weights(ahead.get()), 4 * 8);
  const Batch& last = ahead.get();
  std::vector<int32_t> text = row(last.tokens, 0);
  text.push_back(row(last.labels, 0).back());
  EXPECT_EQ(text, sample_text(*source, 4));
  EXPECT_EQ(row(last.tokens, 1), std::vector<int32_t>(8, 0));
  EXPECT_EQ(row(last.positions, 3), (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(weights(last), 8);
  const Batch& beyond = ahead.get();
  EXPECT_EQ(weights(beyond), 0);
  EXPECT_EQ(beyond.first_sample, 8);
}

}  // namespace
}  // namespace trifold
