// ParquetFile: a file in Apache Parquet's format, read in batches of rows by Arrow's libraries, which the module
// trifold_parquet.so (preprocess/parquet_module.h) brings along.
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
  // BadInput for a file that is missing or damaged. Failure that says what to do where the module is missing.
  ParquetFile(const std::string& path, int threads);

  const std::string& path() const { return path_; }
  int64_t bytes() const { return bytes_; }
  int64_t rows() const { return rows_; }
  std::vector<std::string> names() const;
  const ArrowSchema& type(size_t column) const { return *schema_->children[column]; }

  // Selects the columns to read, in this order, from the first row on.
  void select(std::vector<size_t> columns);

  struct Batch {
    int64_t row_group = 0;
    int64_t first_row = 0;  // of the file
    int64_t rows = 0;
    std::vector<ArrowColumn> columns;  // as selected; of the owners below
    std::shared_ptr<ArrowOwner<ArrowSchema>> type;
    std::shared_ptr<ArrowOwner<ArrowArray>> values;
  };
  // The next rows of a group, some megabytes; nothing at the end. BadInput, naming the row group, for one that is
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
  std::vector<int64_t> fields_;  // the same, ascending
  std::shared_ptr<ArrowOwner<ArrowSchema>> batch_type_;
  ArrowOwner<ArrowArrayStream> stream_;  // of the group
  int64_t group_ = -1;
  int64_t row_ = 0;
};

}  // namespace trifold
