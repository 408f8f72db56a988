// From --data-path to batches: indexed data sets, text files and blends of them.
#include "text/corpus.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "data/read_ahead.h"
#include "support/test_data.h"
#include "text/gpt_samples.h"
#include "unit/text_corpus_testing.h"
#include "unit/text_test_support.h"

namespace trifold {
namespace {

using test::config_of;
using test::counting_text;
using test::error_of;
using test::expect_has;
using test::row;
using test::sample_text;
using test::TempDir;
using test::write_documents;
using test::write_eight;
using test::write_file;

TEST(GptSamples, GivesTheTextOfTheGoldenOrder) {
  const TempDir dir;
  write_eight(dir.file("d"));
  const auto source = open_data(config_of({dir.file("d")}), Split::Train, 8, 5, 1234, 128);
  ASSERT_EQ(source->samples(), 5);
  // The documents' order is 2 1 6 0 4 5 3 7; sample 0 of the training order is number 2, which starts at
  // position 3 (document 0), token 0, and continues through document 4 into document 5.
  EXPECT_EQ(sample_text(*source, 0), (std::vector<int32_t>{0, 1, 2, 3, 4, 64, 65, 80, 81}));
  // Sample 1 is number 0: documents 2 and 1.
  EXPECT_EQ(sample_text(*source, 1), (std::vector<int32_t>{32, 33, 34, 16, 17, 18, 19, 20, 21}));
}

TEST(SampleSource, ShiftsLabelsAndCountsPositions) {
  const TempDir dir;
  write_eight(dir.file("d"));
  const auto source = open_data(config_of({dir.file("d")}), Split::Train, 8, 40, 3, 128);
  BatchBuffer buffer(3, 8);
  source->read(buffer.batch(), 20);
  EXPECT_EQ(buffer.batch().first_sample, 20);
  for (int64_t b = 0; b < 3; ++b) {
    const auto tokens = row(buffer.batch().tokens, b);
    const auto labels = row(buffer.batch().labels, b);
    EXPECT_TRUE(std::equal(tokens.begin() + 1, tokens.end(), labels.begin()));
    EXPECT_EQ(row(buffer.batch().positions, b), (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7}));
    for (int64_t t = 0; t < 8; ++t) EXPECT_EQ(buffer.batch().loss_weight.as<float>()[b * 8 + t], 1.0F);
  }
  expect_has(error_of([&] { source->read(buffer.batch(), source->samples() - 2); }, ErrorKind::Failure),
             "were asked for, the data source has");
  BatchBuffer wrong(3, 7);
  expect_has(error_of([&] { source->read(wrong.batch(), 0); }, ErrorKind::Failure), "sequences of 8 tokens");
}

TEST(SampleSource, GivesTheSameGlobalBatchHoweverItIsDivided) {
  const TempDir dir;
  write_eight(dir.file("d"));
  const auto source = open_data(config_of({dir.file("d")}), Split::Train, 8, 48, 3, 128);
  BatchBuffer whole(24, 8);
  source->read(whole.batch(), 12);
  for (const int64_t ranks : {1, 2, 4}) {
    for (const int64_t micro : {1, 2, 3}) {
      for (int64_t rank = 0; rank < ranks; ++rank) {
        ReadAhead ahead(*source, {12 + rank * micro, ranks * micro, micro, 24 / (ranks * micro)});
        for (int64_t i = 0; i < 24 / (ranks * micro); ++i) {
          const Batch& batch = ahead.get();
          for (int64_t b = 0; b < micro; ++b)
            EXPECT_EQ(row(batch.tokens, b), row(whole.batch().tokens, batch.first_sample - 12 + b));
        }
      }
    }
  }
}

TEST(SampleSource, MasksTheLabelAfterTheEndOfADocument) {
  const TempDir dir;
  write_file(dir.file("t"), "To be, or not to be.\n");
  DataConfig config = config_of({dir.file("t")});
  config.tokenizer_type = TokenizerType::SentencePiece;
  config.tokenizer_model = test::test_data() + "/data/shakespeare_400.model";
  config.eod_mask_loss = true;
  const auto tokenizer = open_tokenizer(config);
  const int32_t eod = tokenizer->eod().value();
  write_documents(dir.file("d"), TokenType::U16, {{9, 8, eod}, {7, 6, 5, eod}, {7, 7}});
  config.data_path = {dir.file("d")};
  const auto source = open_data(config, Split::Train, 8, 1, 1, tokenizer->vocab_size());
  BatchBuffer buffer(1, 8);
  source->read(buffer.batch(), 0);
  int masked = 0;
  for (size_t t = 0; t < 8; ++t) {
    const bool ends = row(buffer.batch().tokens, 0)[t] == eod;
    EXPECT_EQ(buffer.batch().loss_weight.as<float>()[t], ends ? 0.0F : 1.0F);
    masked += ends ? 1 : 0;
  }
  EXPECT_GE(masked, 1);

  config.tokenizer_type.reset();
  config.tokenizer_model.reset();
  expect_has(error_of([&] { Corpus corpus(config, 400); }), "--eod-mask-loss needs a tokenizer");
}

// The token that ends a document belongs to it; a sample begins in the middle of a document.
TEST(SampleSource, DocumentsBeginBehindTheEndOfTheLast) {
  class Fixed final : public Samples {
   public:
    int64_t count() const override { return 2; }
    void read(int64_t index, std::span<int32_t> out) const override {
      const std::vector<int32_t> text = index == 0 ? std::vector<int32_t>{5, 6, 0, 0, 7, 8, 9, 0, 1}
                                                   : std::vector<int32_t>{0, 5, 6, 7, 8, 9, 4, 3, 0};
      std::copy(text.begin(), text.end(), out.begin());
    }
  };
  const DocumentRules all{.end = 0, .mask_loss = true, .restart_positions = true, .separate_attention = true};
  const SampleSource source(std::make_unique<Fixed>(), 8, all);
  EXPECT_TRUE(source.separates_documents());
  BatchBuffer buffer(source, 3);
  read_padded(source, buffer.batch(), 0, 2);
  const Batch& batch = buffer.batch();
  using Row = std::vector<int32_t>;
  EXPECT_EQ(row(batch.document_begin, 0), (Row{0, 0, 0, 3, 4, 4, 4, 4}));
  EXPECT_EQ(row(batch.positions, 0), (Row{0, 1, 2, 0, 0, 1, 2, 3}));
  EXPECT_EQ(row(batch.document_begin, 1), (Row{0, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(row(batch.positions, 1), (Row{0, 0, 1, 2, 3, 4, 5, 6}));
  const std::vector<float> counted(batch.loss_weight.as<float>(), batch.loss_weight.as<float>() + 16);
  EXPECT_EQ(counted, (std::vector<float>{1, 1, 0, 0, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(row(batch.document_begin, 2), Row(8, 0)) << "padding is one document";

  // Each rule alone leaves the others as they are without.
  const SampleSource positions(std::make_unique<Fixed>(), 8, {.end = 0, .restart_positions = true});
  EXPECT_FALSE(positions.separates_documents());
  BatchBuffer plain(positions, 1);
  positions.read(plain.batch(), 0);
  EXPECT_EQ(plain.batch().document_begin.data, nullptr);
  EXPECT_EQ(row(plain.batch().positions, 0), (Row{0, 1, 2, 0, 0, 1, 2, 3}));
  EXPECT_EQ(plain.batch().loss_weight.as<float>()[2], 1);
  EXPECT_THROW(SampleSource(std::make_unique<Fixed>(), 8, {.end = {}, .mask_loss = true}), Error);
}

TEST(Corpus, CutsDocumentsOfIndexedPlainAndStreamedText) {
  const TempDir dir;
  std::string lines, text;
  for (int32_t i = 0; i < 40; ++i) {
    lines += "{\"text\": \"To be, or not to be.\"}\n";
    text += "To be, or not to be.\n";
  }
  write_file(dir.file("s.jsonl"), lines);
  write_file(dir.file("t"), text);
  for (const TokenizerType type : {TokenizerType::SentencePiece, TokenizerType::Byte}) {
    DataConfig config = config_of({});
    config.tokenizer_type = type;
    if (type == TokenizerType::SentencePiece)
      config.tokenizer_model = test::test_data() + "/data/shakespeare_400.model";
    config.reset_attention_mask = config.reset_position_ids = true;
    const auto tokenizer = open_tokenizer(config);
    const int32_t eod = tokenizer->eod().value();
    std::vector<std::vector<int32_t>> documents;
    for (int32_t i = 0; i < 40; ++i) documents.push_back({9 + i, 8, eod});
    const std::string indexed = std::string("d_") + std::string(name_of(type));
    write_documents(dir.file(indexed), TokenType::U16, documents);
    for (const std::string& name : {indexed, std::string("s.jsonl"), std::string("t")}) {
      SCOPED_TRACE(name);
      config.data_path = {dir.file(name)};
      const auto source = open_data(config, Split::Train, 32, 2, 1, tokenizer->vocab_size());
      BatchBuffer buffer(*source, 2);
      source->read(buffer.batch(), 0);
      for (int64_t b = 0; b < 2; ++b) {
        int32_t begin = 0;
        for (int32_t t = 0; t < 32; ++t) {
          EXPECT_EQ(row(buffer.batch().document_begin, b)[static_cast<size_t>(t)], begin);
          EXPECT_EQ(row(buffer.batch().positions, b)[static_cast<size_t>(t)], t - begin);
          if (row(buffer.batch().tokens, b)[static_cast<size_t>(t)] == eod) begin = t + 1;
        }
        // A plain file is one document.
        EXPECT_EQ(begin > 0, name != "t");
      }
    }
  }
}

TEST(Corpus, ATextWithTheEndOfADocumentOfBytesIsRejected) {
  const TempDir dir;
  write_file(dir.file("t"), std::string(40, 'a') + '\0' + std::string(40, 'b'));
  DataConfig config = config_of({dir.file("t")});
  EXPECT_NO_THROW(open_data(config, Split::Train, 8, 1, 1, 256));
  config.eod_mask_loss = true;
  expect_has(error_of([&] { open_data(config, Split::Train, 8, 1, 1, 256); }),
             "contains a byte 0, which is the byte tokenizer's end of a document");
}

TEST(Permutation, VisitsEverythingOnce) {
  for (const int64_t count : {1, 2, 3, 7, 64, 1000, 4097}) {
    std::set<int64_t> seen;
    int64_t fixed = 0;
    const Permutation order(philox_key(1, "x"), count);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t value = order(i);
      EXPECT_TRUE(0 <= value && value < count);
      fixed += value == i ? 1 : 0;
      seen.insert(value);
    }
    EXPECT_EQ(static_cast<int64_t>(seen.size()), count);
    if (count >= 64) {
      EXPECT_LT(fixed, 10);  // one is expected of a random order
    }
  }
}

TEST(TextSamples, CoversItsPartAndNothingElse) {
  const TempDir dir;
  write_file(dir.file("t"), counting_text(1003));
  const auto text = std::make_shared<const TextTokens>(dir.file("t"), nullptr, 256);
  const SplitFractions fractions("80,20");
  for (const Split split : {Split::Train, Split::Valid}) {
    const Interval part = fractions.of(split, text->count());
    const TextSamples samples(text, part, split, 16, 300, 5);
    const int64_t each = samples.samples_per_epoch();
    EXPECT_EQ(each, (part.size() - 1) / 16 - (split == Split::Train ? 1 : 0));
    EXPECT_GE(samples.count(), 300);
    std::set<int64_t> first_starts;
    for (int64_t epoch = 0; epoch < samples.count() / each; ++epoch) {
      std::vector<int64_t> starts;
      for (int64_t i = 0; i < each; ++i) starts.push_back(samples.start_of(epoch * each + i));
      EXPECT_FALSE(std::is_sorted(starts.begin(), starts.end()));  // shuffled
      std::sort(starts.begin(), starts.end());
      for (size_t i = 1; i < starts.size(); ++i)
        EXPECT_EQ(starts[i] - starts[i - 1], 16);  // all windows, once
      EXPECT_GE(starts.front(), part.begin);
      EXPECT_LE(starts.back() + 17, part.end);  // nothing of another part, not even the last label
      first_starts.insert(starts.front());
    }
    if (split == Split::Train) {
      EXPECT_GT(first_starts.size(), 3U);
    } else {
      EXPECT_EQ(first_starts, std::set<int64_t>{part.begin});
    }
  }
  EXPECT_EQ(fractions.of(Split::Train, 1003).end, fractions.of(Split::Valid, 1003).begin);
}

TEST(TextSamples, ReadsTheBytes) {
  const TempDir dir;
  const std::string content = counting_text(500);
  write_file(dir.file("t"), content);
  const auto text = std::make_shared<const TextTokens>(dir.file("t"), nullptr, 256);
  const TextSamples samples(text, {100, 400}, Split::Train, 16, 40, 5);
  std::vector<int32_t> out(17);
  for (int64_t i = 0; i < samples.count(); ++i) {
    samples.read(i, out);
    for (size_t t = 0; t < 17; ++t)
      EXPECT_EQ(out[t], static_cast<unsigned char>(content[static_cast<size_t>(samples.start_of(i)) + t]));
  }
}

TEST(TextSamples, OrderDependsOnTheSeedAndNotOnTheCount) {
  const TempDir dir;
  write_file(dir.file("t"), counting_text(1000));
  const auto text = std::make_shared<const TextTokens>(dir.file("t"), nullptr, 256);
  const TextSamples few(text, {0, 1000}, Split::Train, 16, 10, 5);
  const TextSamples many(text, {0, 1000}, Split::Train, 16, 500, 5);
  const TextSamples other(text, {0, 1000}, Split::Train, 16, 10, 6);
  int same = 0;
  for (int64_t i = 0; i < few.count(); ++i) {
    EXPECT_EQ(few.start_of(i), many.start_of(i));
    same += few.start_of(i) == other.start_of(i) ? 1 : 0;
  }
  EXPECT_LT(same, 10);
}

TEST(TextSamples, TakesTheShortestPart) {
  const TempDir dir;
  write_file(dir.file("t"), "0123456789");
  const auto source = open_data(config_of({dir.file("t")}), Split::Train, 9, 3, 1, 256);
  EXPECT_EQ(source->samples(), 3);
  EXPECT_EQ(sample_text(*source, 2).back(), '9');
  expect_has(error_of([&] { open_data(config_of({dir.file("t")}), Split::Train, 10, 3, 1, 256); }),
             "training part has 10 tokens (of 10 in the file), one sample needs 11");
}

TEST(Corpus, DocumentsWithoutEndsAreRefusedOrWarnedOf) {
  const TempDir dir;
  write_documents(dir.file("none"), TokenType::U16, {{9, 8, 7}, {6, 5}, {4}});
  write_documents(dir.file("ends"), TokenType::U16, {{9, 8, 0}, {6, 5, 0}, {4, 0}});
  write_documents(dir.file("one"), TokenType::U16, {{9, 8, 7, 6, 5, 4}});
  for (const char* option : {"eod-mask-loss", "reset-attention-mask", "reset-position-ids"}) {
    const auto with = [&](const char* name) {
      DataConfig config = config_of({dir.file(name)});
      config.tokenizer_type = TokenizerType::Byte;
      config.eod_mask_loss = option == std::string("eod-mask-loss");
      config.reset_attention_mask = option == std::string("reset-attention-mask");
      config.reset_position_ids = option == std::string("reset-position-ids");
      return config;
    };
    expect_has(error_of([&] { Corpus(with("none"), 256); }),
               fmt::format("--{} has no effect on {}: none of its 3 documents ends with the token 0", option,
                           dir.file("none")));
    EXPECT_TRUE(Corpus(with("ends"), 256).notes().warnings.empty());
    EXPECT_TRUE(Corpus(with("one"), 256).notes().warnings.empty());
  }
  const auto pieces = [&](const char* name) {
    DataConfig config = config_of({dir.file(name)});
    config.tokenizer_type = TokenizerType::SentencePiece;
    config.tokenizer_model = test::test_data() + "/data/shakespeare_400.model";
    return Corpus(config, 400).notes().warnings;
  };
  ASSERT_EQ(pieces("none").size(), 1U);
  expect_has(pieces("none")[0], "none of its 3 documents ends with the token 2");
  EXPECT_TRUE(pieces("one").empty());
}

TEST(Corpus, StreamedDocumentsWithoutEndsAreWarnedOf) {
  const TempDir dir;
  write_file(dir.file("a.jsonl"), "{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
  DataConfig config = config_of({dir.file("a.jsonl")});
  const DataNotes notes = Corpus(config, 256).notes();
  ASSERT_EQ(notes.warnings.size(), 1U);
  expect_has(notes.warnings[0], "no token that ends a document");
  ASSERT_EQ(notes.files.size(), 1U);
  expect_has(notes.files[0], "1 file of JSON lines");
  config.eod_mask_loss = true;
  EXPECT_TRUE(Corpus(config, 256).notes().warnings.empty());
  config = config_of({dir.file("a.jsonl")});
  config.eod_token = "x";
  expect_has(error_of([&] { Corpus(config, 256); }), "--eod-token x");
}

TEST(TextTokens, EncodesWithSentencePiece) {
  const TempDir dir;
  const std::string content = "First Citizen:\nSpeak, speak.\n\nAll:\nSpeak.";
  write_file(dir.file("t"), content);
  const SentencePieceTokenizer tokenizer(test::test_data() + "/data/shakespeare_400.model");
  const TextTokens text(dir.file("t"), &tokenizer, tokenizer.vocab_size());
  std::vector<int32_t> ids(static_cast<size_t>(text.count()));
  text.read(0, ids);
  EXPECT_LT(ids.size(), content.size());
  EXPECT_EQ(tokenizer.decode(ids), content);
  expect_has(error_of([&] { TextTokens small(dir.file("t"), &tokenizer, 50); }),
             "outside the vocabulary of 50");
}

TEST(Corpus, BlendsByWeight) {
  const TempDir dir;
  write_file(dir.file("a"), std::string(2000, 'a'));
  write_file(dir.file("b"), std::string(2000, 'b'));
  const auto source =
      open_data(config_of({"30", dir.file("a"), "70", dir.file("b")}), Split::Train, 16, 1000, 5, 256);
  EXPECT_EQ(source->samples(), 1000);
  int from_a = 0;
  for (int64_t i = 0; i < 1000; ++i) from_a += sample_text(*source, i)[0] == 'a' ? 1 : 0;
  EXPECT_EQ(from_a, 300);
}

TEST(Corpus, RoundsTheSharesOfABlendUp) {
  const TempDir dir;
  write_file(dir.file("a"), std::string(2000, 'a'));
  const auto source =
      open_data(config_of({"1", dir.file("a"), "2", dir.file("a")}), Split::Train, 16, 1000, 5, 256);
  EXPECT_EQ(source->samples(), 334 + 667);
}

TEST(Corpus, BlendsWithoutWeightsInProportion) {
  const TempDir dir;
  write_eight(dir.file("d"));                                                              // 5 samples of 8
  write_documents(dir.file("e"), TokenType::I32, {std::vector<int32_t>(8 * 10 + 1, 99)});  // 10 samples of 8
  const Corpus corpus(config_of({dir.file("d"), dir.file("e")}), 128);
  EXPECT_EQ(corpus.tokens(Split::Train), 47 + 81);
  const auto count_e = [](const DataSource& source) {
    int64_t count = 0;
    for (int64_t i = 0; i < source.samples(); ++i) count += sample_text(source, i)[0] == 99 ? 1 : 0;
    return count;
  };
  const auto once = corpus.source(Split::Train, 8, 15, 1);
  EXPECT_EQ(once->samples(), 15);
  EXPECT_EQ(count_e(*once), 10);
  const auto repeated = corpus.source(Split::Train, 8, 30, 1);
  EXPECT_GE(repeated->samples(), 30);
  EXPECT_NEAR(static_cast<double>(count_e(*repeated)), 20, 1);
}

TEST(Corpus, RepeatsASmallValidationPart) {
  const TempDir dir;
  write_eight(dir.file("d"));
  const Corpus corpus(config_of({dir.file("d")}, "50,50"), 128);
  const auto source = corpus.source(Split::Valid, 8, 100, 1);  // 21 tokens, 2 samples an epoch
  EXPECT_GE(source->samples(), 100);
  for (int64_t i = 0; i < source->samples(); ++i) {
    for (int32_t token : sample_text(*source, i)) EXPECT_GE(token, 64);  // documents 4 to 7 only
  }
}

TEST(Corpus, RejectsUnreadableData) {
  const TempDir dir;
  const auto message = [&](const DataConfig& config, int64_t vocab_size = 256) {
    return error_of([&] { open_data(config, Split::Train, 8, 5, 1, vocab_size); });
  };
  const std::string missing = dir.file("none");
  expect_has(message(config_of({missing})), "not found: there is neither " + missing + ".idx with " +
                                                missing + ".bin nor a text file or folder " + missing);
  write_file(dir.file("empty"), "");
  expect_has(message(config_of({dir.file("empty")})), "empty: the text file is empty");
  write_eight(dir.file("d"));
  expect_has(message(config_of({dir.file("d.bin")})), "give the prefix of the pair, " + dir.file("d"));
  std::filesystem::create_directory(dir.file("folder"));
  expect_has(message(config_of({dir.file("folder")})), "the folder holds no text");
  expect_has(message(config_of({dir.file("d")}, "0,1")), "gives no tokens to the training part");
  expect_has(message(config_of({dir.file("d")}, "1,9")), "has 5 tokens, one sample needs 9");
  expect_has(message(config_of({dir.file("d")}), 100),
             "document 6, token 4 (both counted from 0): id 100 is outside");
  expect_has(
      error_of([&] { open_data(config_of({dir.file("d")}), Split::Train, 8, 5, uint64_t{1} << 32, 256); }),
      "32-bit seed");
  write_file(dir.file("t"), std::string(100, 'x'));
  expect_has(message(config_of({dir.file("t")}), 100),
             "vocabulary of 100 tokens is smaller than the tokenizer's, 256");
  DataConfig model = config_of({dir.file("t")});
  model.tokenizer_model = "m";
  expect_has(message(model), "also give --tokenizer-type sentencepiece or huggingface");
}

}  // namespace
}  // namespace trifold
