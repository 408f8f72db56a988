// ParquetFile reads an Apache Parquet file in batches of rows. It uses Arrow's libraries through the module
// trifold_parquet.so (preprocess/parquet_module.h).
//
//   ParquetFile file(path, threads);
//   for (const ParquetColumn& column : file.columns()) ...
//   file.select({3, 0});
//   while (auto batch = file.next()) ...
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "preprocess/arrow_values.h"
#include "preprocess/parquet_module.h"

namespace trifold {

class ParquetFile {
 public:
  // `threads` decompress columns. BadInput for a file that is missing or damaged; Failure, with the remedy, if the
  // module is missing.
  ParquetFile(const std::string& path, int threads);

  const std::string& path() const { return path_; }
  int64_t bytes() const { return bytes_; }
  int64_t rows() const { return rows_; }
  std::vector<std::string> names() const;
  const ArrowSchema& type(size_t column) const { return *schema_->children[column]; }

  // Selects the columns that next() reads, in this order, and starts at the first row.
  void select(std::vector<size_t> columns);

  struct Batch {
    int64_t row_group = 0;
    int64_t first_row = 0;  // position in the file
    int64_t rows = 0;
    std::vector<ArrowColumn> columns;  // as selected; they refer to the owners below
    std::shared_ptr<ArrowOwner<ArrowSchema>> type;
    std::shared_ptr<ArrowOwner<ArrowArray>> values;
  };
  // The next rows, some megabytes of one row group; nullopt at the end. BadInput, naming the row group, if it is
  // damaged.
  std::optional<Batch> next();

 private:
  [[noreturn]] void refuse_group(const char* problem) const;
  bool open_group();

  std::string path_;
  int64_t bytes_ = 0;
  int64_t rows_ = 0;
  std::unique_ptr<ParquetModuleFile> file_;
  ArrowOwner<ArrowSchema> schema_;
  std::vector<size_t> columns_;  // as selected
  std::vector<int64_t> fields_;  // the same columns, ascending
  std::shared_ptr<ArrowOwner<ArrowSchema>> batch_type_;
  ArrowOwner<ArrowArrayStream> stream_;  // the rest of the row group
  int64_t group_ = -1;
  int64_t row_ = 0;
};

}  // namespace trifold
