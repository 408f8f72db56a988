// The boundary of trifold_parquet.so (src/preprocess/parquet), which reads and writes Parquet files with Apache Arrow's
// libraries. The program loads it when the first Parquet file is opened (preprocess/parquet_file.h), so that it starts
// without them. Nothing crosses but plain numbers, C texts and Arrow's C interface: the module may be compiled for
// another standard library than the program, and does not link it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "preprocess/arrow_abi.h"

namespace trifold {

constexpr const char* kParquetModuleFile = "trifold_parquet.so";
constexpr int64_t kParquetModuleVersion = 4;

// A file that is read. Functions that return bool say whether they succeeded; if not, problem() says why.
class ParquetModuleFile {
 public:
  virtual ~ParquetModuleFile() = default;
  virtual const char* problem() const = 0;
  // The schema of all columns, as children of one.
  virtual bool schema(ArrowSchema* out) = 0;
  virtual int64_t row_groups() const = 0;
  virtual int64_t rows(int64_t group) const = 0;
  // Bytes of all columns of the group, decompressed but still encoded.
  virtual int64_t bytes(int64_t group) const = 0;
  // Columns `fields`, which count among the children of schema(), of one group: arrays of at most `batch_rows` rows.
  // Released before the file is deleted.
  virtual bool read(int64_t group, const int64_t* fields, int64_t count, int64_t batch_rows,
                    ArrowArrayStream* out) = 0;
};

// Predictions that become the bytes of a file (preprocess/prediction_table.h).
class ParquetModuleWriter {
 public:
  virtual ~ParquetModuleWriter() = default;
  virtual const char* problem() const = 0;
  // Numbers of the samples [count]; labels [count, columns of labels], of which -1 is null; probabilities [count, their
  // columns], of which NaN is null; and for each column of texts [count + 1] places in `texts`, from one of which to the
  // next there is a sample's text; an empty one is null.
  virtual bool add(const int64_t* samples, int64_t count, const int8_t* labels, const double* probabilities,
                   const char* texts, const int64_t* text_places) = 0;
  virtual bool finish() = 0;
  // The bytes of the file since the last call; until the next.
  virtual const char* written(size_t* bytes) = 0;
};

// Names that the module exports.
using ParquetModuleVersion = int64_t();  // trifold_parquet_version
// trifold_parquet_open: null, with the problem in why[0, bytes), if the file is not a Parquet file. `threads` unpack
// columns. The caller owns the result.
using ParquetModuleOpen = ParquetModuleFile*(const char* path, int threads, char* why, size_t bytes);
// trifold_parquet_write: columns of these names, those of texts first, then those of labels. The caller owns the result.
using ParquetModuleWrite = ParquetModuleWriter*(const char* const* names, int64_t texts, int64_t labels,
                                                int64_t probabilities, bool doubles);

}  // namespace trifold
