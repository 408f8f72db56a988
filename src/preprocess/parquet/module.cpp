// The functions that trifold_parquet.so exports; preprocess/parquet_file.cpp finds these by name.
#include "preprocess/parquet_module.h"

#include <arrow/c/bridge.h>
#include <arrow/config.h>
#include <arrow/memory_pool.h>
#include <arrow/record_batch.h>
#include <arrow/util/thread_pool.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "preprocess/parquet/call.h"

namespace trifold {

namespace {

// The numbers of the columns that a field is stored in.
void add_stored_columns(const parquet::arrow::SchemaField& field, std::vector<int>& columns) {
  if (field.column_index >= 0) columns.push_back(field.column_index);
  for (const parquet::arrow::SchemaField& child : field.children) add_stored_columns(child, columns);
}

class ArrowParquetFile final : public ParquetModuleFile {
 public:
  arrow::Status open(const std::string& path, int threads) {
    parquet::ReaderProperties stored(arrow::system_memory_pool());
    stored.enable_buffered_stream();  // pages as they are needed, not whole columns of a row group
    stored.set_page_checksum_verification(true);
    parquet::ArrowReaderProperties unpacked(threads > 1);
    unpacked.set_pre_buffer(false);
    if (threads > 1) ARROW_RETURN_NOT_OK(arrow::SetCpuThreadPoolCapacity(threads));
    parquet::arrow::FileReaderBuilder builder;
    ARROW_RETURN_NOT_OK(builder.OpenFile(path, false, stored));
    builder.memory_pool(arrow::system_memory_pool())->properties(unpacked);
    ARROW_ASSIGN_OR_RAISE(reader_, builder.Build());
    return arrow::Status::OK();
  }

  const char* problem() const override { return problem_.c_str(); }
  bool schema(ArrowSchema* out) override {
    return went_well(problem_, [&] {
      std::shared_ptr<arrow::Schema> schema;
      ARROW_RETURN_NOT_OK(reader_->GetSchema(&schema));
      return arrow::ExportSchema(*schema, out);
    });
  }
  int64_t row_groups() const override { return reader_->num_row_groups(); }
  int64_t rows(int64_t group) const override { return about(group)->num_rows(); }
  int64_t bytes(int64_t group) const override { return about(group)->total_byte_size(); }
  bool read(int64_t group, const int64_t* fields, int64_t count, int64_t batch_rows,
            ArrowArrayStream* out) override {
    return went_well(problem_, [&] {
      std::vector<int> columns;
      const auto& all = reader_->manifest().schema_fields;
      for (int64_t f = 0; f < count; ++f) add_stored_columns(all.at(static_cast<size_t>(fields[f])), columns);
      reader_->set_batch_size(batch_rows);
      ARROW_ASSIGN_OR_RAISE(std::shared_ptr<arrow::RecordBatchReader> batches,
                            reader_->GetRecordBatchReader({static_cast<int>(group)}, columns));
      return arrow::ExportRecordBatchReader(std::move(batches), out);
    });
  }

 private:
  std::unique_ptr<parquet::RowGroupMetaData> about(int64_t group) const {
    return reader_->parquet_reader()->metadata()->RowGroup(static_cast<int>(group));
  }

  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::string problem_;
};

}  // namespace

}  // namespace trifold

extern "C" {

int64_t trifold_parquet_version() { return trifold::kParquetModuleVersion; }

const char* trifold_parquet_library() { return arrow::GetBuildInfo().version_string.c_str(); }

trifold::ParquetModuleFile* trifold_parquet_open(const char* path, int threads, char* why, size_t bytes) {
  std::string problem;
  auto file = std::make_unique<trifold::ArrowParquetFile>();
  if (trifold::went_well(problem, [&] { return file->open(path, threads); })) return file.release();
  const size_t count = std::min(problem.size(), bytes - 1);
  std::memcpy(why, problem.data(), count);
  why[count] = '\0';
  return nullptr;
}
}
