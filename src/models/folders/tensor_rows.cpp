#include "models/folders/tensor_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>

#include "checkpoint/convert_floats.h"
#include "models/folders/mxfp4.h"
#include "models/folders/transpose.h"

namespace trifold {

namespace {

void grow(Buffer& buffer, int64_t bytes) {
  if (buffer.bytes() < static_cast<size_t>(bytes)) buffer = Buffer(static_cast<size_t>(bytes));
}

// The rows of a tensor from the first to the last of a run.
int64_t spanned(const TensorRows::Run& run) { return (run.count - 1) * run.stride + 1; }

void read_bytes(const SafetensorsModel::Entry& from, int64_t offset, std::byte* to, int64_t bytes) {
  from.file->read(*from.tensor, offset, to, static_cast<size_t>(bytes));
}

std::string shape_problem(const SafeTensor& tensor, const std::vector<int64_t>& shape) {
  return fmt::format("tensor {} is [{}]; config.json makes it [{}]", tensor.name,
                     fmt::join(tensor.shape, ", "), fmt::join(shape, ", "));
}

std::vector<std::string> problems_of_mxfp4(const FolderTensor& source, std::vector<int64_t> shape) {
  std::vector<std::string> problems;
  if (shape.back() % kMxfp4Block != 0)
    return {fmt::format("tensor {} would have rows of {} elements, but MXFP4 has whole blocks of {}",
                        source.values.tensor->name, shape.back(), kMxfp4Block)};
  shape.back() /= kMxfp4Block;
  std::vector<int64_t> blocks = shape;
  blocks.push_back(kMxfp4BlockBytes);
  for (const auto& [part, wanted] :
       {std::pair(source.values.tensor, blocks), {source.scales.tensor, shape}}) {
    if (part->shape != wanted) problems.push_back(shape_problem(*part, wanted));
    if (part->dtype != "U8")
      problems.push_back(
          fmt::format("tensor {} is of type {}; MXFP4 has bytes, U8", part->name, part->dtype));
  }
  return problems;
}

}  // namespace

DType FolderTensor::dtype() const {
  return mxfp4() ? DType::BF16 : *dtype_of_safetensors(values.tensor->dtype);
}

std::vector<std::string> problems_of(const FolderTensor& source, const std::vector<int64_t>& shape) {
  if (source.mxfp4()) return problems_of_mxfp4(source, shape);
  const SafeTensor& tensor = *source.values.tensor;
  std::vector<std::string> problems;
  if (tensor.shape != shape) problems.push_back(shape_problem(tensor, shape));
  const std::optional<DType> dtype = dtype_of_safetensors(tensor.dtype);
  if (!dtype || !is_float(*dtype))
    problems.push_back(fmt::format("tensor {} is of type {}; F32, F64, BF16 and F16 are supported",
                                   tensor.name, tensor.dtype));
  return problems;
}

struct TensorRowsReader::Place {
  const TensorRows& part;
  const FolderTensor& source;
  Columns columns;
  int64_t all_columns, rows, size;  // rows: of this call; size: bytes of an element
};

const std::byte* TensorRowsReader::read(const WeightMap& map, const TensorRows& part,
                                        const FolderTensor& source, int64_t begin, int64_t end,
                                        Columns columns) {
  const Place place{part,          source,      columns,
                    map.columns(), end - begin, static_cast<int64_t>(size_of(source.dtype()))};
  const int64_t bytes = place.rows * columns.count * place.size;
  grow(rows_, bytes);
  for (int64_t row = begin; row < end;) {
    TensorRows::Run run = part.run_at(row);
    run.count = std::min(run.count, end - row);
    if (source.mxfp4())
      read_quantised(place, run, row - begin);
    else if (map.transposed)
      read_columns(place, run, row - begin);
    else
      read_rows(place, run, row - begin);
    row += run.count;
  }
  if (!map.transposed || source.mxfp4()) return rows_.data();
  grow(turned_, bytes);
  transpose(turned_.data(), rows_.data(), columns.count, place.rows, static_cast<size_t>(place.size));
  return turned_.data();
}

void TensorRowsReader::read_rows(const Place& place, const TensorRows::Run& run, int64_t at) {
  const int64_t count = place.columns.count, row = count * place.size;
  std::byte* const to = rows_.data() + at * row;
  const auto offset = [&](int64_t i) {
    return ((run.first + i) * place.all_columns + place.columns.first) * place.size;
  };
  if (count < place.all_columns) {
    for (int64_t i = 0; i < run.count; ++i)
      read_bytes(place.source.values, offset(i * run.stride), to + i * row, row);
    return;
  }
  if (run.stride == 1) return read_bytes(place.source.values, offset(0), to, run.count * row);
  grow(span_, spanned(run) * row);
  read_bytes(place.source.values, offset(0), span_.data(), spanned(run) * row);
  for (int64_t i = 0; i < run.count; ++i)
    std::memcpy(to + i * row, span_.data() + i * run.stride * row, static_cast<size_t>(row));
}

// Reads a run of our rows, which are columns of the file's matrix, to row `at` of the rows in rows_, which is
// [columns, rows].
void TensorRowsReader::read_columns(const Place& place, const TensorRows::Run& run, int64_t at) {
  const int64_t all = place.part.matrix_rows(), size = place.size;
  const int64_t first = run.first % all, matrix = (run.first - first) * place.all_columns * size;
  const auto offset = [&](int64_t column) {
    return matrix + ((place.columns.first + column) * all + first) * size;
  };
  if (run.count == all && run.count == place.rows)
    return read_bytes(place.source.values, offset(0), rows_.data(), all * place.columns.count * size);
  grow(span_, spanned(run) * size);
  for (int64_t column = 0; column < place.columns.count; ++column) {
    std::byte* const to = rows_.data() + (column * place.rows + at) * size;
    if (run.stride == 1) {
      read_bytes(place.source.values, offset(column), to, run.count * size);
      continue;
    }
    read_bytes(place.source.values, offset(column), span_.data(), spanned(run) * size);
    for (int64_t i = 0; i < run.count; ++i)
      std::memcpy(to + i * size, span_.data() + i * run.stride * size, static_cast<size_t>(size));
  }
}

// Reads whole rows, because a block of values may lie across the limits of the columns.
void TensorRowsReader::read_quantised(const Place& place, const TensorRows::Run& run, int64_t at) {
  const int64_t scales = place.all_columns / kMxfp4Block, blocks = scales * kMxfp4BlockBytes;
  const int64_t rows = spanned(run);
  grow(span_, rows * (blocks + scales));
  grow(turned_, place.all_columns * place.size);
  std::byte* const of_scales = span_.data() + rows * blocks;
  read_bytes(place.source.values, run.first * blocks, span_.data(), rows * blocks);
  read_bytes(place.source.scales, run.first * scales, of_scales, rows * scales);
  auto* const whole = reinterpret_cast<Bfloat16*>(turned_.data());
  std::byte* to = rows_.data() + at * place.columns.count * place.size;
  const auto bytes = static_cast<size_t>(place.columns.count * place.size);
  for (int64_t i = 0; i < run.count; ++i, to += bytes) {
    const int64_t row = i * run.stride;
    const auto part = [&](const std::byte* from, int64_t size) {
      return std::span(from + row * size, static_cast<size_t>(size));
    };
    if (!dequantise_mxfp4({whole, static_cast<size_t>(place.all_columns)}, part(span_.data(), blocks),
                          part(of_scales, scales)))
      bad_input(
          "{}: tensor {}, row {}: a block has values that are not finite in bf16: its scale is too large",
          place.source.scales.file->path().string(), place.source.scales.tensor->name, run.first + row);
    std::memcpy(to, whole + place.columns.first, bytes);
  }
}

}  // namespace trifold
