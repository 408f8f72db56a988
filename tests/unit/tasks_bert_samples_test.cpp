#include "tasks/bert_samples.h"

#include <algorithm>
#include <map>
#include <set>

#include "data/read_ahead.h"
#include "unit/text_test_support.h"

namespace trifold::test {
namespace {

using Lines = std::vector<std::string_view>;

TEST(Sentences, OfALine) {
  EXPECT_EQ(sentences_of_line("  One two.  Three \r", false), (Lines{"One two.  Three"}));
  EXPECT_EQ(sentences_of_line("One two. \"Three?\" Four 1.5 five!", true),
            (Lines{"One two.", "\"Three?\"", "Four 1.5 five!"}));
  EXPECT_EQ(sentences_of_line("What?! (Yes.) no end", true), (Lines{"What?!", "(Yes.)", "no end"}));
  EXPECT_TRUE(sentences_of_line(" \t", true).empty());
}

std::shared_ptr<SentenceTokens> text_of(const std::string& text, SentenceTokens::Options how = {}) {
  const TempDir dir;
  write_file(dir.file("text"), text);
  auto tokens = std::make_shared<SentenceTokens>(how);
  tokens->add(dir.file("text"), ByteTokenizer());
  return tokens;
}

TEST(Sentences, DocumentsAreSeparatedByBlankLines) {
  const auto text = text_of("\n\nab\ncde\n \n\nf g\n", {.words = true});
  ASSERT_EQ(text->documents(), 2);
  EXPECT_EQ(text->sentences(0).size(), 2);
  EXPECT_EQ(text->sentences(1).size(), 1);
  EXPECT_EQ(text->begin(1), 2);
  EXPECT_EQ(text->begin(3), 8);
  EXPECT_EQ(text->tokens()[5], 'f');
  std::string starts;
  for (int64_t i = 0; i < 8; ++i) starts += text->starts_word(i) ? '1' : '0';
  EXPECT_EQ(starts, "10100111");
}

// Documents whose sentences say where they are: document d, sentence s is 'A' + d, then 'a' + s, four times.
std::shared_ptr<SentenceTokens> numbered(int documents, int sentences) {
  std::string text;
  for (int d = 0; d < documents; ++d) {
    for (int s = 0; s < sentences; ++s) {
      for (int i = 0; i < 4; ++i) text += {static_cast<char>('A' + d), static_cast<char>('a' + s)};
      text += '\n';
    }
    text += '\n';
  }
  return text_of(text);
}

const BertTokens kSpecial(256);

std::vector<int64_t> first(int64_t count) {
  std::vector<int64_t> all(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) all[static_cast<size_t>(i)] = i;
  return all;
}

struct Sample {
  std::string text;  // the labels; special tokens as one sign each, _ for padding
  std::vector<int32_t> tokens, types;
  std::vector<float> weights;
  int32_t length, random;
};

Sample sample(const BertSamples& source, int64_t index) {
  BatchBuffer buffer(1, source.seq_length());
  source.read(buffer.batch(), index);
  const Batch& batch = buffer.batch();
  const auto n = static_cast<size_t>(source.seq_length());
  Sample s{{}, {}, {}, {}, batch.lengths.as<int32_t>()[0], batch.pair_labels.as<int32_t>()[0]};
  for (size_t i = 0; i < n; ++i) {
    const int32_t label = batch.labels.as<int32_t>()[i];
    s.text += label == kSpecial.cls   ? '['
              : label == kSpecial.sep ? '|'
              : label == kSpecial.pad ? '_'
                                      : static_cast<char>(label);
    s.tokens.push_back(batch.tokens.as<int32_t>()[i]);
    s.types.push_back(batch.token_types.as<int32_t>()[i]);
    s.weights.push_back(batch.loss_weight.as<float>()[i]);
    EXPECT_EQ(batch.positions.as<int32_t>()[i], static_cast<int32_t>(i));
  }
  return s;
}

TEST(BertSamples, PairsAreOfOneDocumentOrOfTwo) {
  const BertSamples source(numbered(6, 8), first(6), kSpecial, {.seq_length = 40, .short_probability = 0}, 50,
                           1);
  int random = 0;
  for (int64_t i = 0; i < source.samples(); ++i) {
    const Sample s = sample(source, i);
    ASSERT_EQ(s.text[0], '[');
    const size_t middle = s.text.find('|');
    const size_t end = s.text.find('|', middle + 1);
    ASSERT_EQ(static_cast<size_t>(s.length), end + 1) << s.text;
    EXPECT_EQ(s.text.find_first_not_of('_', end + 1), std::string::npos) << s.text;
    const std::string a = s.text.substr(1, middle - 1), b = s.text.substr(middle + 1, end - middle - 1);
    ASSERT_FALSE(a.empty() || b.empty()) << s.text;
    for (size_t t = 0; t < s.types.size(); ++t)
      EXPECT_EQ(s.types[t], t > middle && t <= end ? 1 : 0) << s.text;
    const auto document = [](const std::string& part) {
      return *std::find_if(part.begin(), part.end(), [](char c) { return c < 'a'; });
    };
    EXPECT_EQ(document(a) != document(b), s.random == 1) << s.text;
    if (s.random == 0) {  // the sentence that follows
      const auto sentence = [](char c) { return c >= 'a'; };
      const char last = *std::find_if(a.rbegin(), a.rend(), sentence);
      EXPECT_EQ(*std::find_if(b.begin(), b.end(), sentence), last + 1) << s.text;
    }
    random += s.random;
  }
  EXPECT_NEAR(random, 0.5 * static_cast<double>(source.samples()),
              0.06 * static_cast<double>(source.samples()));
}

TEST(BertSamples, EightOfTenMaskedTokensBecomeMask) {
  const BertSamples source(numbered(20, 20), first(20), kSpecial, {.seq_length = 128, .short_probability = 0},
                           8, 2);
  double chosen = 0, masked = 0, kept = 0;
  for (int64_t i = 0; i < source.samples(); ++i) {
    const Sample s = sample(source, i);
    int here = 0;
    for (size_t t = 0; t < s.tokens.size(); ++t) {
      const auto original = static_cast<unsigned char>(s.text[t]);
      if (s.weights[t] == 0) {
        if (s.tokens[t] < 256) {
          EXPECT_EQ(s.tokens[t], original);
        }
        EXPECT_NE(s.tokens[t], kSpecial.mask);
        continue;
      }
      EXPECT_TRUE(original != '[' && original != '|' && original != '_') << "special tokens are never chosen";
      ++here;
      masked += s.tokens[t] == kSpecial.mask;
      kept += s.tokens[t] == original;
    }
    EXPECT_EQ(here, std::max(1, static_cast<int>(std::lround(0.15 * s.length))));
    chosen += here;
  }
  EXPECT_NEAR(masked / chosen, 0.8, 0.02);
  EXPECT_NEAR(kept / chosen, 0.1, 0.02);
}

TEST(BertSamples, WholeWordsAreMaskedTogether) {
  std::string lines;
  for (int d = 0; d < 4; ++d) lines += "alpha beta gamma.\ndelta epsilon zeta eta.\n\n";
  const BertSamples source(text_of(lines, {.words = true}), first(4), kSpecial,
                           {.seq_length = 64, .whole_words = true}, 40, 3);
  for (int64_t i = 0; i < source.samples(); ++i) {
    const Sample s = sample(source, i);
    double chosen = 0;
    for (size_t t = 0; t < s.weights.size(); ++t) {
      chosen += s.weights[t];
      if (t > 0 && std::isalpha(s.text[t]) && std::isalpha(s.text[t - 1])) {
        EXPECT_EQ(s.weights[t], s.weights[t - 1]) << s.text << " at " << t;
      }
    }
    EXPECT_GE(chosen, std::max(1.0, std::round(0.15 * s.length)));
    EXPECT_LT(chosen, std::round(0.15 * s.length) + 7);
  }
}

TEST(BertSamples, AreAPureFunctionOfSeedAndIndex) {
  const auto text = numbered(6, 8);
  const BertSamples one(text, first(6), kSpecial, {.seq_length = 40}, 3, 7);
  const BertSamples longer(text, first(6), kSpecial, {.seq_length = 40}, 30, 7);
  const BertSamples other(text, first(6), kSpecial, {.seq_length = 40}, 3, 8);
  int different = 0;
  for (int64_t i = one.samples() - 1; i >= 0; --i) {
    EXPECT_EQ(sample(one, i).tokens, sample(longer, i).tokens);
    different += sample(one, i).tokens != sample(other, i).tokens;
  }
  EXPECT_GT(different, one.samples() / 2);
  // Passes mask anew.
  std::set<std::vector<int32_t>> seen;
  for (int64_t i = 0; i < longer.samples(); ++i) seen.insert(sample(longer, i).tokens);
  EXPECT_GT(static_cast<int64_t>(seen.size()), longer.samples() * 9 / 10);
}

TEST(BertSamples, EveryChunkComesOnceInAPassAndSomeSamplesAreShort) {
  const BertSamples source(numbered(10, 8), first(10), kSpecial,
                           {.seq_length = 40, .short_probability = 0.5, .pairs = false}, 4, 9);
  std::map<std::string, int> starts;
  int shorter = 0;
  for (int64_t i = 0; i < source.samples(); ++i) {
    const Sample s = sample(source, i);
    EXPECT_EQ(std::count(s.text.begin(), s.text.end(), '|'), 1);
    EXPECT_EQ(std::count(s.types.begin(), s.types.end(), 0), 40);
    shorter += s.length < 20;
    ++starts[s.text.substr(1, 1)];
  }
  EXPECT_GT(shorter, source.samples() / 10);
  for (const auto& [document, count] : starts) EXPECT_NEAR(count, 8, 6) << document;
}

TEST(BertSamples, LongSentencesLoseTheirEnds) {
  std::string text;
  for (int d = 0; d < 3; ++d) text += std::string(1000, static_cast<char>('a' + d)) + "\n\n";
  const BertSamples source(text_of(text), first(3), kSpecial, {.seq_length = 33, .short_probability = 0}, 5,
                           1);
  for (int64_t i = 0; i < source.samples(); ++i) {
    const Sample s = sample(source, i);
    EXPECT_EQ(s.length, 33);
    EXPECT_EQ(s.random, 1);
    EXPECT_EQ(s.text[16], '|') << "halves: " << s.text;
  }
}

TEST(BertSamples, SamplesBeyondTheEndAreNoPairs) {
  const BertSamples source(numbered(3, 4), first(3), kSpecial, {.seq_length = 40}, 1, 1);
  BatchBuffer buffer(4, 40);
  read_padded(source, buffer.batch(), source.samples() - 1, source.samples());
  const Batch& batch = buffer.batch();
  EXPECT_EQ(batch.pair_weight.as<float>()[0], 1.0F);
  for (int64_t b = 1; b < 4; ++b) {
    EXPECT_EQ(batch.pair_weight.as<float>()[b], 0.0F);
    EXPECT_EQ(batch.lengths.as<int32_t>()[b], 1);
    EXPECT_EQ(batch.loss_weight.as<float>()[b * 40 + 1], 0.0F);
  }
}

TEST(BertCorpus, SplitsDocumentsAndRejectsUnreadableData) {
  const TempDir dir;
  std::string text;
  for (int d = 0; d < 10; ++d) text += "a first line\nand a second\n\n";
  write_file(dir.file("text"), text);
  DataConfig config;
  config.data_path = {dir.file("text")};
  config.split = "80,20,0";
  const BertCorpus corpus(config, 260, true);
  EXPECT_TRUE(corpus.has(Split::Valid));
  EXPECT_FALSE(corpus.has(Split::Test));
  EXPECT_EQ(corpus.passes(Split::Valid, 64, 1, 1)->samples(), 2);
  EXPECT_GE(corpus.source(Split::Train, 64, 100, 1)->samples(), 100);
  EXPECT_LT(corpus.source(Split::Train, 64, 100, 1)->samples(), 108 + 1);

  expect_has(error_of([&] { BertCorpus(config, 259, true); }), "give --vocab-size 260");
  config.data_path = {"0.5", dir.file("text"), "0.5", dir.file("text")};
  expect_has(error_of([&] { BertCorpus(config, 260, true); }), "give the paths alone");
  write_documents(dir.file("tokens"), TokenType::U16, {{1, 2, 3}});
  config.data_path = {dir.file("text"), dir.file("tokens")};
  expect_has(error_of([&] { BertCorpus(config, 260, true); }), "give the text");
  config.split = "1,0,0";
  write_file(dir.file("one"), "a line\nand another\n");
  config.data_path = {dir.file("one")};
  expect_has(error_of([&] { BertCorpus(config, 260, true).passes(Split::Train, 64, 1, 1); }),
             "--bert-no-binary-head");
  EXPECT_EQ(BertCorpus(config, 260, false).passes(Split::Train, 64, 1, 1)->samples(), 1);
}

}  // namespace
}  // namespace trifold::test
