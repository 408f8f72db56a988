#include "preprocess/parquet_file.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"
#include "files/raw_file.h"
#include "preprocess/parquet_library.h"

namespace trifold {

namespace {

constexpr int64_t kBatchBytes = int64_t{8} << 20;  // encoded columns of a batch
constexpr int64_t kMostRows = int64_t{1} << 15;
constexpr int64_t kLeastRows = 64;

}  // namespace

ParquetFile::ParquetFile(const std::string& path, int threads) : path_(path) {
  bytes_ = RawFile(path, RawFile::Mode::Read).size();
  if (bytes_ == 0) bad_input("{}: the file is empty", path);
  std::array<char, 1024> why{};
  file_.reset(parquet_library(path).open(path.c_str(), threads, why.data(), why.size()));
  if (!file_) bad_input("{} cannot be read as Parquet: {}", path, why.data());
  if (!file_->schema(schema_.out())) bad_input("{} cannot be read as Parquet: {}", path, file_->problem());
  for (int64_t group = 0; group < file_->row_groups(); ++group) rows_ += file_->rows(group);
}

std::vector<std::string> ParquetFile::names() const {
  std::vector<std::string> names;
  for (int64_t c = 0; c < schema_->n_children; ++c) names.emplace_back(schema_->children[c]->name);
  return names;
}

void ParquetFile::select(std::vector<size_t> columns) {
  columns_ = std::move(columns);
  fields_.assign(columns_.begin(), columns_.end());
  std::sort(fields_.begin(), fields_.end());
  stream_ = {};
  group_ = -1;
  row_ = 0;
}

void ParquetFile::refuse_group(const char* problem) const {
  bad_input("{}: row group {} (of {}) cannot be read: {}", path_, group_, file_->row_groups(), problem);
}

// Opens the next group; false when there is none.
bool ParquetFile::open_group() {
  stream_ = {};
  if (++group_ >= file_->row_groups()) return false;
  const int64_t row_bytes = file_->bytes(group_) / std::max<int64_t>(1, file_->rows(group_));
  const int64_t rows = std::clamp(kBatchBytes / std::max<int64_t>(1, row_bytes), kLeastRows, kMostRows);
  if (!file_->read(group_, fields_.data(), std::ssize(fields_), rows, stream_.out()))
    refuse_group(file_->problem());
  batch_type_ = std::make_shared<ArrowOwner<ArrowSchema>>();
  if (stream_->get_schema(&*stream_, batch_type_->out()) != 0)
    refuse_group(stream_->get_last_error(&*stream_));
  if ((*batch_type_)->n_children != std::ssize(fields_)) refuse_group("it lacks columns");
  return true;
}

std::optional<ParquetFile::Batch> ParquetFile::next() {
  while (true) {
    if (!stream_ && !open_group()) {
      if (row_ != rows_) bad_input("{} has {} rows, its footer says {}: it is damaged", path_, row_, rows_);
      return std::nullopt;
    }
    auto values = std::make_shared<ArrowOwner<ArrowArray>>();
    if (stream_->get_next(&*stream_, values->out()) != 0) refuse_group(stream_->get_last_error(&*stream_));
    if (!*values) {
      stream_ = {};
      continue;
    }
    Batch batch{group_, row_, (*values)->length, {}, batch_type_, values};
    for (const size_t column : columns_) {
      const auto field = static_cast<size_t>(
          std::lower_bound(fields_.begin(), fields_.end(), static_cast<int64_t>(column)) - fields_.begin());
      batch.columns.emplace_back(*(*batch.type)->children[field], *(*values)->children[field]);
      if (batch.columns.back().size() != batch.rows) refuse_group("its columns differ in length");
    }
    row_ += batch.rows;
    return batch;
  }
}

}  // namespace trifold
