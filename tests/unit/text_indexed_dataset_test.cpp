#include "text/indexed_dataset.h"

#include <cstring>
#include <numeric>
#include <random>

#include "unit/text_test_support.h"

namespace trifold {
namespace {

using test::error_of;
using test::expect_has;
using test::read_file;
using test::TempDir;
using test::write_documents;
using test::write_file;

// Sequences of 3, 2 and 4 tokens, 1 to 9, in two documents: one of the first sequence, one of the others.
void write_golden(const std::string& prefix) {
  IndexedWriter writer(prefix, TokenType::U16);
  const std::vector<int32_t> tokens{1, 2, 3, 4, 5, 6, 7, 8, 9};
  writer.add(std::span(tokens).subspan(0, 3));
  writer.end_sequence();
  writer.end_document();
  writer.add(std::span(tokens).subspan(3, 2));
  writer.end_sequence();
  writer.add(std::span(tokens).subspan(5, 1));
  writer.add(std::span(tokens).subspan(6, 3));
  writer.end_sequence();
  writer.end_document();
  writer.finish();
}

std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  return bytes;
}

// Replaces bytes of `<prefix>.idx` from `offset` on and returns the message of opening the result.
template <class T>
std::string message_with(const std::string& prefix, size_t offset, T value) {
  const std::string good = read_file(prefix + ".idx");
  std::string bad = good;
  std::memcpy(bad.data() + offset, &value, sizeof(T));
  write_file(prefix + ".idx", bad);
  const std::string message = error_of([&] { IndexedDataset dataset(prefix); });
  write_file(prefix + ".idx", good);
  return message;
}

// The 94 bytes whose SHA-256 is 251b6c63f71a7d4325f309bb20c225c6db6bc9da7a2844a745b047bf5ea54955.
TEST(IndexedWriter, WritesMegatronsBytes) {
  const TempDir dir;
  write_golden(dir.file("d"));
  EXPECT_EQ(read_file(dir.file("d.idx")), from_hex("4d4d49444944580000"
                                                   "0100000000000000"
                                                   "08"
                                                   "0300000000000000"
                                                   "0300000000000000"
                                                   "030000000200000004000000"
                                                   "000000000000000006000000000000000a00000000000000"
                                                   "000000000000000001000000000000000300000000000000"));
  EXPECT_EQ(read_file(dir.file("d.bin")), from_hex("010002000300040005000600070008000900"));
  EXPECT_EQ(dir.entries(), 2U);  // no temporary file is left
}

TEST(IndexedWriter, LeavesNothingWhenNotFinished) {
  const TempDir dir;
  {
    IndexedWriter writer(dir.file("d"), TokenType::U8);
    writer.add(std::vector<int32_t>{1, 2, 3});
    expect_has(error_of([&] { writer.add(std::vector<int32_t>{256}); }, ErrorKind::Failure), "does not fit");
    expect_has(error_of([&] { writer.add(std::vector<int32_t>{-1}); }, ErrorKind::Failure), "does not fit");
    expect_has(error_of([&] { writer.end_document(); }, ErrorKind::Failure), "inside a sequence");
  }
  EXPECT_EQ(dir.entries(), 0U);
  expect_has(error_of([&] { IndexedWriter writer(dir.file("no/such/d"), TokenType::U8); }), "does not exist");
}

TEST(IndexedDataset, ReadsBackEveryTokenType) {
  for (TokenType type :
       {TokenType::U8, TokenType::I8, TokenType::I16, TokenType::U16, TokenType::I32, TokenType::I64}) {
    const TempDir dir;
    write_documents(dir.file("d"), type, {{5, 6, 7}, {}, {100, 0, 127, 3}});
    const IndexedDataset dataset(dir.file("d"));
    EXPECT_EQ(dataset.token_type(), type);
    EXPECT_EQ(dataset.sequences(), 3);
    EXPECT_EQ(dataset.documents(), 3);
    EXPECT_EQ(dataset.tokens(), 7);
    std::vector<int32_t> tokens(2);
    dataset.read(2, 2, tokens, 128);
    EXPECT_EQ(tokens, (std::vector<int32_t>{127, 3}));
    EXPECT_NO_THROW(dataset.check_tokens(128));
    EXPECT_THROW(dataset.read(2, 3, tokens, 128), Error);
    EXPECT_THROW(dataset.read(3, 0, tokens, 128), Error);
  }
}

TEST(IndexedDataset, NamesATokenOutsideTheVocabulary) {
  const TempDir dir;
  write_golden(dir.file("d"));
  const IndexedDataset dataset(dir.file("d"));
  std::vector<int32_t> tokens(4);
  dataset.read(2, 0, tokens, 10);
  // Token 8 is the third of the last sequence, that is number 4 of document 1.
  const std::string expected =
      dir.file("d.bin") +
      ": document 1, token 4 (both counted from 0): id 8 is outside the vocabulary of 8 tokens";
  expect_has(error_of([&] { dataset.read(2, 0, tokens, 8); }), expected);
  expect_has(error_of([&] { dataset.check_tokens(8); }), expected);
  EXPECT_NO_THROW(dataset.check_tokens(10));
}

TEST(IndexedDataset, NamesNegativeAndHugeTokens) {
  const TempDir dir;
  write_documents(dir.file("d"), TokenType::I64, {{1, 2}, {3, 4}});
  std::string bin = read_file(dir.file("d.bin"));
  for (const int64_t id : {int64_t{-5}, int64_t{1} << 32}) {  // the low half of the second is the valid id 0
    std::memcpy(bin.data() + 3 * 8, &id, 8);
    write_file(dir.file("d.bin"), bin);
    const IndexedDataset dataset(dir.file("d"));
    const std::string expected =
        fmt::format("document 1, token 1 (both counted from 0): id {} is outside", id);
    expect_has(error_of([&] { dataset.check_tokens(100); }), expected);
    std::vector<int32_t> tokens(2);
    expect_has(error_of([&] { dataset.read(1, 0, tokens, 100); }), expected);
  }
}

TEST(IndexedDataset, FindsABadTokenInAnyBlock) {
  const TempDir dir;
  std::vector<int32_t> tokens(200000, 1);
  tokens[199999] = 70;
  write_documents(dir.file("d"), TokenType::U16, {tokens});
  expect_has(error_of([&] { IndexedDataset(dir.file("d")).check_tokens(70); }), "document 0, token 199999 ");
}

TEST(IndexedDataset, NamesMissingFiles) {
  const TempDir dir;
  const std::string prefix = dir.file("d");
  std::string message = error_of([&] { IndexedDataset dataset(prefix); });
  expect_has(message, prefix + ".idx (missing) and " + prefix + ".bin (missing)");
  write_golden(prefix);
  std::filesystem::remove(prefix + ".bin");
  message = error_of([&] { IndexedDataset dataset(prefix); });
  expect_has(message, prefix + ".idx (found) and " + prefix + ".bin (missing)");
}

TEST(IndexedDataset, RefusesADamagedIndex) {
  const TempDir dir;
  const std::string prefix = dir.file("d");
  write_golden(prefix);
  expect_has(message_with(prefix, 0, 'X'), "does not start with \"MMIDIDX\"");
  expect_has(message_with(prefix, 9, uint64_t{2}), "format version 2");
  for (uint8_t code : {0, 6, 7, 9, 255})
    expect_has(message_with(prefix, 17, code), fmt::format("element type code {}", code));
  expect_has(message_with(prefix, 18, uint64_t{4}),
             "truncated: 4 sequences and 3 document indices need 106 bytes, the file has 94");
  expect_has(message_with(prefix, 18, ~uint64_t{0}), "damaged: it claims 18446744073709551615 sequences");
  expect_has(message_with(prefix, 26, uint64_t{0}), "no document indices");
  expect_has(message_with(prefix, 26, uint64_t{2}), "too long");
  expect_has(message_with(prefix, 34, int32_t{-3}), "sequence 0 has length -3");
  expect_has(message_with(prefix, 34, int32_t{4}), "sequence 1 should start at byte 8 of the .bin");
  expect_has(message_with(prefix, 46 + 16, int64_t{12}), "sequence 2 should start at byte 10");
  expect_has(message_with(prefix, 70, int64_t{1}), "the first document index is 1, not 0");
  expect_has(message_with(prefix, 78, int64_t{4}), "document index 2 is 3, less than the one before it, 4");
  expect_has(message_with(prefix, 86, int64_t{2}),
             "the last document index is 2, not the number of sequences, 3");
  expect_has(message_with(prefix, 42, int32_t{5}), "does not match its index");  // the last length alone
  EXPECT_NO_THROW(IndexedDataset dataset(prefix));
}

TEST(IndexedDataset, RefusesFilesOfTheWrongSize) {
  const TempDir dir;
  const std::string prefix = dir.file("d");
  write_golden(prefix);
  const std::string idx = read_file(prefix + ".idx");
  write_file(prefix + ".idx", idx.substr(0, 20));
  expect_has(error_of([&] { IndexedDataset dataset(prefix); }), "has 20 bytes, the header alone needs 34");
  write_file(prefix + ".idx", "");
  expect_has(error_of([&] { IndexedDataset dataset(prefix); }), "has 0 bytes");
  write_file(prefix + ".idx", idx.substr(0, 93));
  expect_has(error_of([&] { IndexedDataset dataset(prefix); }), "need 94 bytes, the file has 93");
  write_file(prefix + ".idx", idx + "abc");
  expect_has(error_of([&] { IndexedDataset dataset(prefix); }), "multimodal");
  write_file(prefix + ".idx", idx);
  const std::string bin = read_file(prefix + ".bin");
  write_file(prefix + ".bin", bin.substr(1));
  expect_has(error_of([&] { IndexedDataset dataset(prefix); }),
             "says 18 bytes (9 tokens of type u16), the file has 17");
  write_file(prefix + ".bin", bin + "x");
  expect_has(error_of([&] { IndexedDataset dataset(prefix); }), "the file has 19");
}

// Any damage either is noticed when the pair is opened, or leaves a pair that can be read to the end.
TEST(IndexedDataset, SurvivesRandomDamage) {
  const TempDir dir;
  const std::string prefix = dir.file("d");
  write_golden(prefix);
  const std::string good = read_file(prefix + ".idx");
  std::mt19937 random(7);
  int refused = 0;
  for (int round = 0; round < 500; ++round) {
    std::string bad = good;
    const int flips = static_cast<int>(random() % 4);
    for (int i = 0; i < flips; ++i) bad[random() % bad.size()] ^= static_cast<char>(1U << random() % 8);
    if (random() % 2 == 0) bad.resize(random() % (bad.size() + 1));
    write_file(prefix + ".idx", bad);
    try {
      const IndexedDataset dataset(prefix);
      for (int64_t s = 0; s < dataset.sequences(); ++s) {
        std::vector<int32_t> tokens(static_cast<size_t>(dataset.length(s)));
        try {
          dataset.read(s, 0, tokens, 10);
        } catch (const Error&) {
        }
      }
      try {
        dataset.check_tokens(10);
      } catch (const Error&) {
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::BadInput);
      ++refused;
    }
  }
  EXPECT_GT(refused, 250);
}

}  // namespace
}  // namespace trifold
