#include "preprocess/tokenize.h"

#include "support/files.h"
#include "support/test_data.h"
#include "text/indexed_dataset.h"
#include "text/text_samples.h"
#include "tokenize/sentences.h"
#include "tokenize/text_lines.h"

namespace trifold {
namespace {

using test::error_of;
using test::expect_has;
using test::TempDir;
using test::write_file;

const std::string kModel = test::test_data() + "/data/shakespeare_400.model";

TokenizeResult run(const TokenizeOptions& options, const Tokenizer& tokenizer) {
  return tokenize(options, tokenizer, [](const TokenizeProgress&) {});
}

std::vector<int32_t> sequence(const IndexedDataset& dataset, int64_t index) {
  std::vector<int32_t> tokens(static_cast<size_t>(dataset.length(index)));
  dataset.read(index, 0, tokens, 1 << 20);
  return tokens;
}

std::string text_of(const IndexedDataset& dataset, int64_t index, const Tokenizer& tokenizer) {
  return tokenizer.decode(sequence(dataset, index));
}

TEST(ByteTokenizer, KeepsEveryByte) {
  const ByteTokenizer tokenizer;
  std::string text;
  for (int i = 0; i < 256; ++i) text.push_back(static_cast<char>(i));
  std::vector<int32_t> ids;
  tokenizer.encode(text, ids);
  ASSERT_EQ(ids.size(), 256U);
  EXPECT_EQ(ids[200], 200);
  EXPECT_EQ(tokenizer.decode(ids), text);
  expect_has(error_of([&] { tokenizer.decode(std::vector<int32_t>{256}); }), "outside the vocabulary of 256");
  EXPECT_FALSE(tokenizer.eod());
}

TEST(SentencePieceTokenizer, EncodesAndDecodes) {
  const SentencePieceTokenizer tokenizer(kModel);
  EXPECT_EQ(tokenizer.vocab_size(), 400);
  EXPECT_EQ(tokenizer.eod(), 2);
  const std::string text = "Before we  proceed,\nhear me speak: \xc3\xa9\n";
  std::vector<int32_t> ids;
  tokenizer.encode(text, ids);
  EXPECT_LT(ids.size(), text.size());
  EXPECT_EQ(tokenizer.decode(ids), text);
  expect_has(error_of([&] { tokenizer.decode(std::vector<int32_t>{400}); }), "outside the vocabulary of 400");
}

TEST(MakeTokenizer, RefusesMistakes) {
  const TempDir dir;
  write_file(dir.file("bad.model"), "this is not a model");
  write_file(dir.file("empty.model"), "");
  expect_has(error_of([&] { make_tokenizer(TokenizerType::SentencePiece, dir.file("bad.model")); }),
             "is not a SentencePiece model");
  expect_has(error_of([&] { make_tokenizer(TokenizerType::SentencePiece, dir.file("empty.model")); }),
             "is empty");
  expect_has(error_of([&] { make_tokenizer(TokenizerType::SentencePiece, dir.file("no.model")); }),
             "No such file");
  expect_has(error_of([] { make_tokenizer(TokenizerType::SentencePiece, std::nullopt); }),
             "needs --tokenizer-model");
  expect_has(error_of([] { make_tokenizer(TokenizerType::Byte, "x"); }), "has no model");
}

TEST(TextLines, CutsLinesAndLongLines) {
  const auto cut = [](std::string_view text, size_t longest) {
    std::vector<std::string> pieces;
    for_each_line(text, longest, [&](std::string_view piece) { pieces.emplace_back(piece); });
    return pieces;
  };
  using Pieces = std::vector<std::string>;
  EXPECT_EQ(cut("ab\n\nc", 10), (Pieces{"ab\n", "\n", "c"}));
  EXPECT_EQ(cut("one two three", 8), (Pieces{"one two ", "three"}));
  EXPECT_EQ(cut("\xc3\xa9\xc3\xa9\xc3\xa9", 3), (Pieces{"\xc3\xa9", "\xc3\xa9", "\xc3\xa9"}));
  EXPECT_EQ(cut("\x80\x80\x80\x80\x80\x80", 2).size(), 3U);  // not UTF-8: cut anyway
  EXPECT_TRUE(cut("", 8).empty());
}

TEST(Tokenize, TakesATextFileAsOneDocument) {
  const TempDir dir;
  const std::string content = "To be,\n\nor not.\n";
  write_file(dir.file("in.txt"), content);
  const TokenizeResult result =
      run({.input = dir.file("in.txt"), .output_prefix = dir.file("out")}, ByteTokenizer());
  ASSERT_EQ(result.prefixes, std::vector<std::string>{dir.file("out_text_document")});
  EXPECT_EQ(result.documents, 1);
  EXPECT_EQ(result.tokens, static_cast<int64_t>(content.size()));
  const IndexedDataset dataset(result.prefixes[0]);
  EXPECT_EQ(dataset.token_type(), TokenType::U16);
  EXPECT_EQ(text_of(dataset, 0, ByteTokenizer()), content);
}

TEST(Tokenize, CutsATextFileIntoDocuments) {
  const TempDir dir;
  write_file(dir.file("in.txt"), "a\nb\n\n \nc\n\nd");
  TokenizeOptions options{.input = dir.file("in.txt"), .output_prefix = dir.file("out")};
  options.unit = DocumentUnit::Paragraph;
  const auto texts = [&] {
    const IndexedDataset dataset(run(options, ByteTokenizer()).prefixes[0]);
    std::vector<std::string> all;
    for (int64_t i = 0; i < dataset.sequences(); ++i) all.push_back(text_of(dataset, i, ByteTokenizer()));
    return all;
  };
  EXPECT_EQ(texts(), (std::vector<std::string>{"a\nb\n\n \n", "c\n\n", "d"}));
  options.unit = DocumentUnit::Line;
  EXPECT_EQ(texts(), (std::vector<std::string>{"a\n", "b\n", "\n", " \n", "c\n", "\n", "d"}));
}

TEST(Tokenize, ReadsJsonLines) {
  const TempDir dir;
  write_file(dir.file("in.jsonl"),
             "{\"text\": \"hear me\", \"title\": \"A\"}\n\n{\"title\": \"B\", \"text\": \"\"}\r\n"
             "{\"text\": \"sp\\u00e9ak\", \"title\": \"C\"}");
  TokenizeOptions options{.input = dir.file("in.jsonl"), .output_prefix = dir.file("out")};
  options.json_keys = {"text", "title"};
  options.append_eod = true;
  const SentencePieceTokenizer tokenizer(kModel);
  const TokenizeResult result = run(options, tokenizer);
  EXPECT_EQ(result.prefixes,
            (std::vector<std::string>{dir.file("out_text_document"), dir.file("out_title_document")}));
  EXPECT_EQ(result.documents, 2 + 3);
  EXPECT_EQ(result.empty_documents, 1);
  const IndexedDataset text(result.prefixes[0]);
  EXPECT_EQ(text.documents(), 2);
  std::vector<int32_t> tokens = sequence(text, 1);
  EXPECT_EQ(tokens.back(), 2);
  tokens.pop_back();
  EXPECT_EQ(tokenizer.decode(tokens),
            "sp\xc3\xa9"
            "ak");
  EXPECT_EQ(IndexedDataset(result.prefixes[1]).documents(), 3);
}

TEST(Tokenize, ComparesSuffixesWithoutCase) {
  const TempDir dir;
  for (const char* name : {"in.JSONL", "in.Json", "in.NDJSON"}) {
    write_file(dir.file(name), "{\"text\": \"ab\", \"score\": NaN}\n");
    EXPECT_EQ(run({.input = dir.file(name), .output_prefix = dir.file("out")}, ByteTokenizer()).tokens, 2)
        << name;
  }
  for (const char* name : {"in.PARQUET", "in.parquet", "in.Zip"}) {
    write_file(dir.file(name), "a text");
    expect_has(
        error_of([&] { run({.input = dir.file(name), .output_prefix = dir.file("no")}, ByteTokenizer()); }),
        "text cannot be read from a ");
  }
  write_file(dir.file("in.TXT.GZ"), "a text");
  expect_has(error_of([&] {
               run({.input = dir.file("in.TXT.GZ"), .output_prefix = dir.file("no")}, ByteTokenizer());
             }),
             "compressed files are not read here");
}

TEST(Tokenize, SkipsBadRecordsUpToALimit) {
  const TempDir dir;
  write_file(dir.file("in.jsonl"),
             "{\"text\": \"a\"}\n{\"text\":\n{\"txt\": \"b\"}\n{\"text\": \"c\", \"title\": 1}\n"
             "{\"text\": \"d\", \"title\": \"D\"}\n");
  TokenizeOptions options{.input = dir.file("in.jsonl"), .output_prefix = dir.file("out")};
  BadRecords bad(OnBadRecord::Skip, 4);
  options.bad = &bad;
  options.json_keys = {"text", "title"};
  const TokenizeResult result = run(options, ByteTokenizer());
  EXPECT_EQ(result.documents, 2) << "a record counts in all outputs or in none";
  const std::vector<std::string> news = bad.take_news();
  ASSERT_EQ(news.size(), 4U);
  expect_has(news[1], "in.jsonl:2: not JSON");
  expect_has(news[3], "in.jsonl:4: the value of \"title\" is not a string");
  BadRecords few(OnBadRecord::Skip, 3);
  options.bad = &few;
  expect_has(error_of([&] { run(options, ByteTokenizer()); }), "--max-bad-records allows 3");
  BadRecords none(OnBadRecord::Stop, 1000);
  options.bad = &none;
  expect_has(error_of([&] { run(options, ByteTokenizer()); }), "in.jsonl:1: the object has no key \"title\"");
}

TEST(Tokenize, ReportsProgress) {
  const TempDir dir;
  write_file(dir.file("in.txt"), std::string(3 << 20, 'x'));
  std::vector<TokenizeProgress> reports;
  tokenize({.input = dir.file("in.txt"), .output_prefix = dir.file("out")}, ByteTokenizer(),
           [&](const TokenizeProgress& progress) { reports.push_back(progress); });
  ASSERT_GE(reports.size(), 3U);
  for (size_t i = 1; i < reports.size(); ++i) EXPECT_GE(reports[i].bytes_done, reports[i - 1].bytes_done);
  EXPECT_EQ(reports.back().bytes_done, 3 << 20);
  EXPECT_EQ(reports.back().tokens, 3 << 20);
  EXPECT_EQ(reports.back().documents, 1);
}

TEST(Tokenize, RefusesBadInputAndWritesNothing) {
  const TempDir dir;
  std::filesystem::create_directory(dir.file("o"));
  const auto message = [&](std::string_view content, bool eod = false) {
    write_file(dir.file("in.jsonl"), content);
    TokenizeOptions options{.input = dir.file("in.jsonl"), .output_prefix = dir.file("o/out")};
    options.append_eod = eod;
    const std::string text = error_of([&] { run(options, ByteTokenizer()); });
    EXPECT_TRUE(std::filesystem::is_empty(dir.file("o")));
    return text;
  };
  const std::string good = "{\"text\": \"a\"}\n";
  expect_has(message(""), "is empty");
  expect_has(message("\n \n"), "it contains no token");
  expect_has(message(good + "{\"text\": \n"), "in.jsonl:2: not JSON");
  expect_has(message(good + good + "[1]\n"), "in.jsonl:3 is not a JSON object");
  expect_has(message(good + "{\"txt\": \"a\"}"), "in.jsonl:2: the object has no key \"text\"");
  expect_has(message("{\"text\": 5}"), "in.jsonl:1: the value of \"text\" is not a string");
  expect_has(message(good, true), "--append-eod");
  expect_has(
      error_of([&] { run({.input = dir.file("no"), .output_prefix = dir.file("o/out")}, ByteTokenizer()); }),
      "No such file");
  write_file(dir.file("in.txt"), "x");
  expect_has(error_of([&] {
               run({.input = dir.file("in.txt"), .output_prefix = dir.file("p/out")}, ByteTokenizer());
             }),
             "does not exist");
}

// Every way to read a whole file; text_stream_test.cpp tests streaming.
TEST(Tokenize, TextOfAnotherEncodingIsRefusedByFileAndLine) {
  const TempDir dir;
  const std::string path = dir.file("latin.txt");
  write_file(path, "un\ndeux\ncaf\xe9 au lait\n");
  const SentencePieceTokenizer pieces(kModel);
  const std::string expected = "latin.txt:3: a byte of value 233 is not UTF-8; convert";
  const TokenizeOptions options{.input = path, .output_prefix = dir.file("out")};
  expect_has(error_of([&] { run(options, pieces); }), expected);
  expect_has(error_of([&] { TextTokens(path, &pieces, pieces.vocab_size()); }), expected);
  expect_has(error_of([&] { SentenceTokens({}).add(path, pieces); }), expected);
  const ByteTokenizer bytes;  // which takes any
  EXPECT_EQ(run(options, bytes).tokens, 21);
  EXPECT_EQ(TextTokens(path, &bytes, 256).count(), 21);
  SentenceTokens({}).add(path, bytes);
}

// Texts that spell a special token are named with their place, and skipped where bad records are.
TEST(Tokenize, TextsWithARefusedSpecialTokenAreBadRecords) {
  const TempDir dir;
  DataConfig data;
  data.tokenizer_type = TokenizerType::HuggingFace;
  data.tokenizer_model = test::test_data() + "/golden/hf_tokenizers/gpt2.json";
  data.special_tokens_in_text = SpecialTokensInText::Refuse;
  const auto tokenizer = make_tokenizer(data);
  TokenizeOptions options;
  options.input = dir.file("a.jsonl");
  options.output_prefix = dir.file("out");
  options.json_keys = {"text"};
  write_file(options.input, "{\"text\": \"good\"}\n{\"text\": \"a <|endoftext|>\"}\n{\"text\": \"good\"}\n");
  expect_has(error_of([&] { run(options, *tokenizer); }),
             "a.jsonl:2: the text has the special token <|endoftext|> at byte 2");
  BadRecords bad(OnBadRecord::Skip, 10);
  options.bad = &bad;
  EXPECT_EQ(run(options, *tokenizer).documents, 2);
  EXPECT_EQ(bad.take_news().size(), 1u);
  options.input = dir.file("a.txt");
  options.bad = nullptr;
  write_file(options.input, std::string(200000, 'x') + "<|endoftext|>");
  expect_has(error_of([&] { run(options, *tokenizer); }),
             "a.txt: the text has the special token <|endoftext|> at byte 200000");
}

}  // namespace
}  // namespace trifold
