// The interface of trifold_parquet.so (src/preprocess/parquet), which reads and writes Parquet files with Apache
// Arrow's libraries. The program loads it when the first Parquet file is opened (preprocess/parquet_file.h), so it
// starts without these libraries. Only integers, C strings and Arrow's C interface are passed, because the module may
// be compiled for another standard library than the program; it does not link the program's code.
#pragma once

#include <cstddef>
#include <cstdint>

#include "preprocess/arrow_abi.h"

namespace trifold {

constexpr const char* kParquetModuleFile = "trifold_parquet.so";
constexpr int64_t kParquetModuleVersion = 5;

// Reads a file. Functions that return bool return whether they succeeded; after a failure problem() says why.
class ParquetModuleFile {
 public:
  virtual ~ParquetModuleFile() = default;
  virtual const char* problem() const = 0;
  // The schema of the file: a struct whose children are the columns.
  virtual bool schema(ArrowSchema* out) = 0;
  virtual int64_t row_groups() const = 0;
  virtual int64_t rows(int64_t group) const = 0;
  // Size of all columns of the row group, decompressed but still encoded, in bytes.
  virtual int64_t bytes(int64_t group) const = 0;
  // Streams the columns `fields` (indices of the children of schema()) of one row group, in arrays of at most
  // `batch_rows` rows. The caller releases `out` before it deletes the file.
  virtual bool read(int64_t group, const int64_t* fields, int64_t count, int64_t batch_rows,
                    ArrowArrayStream* out) = 0;
};

// Encodes predictions as the bytes of a Parquet file (preprocess/prediction_table.h). Returns are as for the reader.
class ParquetModuleWriter {
 public:
  virtual ~ParquetModuleWriter() = default;
  virtual const char* problem() const = 0;
  // Adds `count` rows: samples [count]; labels [count, columns of labels], -1 is null; probabilities [count, columns of
  // probabilities], NaN is null; text_places [columns of texts, count + 1]: offsets in `texts`, from each of which to
  // the next is a row's text; an empty text is null.
  virtual bool add(const int64_t* samples, int64_t count, const int8_t* labels, const double* probabilities,
                   const char* texts, const int64_t* text_places) = 0;
  virtual bool finish() = 0;
  // The bytes of the file since the last call, valid until the next call.
  virtual const char* written(size_t* bytes) = 0;
};

// Names that the module exports.
using ParquetModuleVersion = int64_t();  // trifold_parquet_version
using ParquetModuleLibrary =
    const char*();  // trifold_parquet_library: Arrow's version; lives until the process ends
// trifold_parquet_open: opens a file, whose columns `threads` threads decompress. Returns null, with the problem in
// why[0, bytes), if it is not a Parquet file. The caller owns the result.
using ParquetModuleOpen = ParquetModuleFile*(const char* path, int threads, char* why, size_t bytes);
// trifold_parquet_write: `names` has the names of the columns: `texts` columns of texts, then `labels` of labels, then
// `probabilities` of probabilities, which are doubles or else floats. The caller owns the result.
using ParquetModuleWrite = ParquetModuleWriter*(const char* const* names, int64_t texts, int64_t labels,
                                                int64_t probabilities, bool doubles);

}  // namespace trifold
