// Predictions as a Parquet file.
#include <arrow/array/builder_binary.h>
#include <arrow/array/builder_primitive.h>
#include <arrow/io/interfaces.h>
#include <arrow/memory_pool.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>
#include <arrow/util/key_value_metadata.h>
#include <parquet/arrow/writer.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "preprocess/parquet/call.h"
#include "preprocess/parquet_module.h"

namespace trifold {

namespace {

constexpr int64_t kRowsOfGroup = int64_t{1} << 20;

// A stream that keeps its bytes in memory.
class TextStream final : public arrow::io::OutputStream {
 public:
  arrow::Status Write(const void* data, int64_t bytes) override {
    text_.append(static_cast<const char*>(data), static_cast<size_t>(bytes));
    at_ += bytes;
    return arrow::Status::OK();
  }
  using arrow::io::OutputStream::Write;
  arrow::Status Close() override {
    closed_ = true;
    return arrow::Status::OK();
  }
  arrow::Result<int64_t> Tell() const override { return at_; }
  bool closed() const override { return closed_; }
  std::string take() { return std::exchange(text_, {}); }

 private:
  std::string text_;
  int64_t at_ = 0;
  bool closed_ = false;
};

class ArrowParquetWriter final : public ParquetModuleWriter {
 public:
  ArrowParquetWriter(const char* const* names, int64_t texts, int64_t labels, int64_t probabilities,
                     bool doubles)
      : texts_(texts),
        labels_(labels),
        probabilities_(probabilities),
        doubles_(doubles),
        stream_(std::make_shared<TextStream>()) {
    arrow::FieldVector fields{arrow::field("sample", arrow::int64(), false)};
    const char* const* name = names;
    for (int64_t t = 0; t < texts; ++t) fields.push_back(arrow::field(*name++, arrow::utf8()));
    for (int64_t l = 0; l < labels; ++l) fields.push_back(arrow::field(*name++, arrow::int8()));
    for (int64_t p = 0; p < probabilities; ++p)
      fields.push_back(arrow::field(*name++, doubles ? arrow::float64() : arrow::float32()));
    schema_ = arrow::schema(fields);
  }

  const char* problem() const override { return problem_.c_str(); }
  bool add(const int64_t* samples, int64_t count, const int8_t* labels, const double* probabilities,
           const char* texts, const int64_t* text_places) override {
    return went_well(problem_, [&] {
      ARROW_RETURN_NOT_OK(begin());
      if (rows_ >= kRowsOfGroup) {
        ARROW_RETURN_NOT_OK(writer_->NewBufferedRowGroup());
        rows_ = 0;
      }
      arrow::Int64Builder numbers(arrow::system_memory_pool());
      ARROW_RETURN_NOT_OK(numbers.AppendValues(samples, count));
      arrow::ArrayVector columns;
      ARROW_RETURN_NOT_OK(finish_column(numbers, columns));
      for (int64_t t = 0; t < texts_; ++t)
        ARROW_RETURN_NOT_OK(add_texts(texts, text_places + t * (count + 1), count, columns));
      for (int64_t l = 0; l < labels_; ++l) ARROW_RETURN_NOT_OK(add_labels(labels + l, count, columns));
      for (int64_t p = 0; p < probabilities_; ++p)
        ARROW_RETURN_NOT_OK(doubles_ ? add_numbers<arrow::DoubleBuilder>(probabilities + p, count, columns)
                                     : add_numbers<arrow::FloatBuilder>(probabilities + p, count, columns));
      rows_ += count;
      return writer_->WriteRecordBatch(*arrow::RecordBatch::Make(schema_, count, std::move(columns)));
    });
  }
  bool finish() override {
    return went_well(problem_, [&] {
      ARROW_RETURN_NOT_OK(begin());
      return writer_->Close();
    });
  }
  const char* written(size_t* bytes) override {
    given_ = stream_->take();
    *bytes = given_.size();
    return given_.data();
  }

 private:
  arrow::Status begin() {
    if (writer_) return arrow::Status::OK();
    ARROW_ASSIGN_OR_RAISE(writer_,
                          parquet::arrow::FileWriter::Open(*schema_, arrow::system_memory_pool(), stream_));
    // The mark by which a later run knows the file (--output in config/commands/trained_options.cpp).
    ARROW_RETURN_NOT_OK(
        writer_->AddKeyValueMetadata(arrow::key_value_metadata({"made_by"}, {"trifold score"})));
    return writer_->NewBufferedRowGroup();
  }
  static arrow::Status finish_column(arrow::ArrayBuilder& builder, arrow::ArrayVector& columns) {
    return builder.Finish(&columns.emplace_back());
  }
  static arrow::Status add_texts(const char* texts, const int64_t* places, int64_t count,
                                 arrow::ArrayVector& columns) {
    arrow::StringBuilder column(arrow::system_memory_pool());
    for (int64_t i = 0; i < count; ++i) {
      const auto bytes = static_cast<int32_t>(places[i + 1] - places[i]);
      ARROW_RETURN_NOT_OK(bytes == 0 ? column.AppendNull() : column.Append(texts + places[i], bytes));
    }
    return finish_column(column, columns);
  }
  // Every labels_-th of these.
  arrow::Status add_labels(const int8_t* labels, int64_t count, arrow::ArrayVector& columns) const {
    arrow::Int8Builder column(arrow::system_memory_pool());
    for (int64_t i = 0; i < count; ++i)
      ARROW_RETURN_NOT_OK(labels[i * labels_] < 0 ? column.AppendNull() : column.Append(labels[i * labels_]));
    return finish_column(column, columns);
  }
  // Every probabilities_-th of these.
  template <class Builder>
  arrow::Status add_numbers(const double* numbers, int64_t count, arrow::ArrayVector& columns) const {
    Builder column(arrow::system_memory_pool());
    using Number = typename Builder::value_type;
    for (int64_t i = 0; i < count; ++i) {
      const double number = numbers[i * probabilities_];
      ARROW_RETURN_NOT_OK(std::isnan(number) ? column.AppendNull()
                                             : column.Append(static_cast<Number>(number)));
    }
    return finish_column(column, columns);
  }

  int64_t texts_, labels_, probabilities_;
  bool doubles_;
  std::shared_ptr<TextStream> stream_;
  std::shared_ptr<arrow::Schema> schema_;
  std::unique_ptr<parquet::arrow::FileWriter> writer_;
  int64_t rows_ = 0;  // rows of the row group so far
  std::string problem_, given_;
};

}  // namespace

}  // namespace trifold

extern "C" {

trifold::ParquetModuleWriter* trifold_parquet_write(const char* const* names, int64_t texts, int64_t labels,
                                                    int64_t probabilities, bool doubles) {
  return std::make_unique<trifold::ArrowParquetWriter>(names, texts, labels, probabilities, doubles)
      .release();
}
}
