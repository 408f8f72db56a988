#include "checkpoint/arrays/hdf5_arrays.h"

#include <gtest/gtest.h>
#include <hdf5.h>

#include <cstring>
#include <string>
#include <vector>

#include "support/files.h"

namespace trifold {
namespace hdf5_arrays_test {
namespace {

using test::error_of;
using test::TempDir;

// Writes a dataset of 3 x 2 elements, in chunks if `chunked`.
void write_dataset(hid_t file, const char* name, hid_t stored, hid_t memory, const void* elements,
                   bool chunked) {
  const hsize_t dims[] = {3, 2}, chunk[] = {2, 2};
  const hid_t space = H5Screate_simple(2, dims, nullptr), properties = H5Pcreate(H5P_DATASET_CREATE);
  const hid_t links = H5Pcreate(H5P_LINK_CREATE);
  H5Pset_create_intermediate_group(links, 1);
  if (chunked) {
    H5Pset_chunk(properties, 2, chunk);
    H5Pset_deflate(properties, 4);
  }
  const hid_t set = H5Dcreate2(file, name, stored, space, links, properties, H5P_DEFAULT);
  ASSERT_GE(set, 0);
  ASSERT_GE(H5Dwrite(set, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, elements), 0);
  for (const auto& close : {H5Dclose(set), H5Pclose(links), H5Pclose(properties), H5Sclose(space)})
    ASSERT_GE(close, 0);
}

std::string write_example(const TempDir& folder) {
  const std::string path = folder.file("example.h5");
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const std::vector<int64_t> ids{1, 2, 3, 4, 5, -6};
  const std::vector<float> x{1, 2, 3, 4, 5, 6.5};
  const std::vector<int8_t> mask{1, 0, 1, 1, 0, 1};
  const hid_t truth = H5Tenum_create(H5T_NATIVE_INT8);
  for (const int8_t value : {0, 1}) H5Tenum_insert(truth, value == 1 ? "TRUE" : "FALSE", &value);
  write_dataset(file, "train/ids", H5T_STD_I64LE, H5T_NATIVE_INT64, ids.data(), false);
  write_dataset(file, "train/swapped", H5T_STD_I32BE, H5T_NATIVE_INT64, ids.data(), false);
  write_dataset(file, "x", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, x.data(), true);
  write_dataset(file, "mask", truth, truth, mask.data(), true);
  const hid_t text = H5Tcopy(H5T_C_S1);
  const std::vector<char> letters(6, 'a');
  write_dataset(file, "text", text, text, letters.data(), false);
  H5Lcreate_soft("/nothing", file, "broken", H5P_DEFAULT, H5P_DEFAULT);
  H5Lcreate_soft("/", file, "cycle", H5P_DEFAULT, H5P_DEFAULT);
  H5Tclose(text);
  H5Tclose(truth);
  H5Fclose(file);
  return path;
}

template <class T>
std::vector<T> read_all(const std::string& path, const Hdf5Array& array) {
  std::vector<T> elements(6);
  read_hdf5_array(path, array, std::as_writable_bytes(std::span(elements)));
  return elements;
}

const Hdf5Array& called(const std::vector<Hdf5Array>& arrays, const std::string& name) {
  for (const Hdf5Array& array : arrays)
    if (array.name == name) return array;
  throw Error("no array " + name);
}

TEST(Hdf5Arrays, FindsAllDatasetsOfNumbers) {
  const TempDir folder;
  const std::string path = write_example(folder);
  const std::vector<Hdf5Array> arrays = hdf5_arrays(path);
  EXPECT_EQ(arrays.size(), 4U);
  for (const Hdf5Array& array : arrays) {
    EXPECT_EQ(array.shape, (std::vector<int64_t>{3, 2}));
  }
  const Hdf5Array& ids = called(arrays, "train/ids");
  EXPECT_EQ(ids.kind, 'i');
  EXPECT_EQ(ids.size, 8);
  ASSERT_TRUE(ids.offset.has_value());
  const std::string content = test::read_file(path);
  int64_t last = 0;
  std::memcpy(&last, content.data() + *ids.offset + 40, 8);
  EXPECT_EQ(last, -6);
  EXPECT_EQ(read_all<int64_t>(path, ids), (std::vector<int64_t>{1, 2, 3, 4, 5, -6}));
  const Hdf5Array& swapped = called(arrays, "train/swapped");
  EXPECT_FALSE(swapped.offset.has_value());
  EXPECT_EQ(read_all<int32_t>(path, swapped), (std::vector<int32_t>{1, 2, 3, 4, 5, -6}));
  EXPECT_EQ(read_all<float>(path, called(arrays, "x"))[5], 6.5F);
  EXPECT_FALSE(called(arrays, "x").offset.has_value());
  EXPECT_EQ(called(arrays, "mask").kind, 'b');
  EXPECT_EQ(read_all<uint8_t>(path, called(arrays, "mask")), (std::vector<uint8_t>{1, 0, 1, 1, 0, 1}));
}

TEST(Hdf5Arrays, RefusesDamagedFilesByName) {
  const TempDir folder;
  const std::string path = write_example(folder);
  const std::string content = test::read_file(path);
  for (const size_t bytes : {size_t{0}, size_t{20}, content.size() / 2}) {
    test::write_file(path, content.substr(0, bytes));
    EXPECT_NE(error_of([&] { hdf5_arrays(path); }).find("example.h5: it cannot be opened as an HDF5 file"),
              std::string::npos);
  }
  EXPECT_NE(error_of([&] { hdf5_arrays(folder.file("missing.h5")); }).find("missing.h5"), std::string::npos);
}

TEST(Hdf5Arrays, NoticesAChangedDataset) {
  const TempDir folder;
  const std::string path = write_example(folder);
  Hdf5Array array = called(hdf5_arrays(path), "x");
  array.shape = {2, 2};
  std::vector<std::byte> to(16);
  EXPECT_NE(error_of([&] { read_hdf5_array(path, array, to); }).find("x: it was changed"), std::string::npos);
}

}  // namespace
}  // namespace hdf5_arrays_test
}  // namespace trifold
