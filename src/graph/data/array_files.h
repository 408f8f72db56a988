// ArrayFiles: the named arrays of a data set, in files of several formats:
//
//   .npy           one array without a name
//   .npz           arrays by name, as numpy.savez and numpy.savez_compressed write them
//   .safetensors   arrays by name
//   HDF5           numeric datasets by path
//   .bin, .idx     a stream of tokens (text/indexed_dataset.h), named by the prefix of both; sequences follow one another
//
// The first bytes of a file say its format; the ending of its name says that it has safetensors. Elements stay in the
// file, which is mapped, if it has them in one piece; compressed elements are unpacked into memory.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "files/mapped_file.h"
#include "graph/data/stored_array.h"

namespace trifold::graph {

class ArrayFiles {
 public:
  // Each text is NAME=PATH for a file with one array; PATH for all arrays of a file, by their own names; PATH:INSIDE for
  // the array INSIDE of a file, whose name is INSIDE after its last slash; NAME=PATH:INSIDE for another name. For tokens it is
  // NAME=PREFIX, or NAME=PREFIX:N for a stream that begins at token N. BadInput,
  // naming the file, if it is missing or damaged, if a text does not say which array is meant, or if two arrays have one
  // name.
  explicit ArrayFiles(const std::vector<std::string>& texts);

  const std::vector<StoredArray>& arrays() const { return arrays_; }
  // Null if there is none.
  const StoredArray* find(std::string_view name) const;

 private:
  // A text in its parts; empty if not given.
  struct Given {
    std::string text, name, path, inside;
  };
  static Given parse(const std::string& text);
  void open(const Given& given);
  void open_npy(const Given& given);
  void open_npz(const Given& given);
  void open_safetensors(const Given& given);
  void open_hdf5(const Given& given);
  void open_tokens(const Given& given);
  // Adds an array of a file with names, if `given` means it. `data` finds its elements, and is called only then;
  // `before`: the arrays of other files.
  template <class Data>
  void add_named(const Given& given, size_t before, StoredArray array, Data&& data);
  void check_found(const Given& given, size_t before) const;
  const MappedFile& map(const std::string& path);
  std::byte* allocate(int64_t bytes);

  std::vector<StoredArray> arrays_;
  std::vector<std::unique_ptr<MappedFile>> files_;
  std::vector<Buffer> memory_;
};

}  // namespace trifold::graph
