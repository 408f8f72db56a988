// Text that is streamed: files, order, memory of the last blocks, bookmarks, mistakes.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <thread>

#include "data/read_ahead.h"
#include "support/sanitizer.h"
#include "text/corpus.h"
#include "text/stream_pass.h"
#include "text/stream_samples.h"
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
using test::read_file;
using test::sample;
using test::TempDir;
using test::write_corpus;
using test::write_file;
using test::write_packed;

// How often each byte comes in one pass: every window but its last token, which the next one has too, and
// what is left.
std::array<int64_t, 256> bytes_of_pass(const StreamOptions& options) {
  StreamOptions once = options;
  once.one_pass = true;
  TokenBlocks blocks(once);
  const std::atomic<bool> stop{false};
  std::array<int64_t, 256> counts{};
  std::vector<int32_t> window(kLength + 1);
  while (!blocks.epoch_ended()) {
    const auto block = blocks.next(stop);
    for (int64_t i = block->first_sample(); i < block->end_sample(); ++i) {
      block->read(i, window);
      for (int64_t t = 0; t < kLength; ++t) ++counts.at(static_cast<size_t>(window[static_cast<size_t>(t)]));
    }
  }
  for (int32_t token : blocks.start().carry) ++counts.at(static_cast<size_t>(token));
  return counts;
}

void count_text(std::array<int64_t, 256>& counts, std::string_view text) {
  for (char c : text) ++counts.at(static_cast<unsigned char>(c));
}

TEST(Stream, APassHasEveryByteOfEveryDocumentOnce) {
  const TempDir dir;
  write_corpus(dir);
  std::array<int64_t, 256> expected{};
  for (uint64_t i = 0; i < 5; ++i) count_text(expected, lines(i, 3000));
  count_text(expected, lines(10, 600000));
  count_text(expected, lines(11, 100000));
  count_text(expected, lines(12, 125000));
  count_text(expected, lines(13, 550000));
  EXPECT_EQ(bytes_of_pass(options_of(dir.file("corpus"))), expected);
  // The parts of a split are the same whatever the seed, and together they are everything.
  std::array<int64_t, 256> sum{};
  for (const Split split : {Split::Train, Split::Valid, Split::Test}) {
    StreamOptions options = options_of(dir.file("corpus"), "60,30,10");
    options.split = split;
    const auto part = bytes_of_pass(options);
    options.seed = 6;
    EXPECT_EQ(bytes_of_pass(options), part);
    EXPECT_GT(part['a'], 0);
    for (size_t b = 0; b < 256; ++b) sum.at(b) += part.at(b);
  }
  EXPECT_EQ(sum, expected);
}

TEST(Stream, TextWithoutLineEndsIsCutBetweenCharacters) {
  const TempDir dir;
  std::string text;
  while (text.size() < 300000) text += "\xe6\x9d\xb1\xe4\xba\xac";
  write_file(dir.file("wide.txt"), text);
  write_packed(dir.file("packed.txt.zst"), text);
  for (const char* name : {"wide.txt", "packed.txt.zst"}) {
    StreamOptions options = options_of(dir.file(name));
    std::array<int64_t, 256> expected{};
    count_text(expected, text);
    EXPECT_EQ(bytes_of_pass(options), expected) << name;
    options.tokenizer = std::make_shared<const SentencePieceTokenizer>(kPieces);  // refuses broken characters
    options.one_pass = true;
    TokenBlocks blocks(options);
    const std::atomic<bool> stop{false};
    EXPECT_GT(blocks.next(stop)->end_sample(), 0) << name;
  }
}

TEST(Stream, SamplesAreAPureFunctionOfSeedAndFiles) {
  const TempDir dir;
  write_corpus(dir);
  StreamOptions options = options_of(dir.file("corpus"));
  const int64_t count = 3 * 1500000 / kLength;  // more than two passes
  std::vector<std::vector<int32_t>> all;
  {
    const StreamSamples samples(options);
    for (int64_t i = 0; i < count; ++i) all.push_back(sample(samples, i));
  }
  // Other threads; no more than two blocks remembered, so that going back makes them anew.
  options.threads = 1;
  const StreamSamples samples(options, 1);
  for (int64_t i : {count - 1, int64_t{0}, count / 2, count / 2 - 1, int64_t{7}, count - 2})
    EXPECT_EQ(sample(samples, i), all[static_cast<size_t>(i)]) << i;
  options.seed = 6;
  EXPECT_NE(sample(StreamSamples(options), 0), all[0]);
  options.seed = 5;
  // Ranks that read in turn, some lagging behind others.
  std::vector<std::thread> ranks;
  std::atomic<int> wrong{0};
  const StreamSamples shared(options, 1);
  for (int rank = 0; rank < 4; ++rank)
    ranks.emplace_back([&, rank] {
      for (int64_t i = rank; i < count; i += 4 * (1 + rank))
        wrong += sample(shared, i) != all[static_cast<size_t>(i)];
    });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Stream, ABookmarkContinuesAfterConsumedSamples) {
  const TempDir dir;
  write_corpus(dir);
  const StreamOptions options = options_of(dir.file("corpus"));
  std::vector<std::vector<int32_t>> all;
  std::vector<std::string> marks;
  const std::vector<int64_t> places{0, 10, 10000, 17500, 37500, 57500};
  {
    const StreamSamples samples(options);
    for (int64_t i = 0; i < 60000; ++i) {
      if (std::count(places.begin(), places.end(), i) > 0) marks.push_back(samples.bookmark(i));
      all.push_back(sample(samples, i));
    }
  }
  for (size_t k = 0; k < places.size(); ++k) {
    const StreamSamples samples(options);
    samples.open_at(marks[k]);
    for (int64_t i = places[k]; i < places[k] + 2000; ++i)
      ASSERT_EQ(sample(samples, i), all[static_cast<size_t>(i)]) << "bookmark " << k << ", sample " << i;
    EXPECT_EQ(sample(samples, 3), all[3]);  // and earlier samples are still available
  }
  EXPECT_GT(nlohmann::json::parse(marks[3]).at("block").get<int64_t>(), 0);
  // It does read from the place it says: with another block there, other samples come.
  nlohmann::json moved = nlohmann::json::parse(marks[3]);
  moved["part"] = 0;
  moved["offset"] = 0;
  const StreamSamples other(options);
  other.open_at(moved.dump());
  EXPECT_NE(sample(other, places[3]), all[static_cast<size_t>(places[3])]);

  write_file(dir.file("corpus/small_0.txt"), "another size");
  const StreamSamples changed(options_of(dir.file("corpus")));
  expect_has(error_of([&] { changed.open_at(marks[1]); }),
             "the files are not those that the checkpoint was trained on");
}

TEST(Stream, ASmallCorpusRepeats) {
  const TempDir dir;
  write_file(dir.file("tiny.jsonl"), R"({"text": "abc"})");
  const StreamSamples samples(options_of(dir.file("tiny.jsonl")));
  std::string text;
  for (int32_t token : sample(samples, 5)) text.push_back(static_cast<char>(token));
  EXPECT_NE(text.find("abcabcabcabcabc"), std::string::npos);
  const StreamPass pass(options_of(dir.file("tiny.jsonl")), 10);
  expect_has(error_of([&] { (void)pass.count(); }), "fewer tokens than one sample needs, 65");
}

TEST(Stream, APassForEvaluationIsExact) {
  const TempDir dir;
  write_corpus(dir);
  StreamOptions options = options_of(dir.file("corpus"), "90,10");
  options.split = Split::Valid;
  const StreamPass few(options, 100);
  EXPECT_EQ(few.count(), 100);
  const StreamPass all(options, std::numeric_limits<int64_t>::max());
  EXPECT_GT(all.count(), 200);
  EXPECT_EQ(sample(all, 99), sample(few, 99));
  EXPECT_EQ(sample(all, 99), sample(all, 99));
  EXPECT_NE(sample(all, 99), sample(all, 98));
}

// A sample far behind what was made, as after a resume without a bookmark: a waiting caller is asked again and
// again.
TEST(Stream, SamplesAreMadeReadyBitByBit) {
  using std::chrono::milliseconds;
  const TempDir dir;
  write_corpus(dir);
  const StreamOptions options = options_of(dir.file("corpus"));
  constexpr int64_t kFar = 30000;
  const StreamSamples samples(options, 1);
  EXPECT_FALSE(samples.make_ready(kFar, milliseconds(0)));
  int rounds = 0;
  while (!samples.make_ready(kFar, milliseconds(5)) && rounds < 20000) ++rounds;
  EXPECT_LT(rounds, 20000);
  EXPECT_TRUE(samples.make_ready(kFar, milliseconds(0)));
  EXPECT_EQ(sample(samples, kFar), sample(StreamSamples(options), kFar));

  StreamOptions valid = options_of(dir.file("corpus"), "50,50");
  valid.split = Split::Valid;
  const StreamPass pass(valid, std::numeric_limits<int64_t>::max());
  EXPECT_FALSE(pass.make_ready(0, milliseconds(0)));
  // Ranks that are threads ask at one time.
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.emplace_back([&] {
      for (int i = 0; i < 20000 && !pass.make_ready(0, milliseconds(1)); ++i) continue;
    });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_TRUE(pass.make_ready(0, milliseconds(0)));
  const StreamPass at_once(valid, std::numeric_limits<int64_t>::max());
  ASSERT_EQ(pass.count(), at_once.count());
  for (int64_t i = 0; i < pass.count(); i += 97) EXPECT_EQ(sample(pass, i), sample(at_once, i)) << i;
}

// Samples that cannot be read count as ready: reading them gives the reason.
TEST(Stream, AnErrorIsReady) {
  const TempDir dir;
  write_file(dir.file("tiny.jsonl"), R"({"text": "abc"})");
  const StreamPass pass(options_of(dir.file("tiny.jsonl")), 10);
  EXPECT_TRUE(pass.make_ready(0, std::chrono::minutes(1)));
  expect_has(error_of([&] { sample(pass, 0); }), "fewer tokens than one sample needs, 65");
}

TEST(Stream, APackedCorpusOfTwoBytesIsNotOpenedWithoutEnd) {
  const TempDir dir;
  write_packed(dir.file("tiny.txt.gz"), "ab");
  const StreamSamples samples(options_of(dir.file("tiny.txt.gz")));
  const std::vector<int32_t> far = sample(samples, test::kSanitized ? 70 : 700);
  EXPECT_EQ(far[0] + far[1], 'a' + 'b');
}

TEST(Stream, DocumentsEndWithTheTokenizersToken) {
  const TempDir dir;
  write_file(dir.file("two.jsonl"),
             "{\"text\": \"Before we proceed\"}\n{\"body\": 1, \"text\": \"any further\"}\n");
  StreamOptions options = options_of(dir.file("two.jsonl"));
  options.tokenizer = std::make_shared<const SentencePieceTokenizer>(kPieces);
  const StreamSamples samples(options);
  const std::vector<int32_t> tokens = sample(samples, 0);
  std::vector<int32_t> expected;
  options.tokenizer->encode("Before we proceed", expected);
  expected.push_back(*options.tokenizer->eod());
  EXPECT_NE(std::search(tokens.begin(), tokens.end(), expected.begin(), expected.end()), tokens.end());
}

// The message of reading one sample of a file of that content.
class Mistakes : public testing::Test {
 protected:
  std::string read(const std::string& name, bool bytes = true) {
    return error_of([&] {
      StreamOptions options = options_of(dir_.file(name));
      if (!bytes) options.tokenizer = std::make_shared<const SentencePieceTokenizer>(kPieces);
      const StreamSamples samples(options);
      for (int64_t i = 0; i < 10000; ++i) sample(samples, i);
    });
  }
  const TempDir dir_;
};

TEST_F(Mistakes, InJsonNameFileAndLine) {
  const std::string good = json_lines(1, 100000);
  const auto number = [](std::string_view text) { return 1 + std::count(text.begin(), text.end(), '\n'); };
  const std::string place = fmt::format("bad.jsonl:{}: ", number(good));
  write_file(dir_.file("bad.jsonl"), good + "{\"text\": \"cut o\n" + good);
  expect_has(read("bad.jsonl"), place + "not JSON");
  write_file(dir_.file("bad.jsonl"), good + "{\"content\": \"x\", \"id\": 3}\n" + good);
  expect_has(read("bad.jsonl"),
             place + "the object has no field \"text\"; it has content, id: name one with --json-key");
  write_file(dir_.file("bad.jsonl"), good + "{\"text\": 3}\n");
  expect_has(read("bad.jsonl"), place + "the field \"text\" is not a string");
  write_file(dir_.file("bad.jsonl"), good + "[1]\n");
  expect_has(read("bad.jsonl"), fmt::format("bad.jsonl:{} is not a JSON object", number(good)));
  write_packed(dir_.file("bad.jsonl.gz"), good + "{\"text\": \"\xff\"}\n");
  expect_has(read("bad.jsonl.gz"), fmt::format("bad.jsonl.gz:{}: not JSON", number(good)));
}

TEST_F(Mistakes, InUtf8NameFileAndLine) {
  const std::string good = lines(1, 100000);
  write_file(dir_.file("latin.txt"), good + "caf\xe9 au lait\n" + good);
  const auto line = 1 + std::count(good.begin(), good.end(), '\n');
  expect_has(read("latin.txt", false),
             fmt::format("latin.txt:{}: a byte of value 233 is not UTF-8; convert", line));
  write_packed(dir_.file("latin.txt.zst"), good + "caf\xe9 au lait\n" + good);
  expect_has(read("latin.txt.zst", false), fmt::format("latin.txt.zst:{}: a byte of value 233", line));
  const StreamSamples bytes(options_of(dir_.file("latin.txt")));  // whose tokens are bytes
  sample(bytes, 2500);
}

TEST_F(Mistakes, InPackedFilesAreNamed) {
  std::array<int64_t, 256> expected{};
  count_text(expected, lines(1, 125000) + lines(1, 125000));
  for (const auto& [ending, kind] :
       {std::pair{".gz", "gzip"}, {".zst", "zstd"}, {".xz", "xz"}, {".bz2", "bzip2"}}) {
    SCOPED_TRACE(kind);
    const auto named = [ending = ending](const char* name) { return std::string(name) + ".txt" + ending; };
    write_packed(dir_.file(named("whole")), lines(1, 125000));
    const std::string whole = read_file(dir_.file(named("whole")));
    write_file(dir_.file(named("cut")), whole.substr(0, whole.size() / 2));
    expect_has(read(named("cut")), fmt::format("{}: the {} file is truncated", named("cut"), kind));
    write_file(dir_.file(named("text")), "this is plain text");
    expect_has(read(named("text")), fmt::format("{} is a damaged {} file", named("text"), kind));
    std::string damaged = whole;
    for (size_t i = 0; i < 50; ++i) damaged[whole.size() / 2 + i] = 'x';
    write_file(dir_.file(named("damaged")), damaged);
    expect_has(read(named("damaged")), fmt::format("{} is a damaged {} file", named("damaged"), kind));
    // Members, frames and streams that follow each other are one text.
    write_file(dir_.file(named("twice")), whole + whole);
    EXPECT_EQ(bytes_of_pass(options_of(dir_.file(named("twice")))), expected);
  }
}

TEST_F(Mistakes, InFoldersAreReportedAtOnce) {
  const auto open = [&](const std::string& name) {
    return error_of([&] { StreamFiles files({dir_.file(name)}); });
  };
  std::filesystem::create_directory(dir_.file("empty"));
  expect_has(open("empty"), "the folder holds no text; plain text and JSON lines");
  write_file(dir_.file("empty/data.parquet"), "PAR1");
  expect_has(open("empty"), "text cannot be read from a .parquet file");
  expect_has(open("nothing"), "nothing cannot be opened");
  write_file(dir_.file("blank.jsonl"), "\n\n  \n");
  expect_has(read("blank.jsonl"), "the corpus has no token for the training part");
  write_file(dir_.file("no_text.jsonl"), "{\"text\": \"\"}\n");
  expect_has(read("no_text.jsonl"), "the corpus has no token for the training part");
}

TEST(StreamFolder, ReadsWhatItsNamesCallText) {
  const TempDir dir;
  std::filesystem::create_directories(dir.file("d/sub"));
  for (const char* name : {"a.txt", "b.JSONL", "c.Text", "wiki_00", "part.17", "sub/d.Txt.GZ", "README.md",
                           "readme.txt", "LICENSE", "sub/notes.md", "code.py", "CHANGELOG-2.txt", ".hidden"})
    write_file(dir.file(std::string("d/") + name), "{\"text\": \"x\"}\n");
  const StreamFiles files({dir.file("d")});
  std::vector<std::string> names;
  for (const StreamFile& file : files.files()) names.push_back(file.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"a.txt", "b.JSONL", "c.Text", "part.17", "sub/d.Txt.GZ", "wiki_00"}));
  EXPECT_EQ(files.files()[1].kind, TextKind::JsonLines);
  EXPECT_EQ(files.files()[4].packing, Packing::Gzip);
  ASSERT_EQ(files.notes().size(), 1U);
  expect_has(files.notes()[0], "5 files of plain text, 1 file of JSON lines; left out: ");
  for (const char* name :
       {"README.md", "readme.txt", "LICENSE", "sub/notes.md", "code.py", "CHANGELOG-2.txt"})
    expect_has(files.notes()[0], name);
  // A file that is named is text whatever its name.
  EXPECT_EQ(StreamFiles({dir.file("d/README.md")}).files().size(), 1U);
  std::filesystem::create_directory(dir.file("only"));
  write_file(dir.file("only/README.md"), "x");
  expect_has(error_of([&] { StreamFiles only({dir.file("only")}); }),
             "the folder has only README.md: a run reads such files if --data-path names them");
  // A folder of source code.
  for (const char* name : {"only/a.c", "only/b.md"}) write_file(dir.file(name), "x");
  const StreamFiles code({dir.file("only")});
  EXPECT_EQ(code.files().size(), 2U);
  expect_has(code.notes()[0], "2 files of plain text; left out: README.md");
  for (const char* name : {"only/t.PARQUET", "only/t.Parquet.Gz"}) {
    write_file(dir.file(name), "x");
    expect_has(error_of([&] { StreamFiles only({dir.file("only")}); }),
               "text cannot be read from a .parquet file");
    std::filesystem::remove(dir.file(name));
  }
}

TEST(StreamCorpus, IsAcceptedByDataPath) {
  const TempDir dir;
  write_corpus(dir);
  write_file(dir.file("small.txt"), lines(20, 10000));
  DataConfig config;
  config.split = "90,10,0";
  config.data_path = {dir.file("corpus")};
  const Corpus corpus(config, 256);
  EXPECT_TRUE(corpus.streams());
  const auto train = corpus.source(Split::Train, kLength, 200, 1);
  EXPECT_EQ(train->samples(), StreamSamples::kEndless);
  EXPECT_EQ(corpus.passes(Split::Valid, kLength, 1, 1, 20)->samples(), 20);
  expect_has(error_of([&] { (void)corpus.passes(Split::Train, kLength, 2, 1); }), "several passes");
  // Two paths that are streamed are one corpus.
  config.data_path = {dir.file("corpus/packed.txt.zst"), dir.file("corpus/below")};
  EXPECT_EQ(Corpus(config, 256).source(Split::Train, kLength, 10, 1)->samples(), StreamSamples::kEndless);
  config.data_path = {dir.file("corpus"), dir.file("small.txt")};
  expect_has(error_of([&] { Corpus mixed(config, 256); }), "put a weight before every path");
  config.data_path = {"3", dir.file("corpus"), "1", dir.file("small.txt")};
  const auto blend = Corpus(config, 256).source(Split::Train, kLength, 200, 1);
  BatchBuffer buffer(1, kLength);
  blend->read(buffer.batch(), 180);
  const std::vector<int32_t> expected(buffer.batch().tokens.as<int32_t>(),
                                      buffer.batch().tokens.as<int32_t>() + kLength);
  const auto again = Corpus(config, 256).source(Split::Train, kLength, 200, 1);
  again->open_at(blend->bookmark(180));
  again->read(buffer.batch(), 180);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), buffer.batch().tokens.as<int32_t>()));
  // A run that is done may be made longer: its last checkpoint knows the place in the stream.
  const auto longer = Corpus(config, 256).source(Split::Train, kLength, 220, 1);
  longer->read(buffer.batch(), 200);
  const std::vector<int32_t> first(buffer.batch().tokens.as<int32_t>(),
                                   buffer.batch().tokens.as<int32_t>() + kLength);
  EXPECT_FALSE(nlohmann::json::parse(blend->bookmark(200))[0].get<std::string>().empty());
  const auto on = Corpus(config, 256).source(Split::Train, kLength, 220, 1);
  on->open_at(blend->bookmark(200));
  on->read(buffer.batch(), 200);
  EXPECT_TRUE(std::equal(first.begin(), first.end(), buffer.batch().tokens.as<int32_t>()));
}

}  // namespace
}  // namespace trifold
