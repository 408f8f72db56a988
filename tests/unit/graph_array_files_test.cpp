#include "graph/data/array_files.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/files.h"
#include "text/indexed_writer.h"
#include "unit/array_testing.h"

namespace trifold::graph {
namespace array_files_test {
namespace {

using test::bytes_of;
using test::error_of;
using test::npy_of;
using test::TempDir;
using test::write_file;

// Three samples of two numbers.
const std::vector<int32_t> kNumbers{1, 2, 3, 4, 5, -6};

std::string write(const TempDir& folder, const std::string& name, const std::string& content) {
  write_file(folder.file(name), content);
  return folder.file(name);
}

// The elements as f64.
std::vector<double> elements(const StoredArray& array) {
  std::vector<int64_t> positions(static_cast<size_t>(array.samples()));
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int64_t>(i);
  Array all = make_array(ElementType::F64, array.dims);
  gather_samples(array, positions, all);
  return {all.as<double>(), all.as<double>() + all.elements()};
}

const std::vector<double> kExpected{1, 2, 3, 4, 5, -6};

void expect_numbers(const ArrayFiles& files, const std::string& name) {
  const StoredArray* array = files.find(name);
  ASSERT_NE(array, nullptr) << name;
  EXPECT_EQ(array->dims, (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(array->type, NumberType::I32);
  EXPECT_EQ(elements(*array), kExpected);
}

TEST(ArrayFiles, ReadsEveryFormat) {
  const TempDir folder;
  const std::string numbers = bytes_of(kNumbers), npy = npy_of("<i4", "(3, 2)", numbers);
  const std::string one = write(folder, "one.npy", npy);
  const std::string several =
      write(folder, "several.npz", test::zip_of({{"ids.npy", npy}, {"labels.npy", npy}, {"notes.txt", "x"}}));
  const std::string tensors =
      test::write_safetensors(folder, "t.safetensors", "train/rows", "I32", {3, 2}, numbers);
  const std::string hdf5 =
      test::write_hdf5(folder, "h.h5", "/train/more", DType::I32, {3, 2}, numbers, "/other");
  const ArrayFiles files(
      {"x=" + one, several, "again=" + several + ":ids", tensors + ":train/rows", hdf5 + ":train/more"});
  EXPECT_EQ(files.arrays().size(), 6U);
  for (const char* name : {"x", "ids", "labels", "again", "rows", "more"}) expect_numbers(files, name);
  EXPECT_EQ(files.find("again")->where, several + ": ids");
  EXPECT_EQ(files.find("other"), nullptr);
  // A file with one array needs no name inside; all names of a file are whole paths.
  expect_numbers(ArrayFiles({"y=" + tensors}), "y");
  const ArrayFiles all({hdf5});
  EXPECT_EQ(all.arrays().size(), 2U);
  expect_numbers(all, "train/more");
}

TEST(ArrayFiles, ReadsTokensAsStreams) {
  const TempDir folder;
  const std::string corpus = folder.file("corpus");
  IndexedWriter writer(corpus, TokenType::U16);
  for (const std::vector<int32_t>& document : {std::vector<int32_t>{1, 2, 3}, std::vector<int32_t>{4, 5}}) {
    writer.add(document);
    writer.end_sequence();
    writer.end_document();
  }
  writer.finish();
  const ArrayFiles files({"x=" + corpus, "y=" + corpus + ":1"});
  for (const char* name : {"x", "y"}) {
    EXPECT_TRUE(files.find(name)->is_stream);
    EXPECT_EQ(elements(*files.find(name)), (std::vector<double>{1, 2, 3, 4, 5}));
  }
  EXPECT_EQ(files.find("x")->shift, 0);
  EXPECT_EQ(files.find("y")->shift, 1);
  const auto refusal = [](const std::string& text) { return error_of([&] { ArrayFiles files({text}); }); };
  EXPECT_NE(refusal(corpus).find("give NAME=" + corpus), std::string::npos);
  EXPECT_NE(refusal("x=" + corpus + ":next").find("'next' is no number of a token; give x=" + corpus + ":1"),
            std::string::npos);
  test::write_file(corpus + ".bin", test::read_file(corpus + ".bin").substr(0, 8));
  EXPECT_NE(refusal("x=" + corpus).find("corpus"), std::string::npos);
}

TEST(ArrayFiles, UnpacksCompressedArrays) {
  const ArrayFiles files({std::string(TRIFOLD_TEST_DATA) + "/data/own_models/host/operations.npz:input0"});
  EXPECT_EQ(files.find("input0")->dims, (std::vector<int64_t>{3, 6}));
  EXPECT_EQ(files.find("input0")->type, NumberType::I64);
}

TEST(ArrayFiles, SaysWhichArrayIsNotClear) {
  const TempDir folder;
  const std::string npy = npy_of("<i4", "(3, 2)", bytes_of(kNumbers)), one = write(folder, "one.npy", npy);
  const std::string several =
      write(folder, "several.npz", test::zip_of({{"ids.npy", npy}, {"labels.npy", npy}}));
  const auto refusal = [](const std::vector<std::string>& texts) {
    return error_of([&] { ArrayFiles files(texts); });
  };
  EXPECT_NE(refusal({one}).find("has no name; give NAME="), std::string::npos);
  EXPECT_NE(refusal({"x=" + several}).find("has several arrays; give x=" + several + ":INSIDE"),
            std::string::npos);
  EXPECT_NE(refusal({several + ":ibs"}).find("has no array of numbers 'ibs'"), std::string::npos);
  EXPECT_NE(refusal({"ids=" + one, several}).find("two arrays are given for 'ids'"), std::string::npos);
  EXPECT_NE(refusal({"x=" + folder.file("missing.npy")}).find("missing.npy"), std::string::npos);
  EXPECT_NE(refusal({"x=" + write(folder, "a.csv", "1,2\n")}).find("a.csv is not a file of arrays"),
            std::string::npos);
}

// A file of any format that was cut anywhere is refused by name, or still has its elements; never read beyond its end.
TEST(ArrayFiles, RefusesTruncatedFiles) {
  const TempDir folder;
  const std::string numbers = bytes_of(kNumbers), npy = npy_of("<i4", "(3, 2)", numbers);
  write(folder, "a.npy", npy);
  write(folder, "a.npz", test::zip_of({{"x.npy", npy}}));
  test::write_safetensors(folder, "a.safetensors", "x", "I32", {3, 2}, numbers);
  test::write_hdf5(folder, "a.h5", "x", DType::I32, {3, 2}, numbers);
  for (const char* name : {"a.npy", "a.npz", "a.safetensors", "a.h5"}) {
    const std::string content = test::read_file(folder.file(name));
    const size_t step = content.size() > 1000 ? 97 : 1;
    for (size_t bytes = 0; bytes < content.size(); bytes += step) {
      const std::string path = write(folder, std::string("cut_") + name, content.substr(0, bytes));
      EXPECT_NE(error_of([&] { ArrayFiles files({"x=" + path}); }).find("cut_"), std::string::npos)
          << name << " " << bytes;
    }
  }
}

TEST(ArrayFiles, RefusesShapesThatAFileCannotHold) {
  const TempDir folder;
  const std::string numbers = bytes_of(kNumbers);
  EXPECT_NE(error_of([&] {
              ArrayFiles files({"x=" + write(folder, "a.npy", npy_of("<i4", "(4, 2)", numbers))});
            }).find("it is damaged"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              ArrayFiles files({write(
                  folder, "a.npz",
                  test::zip_of({{"x.npy", npy_of("<i4", "(1099511627776, 1099511627776)", numbers)}}))});
            }).find("it is damaged"),
            std::string::npos);
}

TEST(GatherSamples, ConvertsWithoutLossOrSaysWhichElementDoesNotFit) {
  const TempDir folder;
  const std::vector<int64_t> numbers{0, 1, 200, -1, int64_t{1} << 40, 1};
  const ArrayFiles files({"x=" + write(folder, "a.npy", npy_of("<i8", "(3, 2)", bytes_of(numbers)))});
  const StoredArray& x = *files.find("x");
  const auto first = [&](ElementType type, int64_t sample) {
    Array to = make_array(type, {1, 2});
    gather_samples(x, std::vector{sample}, to);
    return *converted(to, ElementType::F64).as<double>();
  };
  EXPECT_EQ(first(ElementType::Bool, 0), 0);
  EXPECT_EQ(first(ElementType::I16, 1), 200);
  EXPECT_EQ(first(ElementType::F64, 2), 1099511627776.0);
  const std::string where = "'x' (" + folder.file("a.npy") + "): ";
  EXPECT_EQ(error_of([&] { first(ElementType::Bool, 1); }),
            where + "element 0 of sample 1 is 200, which bool cannot represent; the model takes bool");
  EXPECT_EQ(error_of([&] { first(ElementType::U8, 1); }),
            where + "element 1 of sample 1 is -1, which u8 cannot represent; the model takes u8");
  EXPECT_NE(error_of([&] { first(ElementType::I32, 2); }).find("is 1099511627776"), std::string::npos);
  EXPECT_NE(error_of([&] { first(ElementType::F32, 2); }).find("f32 cannot represent"), std::string::npos);
}

TEST(GatherSamples, FloatsDoNotBecomeNarrower) {
  EXPECT_TRUE(converts(NumberType::F32, ElementType::F64));
  EXPECT_TRUE(converts(NumberType::BF16, ElementType::F32));
  EXPECT_TRUE(converts(NumberType::U64, ElementType::I64));
  EXPECT_TRUE(converts(NumberType::Bool, ElementType::F32));
  EXPECT_FALSE(converts(NumberType::F64, ElementType::F32));
  EXPECT_FALSE(converts(NumberType::F32, ElementType::BF16));
  EXPECT_FALSE(converts(NumberType::F16, ElementType::BF16));
  EXPECT_FALSE(converts(NumberType::F32, ElementType::I64));
  EXPECT_FALSE(converts(NumberType::F32, ElementType::Bool));
}

}  // namespace
}  // namespace array_files_test
}  // namespace trifold::graph
