// What can go wrong with streamed text: readers far apart, parts without text, bookmarks of other streams, repeated
// errors, long documents, odd files.
#include <algorithm>
#include <array>
#include <barrier>
#include <thread>

#include "support/sanitizer.h"
#include "text/corpus.h"
#include "text/stream_pass.h"
#include "text/stream_samples.h"
#include "tokenize/document_encoder.h"
#include "unit/text_stream_support.h"

namespace trifold {
namespace {

using test::error_of;
using test::expect_has;
using test::json_lines;
using test::kLength;
using test::kPieces;
using test::lines;
using test::options_of;
using test::sample;
using test::TempDir;
using test::write_corpus;
using test::write_file;
using test::write_packed;

TEST(StreamTrouble, ReadersFarApartDoNotTakeEachOthersBlocks) {
  const TempDir dir;
  write_file(dir.file("text.txt"), lines(1, 1500000));
  const StreamOptions options = options_of(dir.file("text.txt"));
  const std::array<int64_t, 4> places{0, 7500, 17500, 37500};  // of four blocks
  std::array<std::vector<int32_t>, 4> expected;
  {
    const StreamSamples samples(options);
    for (size_t i = 0; i < places.size(); ++i) expected.at(i) = sample(samples, places.at(i));
  }
  // Room for two blocks, which are never those of all.
  const StreamSamples samples(options, 1);
  std::barrier together(static_cast<std::ptrdiff_t>(places.size()));
  std::atomic<int> wrong{0};
  std::vector<std::thread> readers;
  for (size_t reader = 0; reader < places.size(); ++reader)
    readers.emplace_back([&, reader] {
      for (int turn = 0; turn < (test::kSanitized ? 2 : 5); ++turn) {
        together.arrive_and_wait();
        wrong += sample(samples, places.at(reader)) != expected.at(reader);
      }
    });
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong, 0);
}

// Text at 1.5 MB of 5: the end of an epoch falls into a block that begins after it and ends before it in the
// next one.
TEST(StreamTrouble, ABlockAtTheEndOfAnEpochMayHaveNoToken) {
  const TempDir dir;
  const std::string empty = "{\"text\": \"\", \"id\": \"" + std::string(1000, 'x') + "\"}\n";
  const std::string nothing_there = empty + std::string(25000, ' ') + "\n";
  std::string content;
  while (content.size() < 1500000) content += nothing_there;
  content += json_lines(1, 25000);
  while (content.size() < 5000000) content += nothing_there;
  write_packed(dir.file("mostly_empty.jsonl.gz"), content);
  const StreamOptions options = options_of(dir.file("mostly_empty.jsonl.gz"));
  TokenBlocks blocks(options);
  const std::atomic<bool> stop{false};
  bool ended_without = false;
  for (int i = 0; i < 8; ++i) {
    const std::unique_ptr<TokenBlock> block = blocks.next(stop);
    ended_without = ended_without || (blocks.epoch_ended() && block->end_sample() == block->first_sample());
  }
  EXPECT_TRUE(ended_without);
  EXPECT_GE(blocks.start().first_sample, 2 * 25000 / kLength - 2);
  // A stream without any token cannot continue, also for a run that begins in the middle.
  write_file(dir.file("empty.jsonl"), empty + empty);
  TokenBlocks nothing(options_of(dir.file("empty.jsonl")));
  BlockStart middle;
  middle.position.offset = 1;
  nothing.go_to(middle);
  expect_has(error_of([&] {
               for (int i = 0; i < 3; ++i) (void)nothing.next(stop);
             }),
             "the corpus has no token for the training part");
}

TEST(StreamTrouble, ABookmarkOfAnotherStreamIsRefused) {
  const TempDir dir;
  write_file(dir.file("text.txt"), lines(1, 1000));
  const StreamOptions options = options_of(dir.file("text.txt"), "90,10");
  const std::string mark = StreamSamples(options).bookmark(0);
  const auto message = [&](const StreamOptions& other) {
    return error_of([&] { StreamSamples(other).open_at(mark); });
  };
  StreamSamples(options_of(dir.file("text.txt"), "9,1,0")).open_at(mark);  // the same shares
  expect_has(message(options_of(dir.file("text.txt"), "80,20")),
             "that of another --split (\"90,10,0\", now \"80,20,0\"); give the same, or start a new run");
  StreamOptions other = options;
  other.json_key = "key\xff";
  expect_has(message(other), "another --json-key (\"text\", now \"key\xef\xbf\xbd\")");
  other = options;
  other.seed = 7;
  expect_has(message(other), "another --seed (5, now 7)");
  other = options;
  other.seq_length = 32;
  expect_has(message(other), "another --seq-length (64, now 32)");
  other = options;
  other.tokenizer = std::make_shared<const SentencePieceTokenizer>(kPieces);
  expect_has(message(other), "another --tokenizer-model (\"byte\", now \"sentencepiece ");
}

TEST(StreamTrouble, ADamagedBookmarkIsAnError) {
  const TempDir dir;
  write_corpus(dir);
  const StreamSamples samples(options_of(dir.file("corpus")));
  const nlohmann::json good = nlohmann::json::parse(samples.bookmark(0));
  samples.open_at(good.dump());
  const auto message = [&](const std::string& patch) {
    nlohmann::json damaged = good;
    damaged.merge_patch(nlohmann::json::parse(patch));
    return error_of([&] { samples.open_at(damaged.dump()); });
  };
  for (const char* patch : {R"({"files": 3})", R"({"seed": null})", R"({"epoch": null})", R"({"part": "x"})",
                            R"({"carry": [{}]})", R"({"part": -1})", R"({"part": 1000000})"})
    expect_has(message(patch), "the checkpoint's place in the streamed text cannot be read");
  expect_has(message(R"({"part": 1000000})"), "it says part 1000000 of epoch 0");
  expect_has(message(R"({"carry": [256]})"), "token id 256 is outside the vocabulary");
  expect_has(error_of([&] { samples.open_at("?"); }), "cannot be read: not JSON");
}

TEST(StreamTrouble, APassThatFailsFailsAgain) {
  const TempDir dir;
  const std::string good = json_lines(1, 500000);
  write_file(dir.file("bad.jsonl"), good + "{\"text\": 3}\n" + good);
  const StreamPass pass(options_of(dir.file("bad.jsonl")), 100000);
  const std::string first = error_of([&] { (void)pass.count(); });
  expect_has(first, "the field \"text\" is not a string");
  EXPECT_EQ(error_of([&] { sample(pass, 0); }), first);
}

TEST(StreamTrouble, APassThatWouldFillTheDiskIsRefused) {
  const TempDir dir;
  write_file(dir.file("text.txt"), lines(1, 200000));
  const StreamOptions options = options_of(dir.file("text.txt"));
  const int64_t room = 1000 * 4 * (kLength + 1);
  EXPECT_EQ(StreamPass(options, 1000, room).count(), 1000);
  expect_has(
      error_of([&] { (void)StreamPass(options, 1001, room).count(); }),
      "takes 1000 samples of 64 tokens at most, and the training part has more; give fewer --eval-iters");
}

// Records its input, and makes one token of each piece.
class PieceCounter : public Tokenizer {
 public:
  explicit PieceCounter(bool reads_lines) : reads_lines_(reads_lines) {}
  int64_t vocab_size() const override { return 1; }
  std::optional<int32_t> eod() const override { return std::nullopt; }
  bool reads_lines() const override { return reads_lines_; }
  std::string fingerprint() const override { return "pieces"; }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    longest_ = std::max(longest_, text.size());
    all_ += text;
    ids.push_back(0);
  }
  std::string decode(std::span<const int32_t> /*ids*/) const override { return all_; }
  size_t longest() const { return longest_; }

 private:
  bool reads_lines_;
  mutable size_t longest_ = 0;
  mutable std::string all_;
};

TEST(StreamTrouble, ALongDocumentIsTokenizedInBoundedMemory) {
  const TempDir dir;
  const std::string text = lines(1, 3000000);
  write_file(dir.file("long.jsonl"), nlohmann::json{{"text", text}}.dump() + "\n");
  for (const bool reads_lines : {true, false}) {
    StreamOptions options = options_of(dir.file("long.jsonl"));
    const StreamFiles& files = *options.files;
    std::string line;
    int64_t offset = 0;
    read_part(files.files().front(), 0, line, offset);
    const PieceCounter pieces(reads_lines);
    std::vector<int32_t> ids;
    DocumentTokens(pieces, "text").add(line, {0, line.size(), &files.files().front(), 0}, ids);
    EXPECT_TRUE(pieces.decode(ids) == text);
    EXPECT_LE(pieces.longest(), reads_lines ? size_t{1} << 16 : DocumentEncoder::kLongestPiece);
    EXPECT_GT(ids.size(), 1U);
  }
}

// Lines none of which begins with a letter: no place to cut. Looking at all of the text for each line took
// minutes.
TEST(StreamTrouble, ALongDocumentWithoutAPlaceToCutIsQuick) {
  const PieceCounter pieces(false);
  DocumentEncoder encoder(pieces);
  std::vector<int32_t> ids;
  std::string all;
  for (int i = 0; i < 500000; ++i) {
    encoder.add(" a line\n", ids);
    all += " a line\n";
  }
  encoder.finish(ids);
  EXPECT_TRUE(pieces.decode(ids) == all);
  EXPECT_EQ(std::ssize(ids), 4);  // the longest pieces, 2^20 bytes
  EXPECT_EQ(pieces.longest(), DocumentEncoder::kLongestPiece);
}

TEST(StreamTrouble, LinksToNothingAreNoText) {
  const TempDir dir;
  std::filesystem::create_directory(dir.file("corpus"));
  write_file(dir.file("corpus/a.txt"), lines(1, 1000));
  std::filesystem::create_symlink("nowhere", dir.file("corpus/b.txt"));
  std::filesystem::create_symlink(dir.file("corpus/a.txt"), dir.file("corpus/c.txt"));
  EXPECT_EQ(StreamFiles({dir.file("corpus")}).files().size(), 2U);
}

TEST(StreamTrouble, ZerosBehindAGzipFileAreNoText) {
  const TempDir dir;
  const std::string text = lines(1, 50000);
  write_packed(dir.file("padded.txt.gz"), text);
  const std::string packed = test::read_file(dir.file("padded.txt.gz"));
  const std::string padded = packed + std::string(7, '\0');
  const std::array<std::array<std::string, 2>, 2> cases{
      {{packed + std::string(600000, '\0'), text}, {padded + packed, text + text}}};
  for (const auto& [content, expected] : cases) {
    write_file(dir.file("padded.txt.gz"), content);
    const auto reader = open_bytes(dir.file("padded.txt.gz"), Packing::Gzip);
    std::string read(300000, '\0');
    read.resize(reader->read(read));
    EXPECT_TRUE(read == expected) << read.size();
    std::array<char, 16> more{};
    EXPECT_EQ(reader->read(more), 0U);
  }
  // As many as no tape has: a file that is small by itself would be read for ever, pass after pass.
  write_file(dir.file("padded.txt.gz"), packed + std::string(2'000'000, '\0'));
  const auto reader = open_bytes(dir.file("padded.txt.gz"), Packing::Gzip);
  std::string read(300000, '\0');
  expect_has(error_of([&] {
               while (reader->read(read) > 0) continue;
             }),
             "padded.txt.gz: more than 1048576 zero bytes follow");
}

TEST(StreamTrouble, AKeyWithoutJsonHasNoEffect) {
  const TempDir dir;
  write_file(dir.file("text.txt"), lines(20, 10000));
  DataConfig config;
  config.data_path = {dir.file("text.txt")};
  config.json_key = "body";
  expect_has(error_of([&] { Corpus corpus(config, 256); }), "--json-key body has no effect");
  write_file(dir.file("text.jsonl"), "{\"body\": \"abc\"}\n");
  config.data_path = {dir.file("text.jsonl")};
  EXPECT_TRUE(Corpus(config, 256).streams());
}

TEST(StreamTrouble, SharesHaveOneName) {
  EXPECT_EQ(SplitFractions("969,30,1").text(), "96.9,3,0.1");
  EXPECT_EQ(SplitFractions("1").text(), "100,0,0");
}

}  // namespace
}  // namespace trifold
