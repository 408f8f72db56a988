// Quantized matrices: frozen weights in 8 or 4 bits, as memory holds them.
//
// A matrix [rows, columns] is cut into blocks of kQuantizedBlock elements, each with a scale; the last block of a row or
// column may be shorter. An element is scale * value(code):
//
//   Int8   code -127 to 127, its own value;   scale = the largest magnitude of the block / 127
//   Nf4    4 bits, one of 16 values in [-1, 1], quantiles of a normal distribution with 0 among them (Dettmers et al.,
//          "QLoRA", arXiv 2305.14314, appendix E);   scale = the largest magnitude
//
// A scale is a bf16 number, rounded up, so that no value is outside the codes; codes are the nearest to x / scale, where
// scale is the rounded one. That costs 16 bits for 64 elements: 8.25 or 4.25 bits for an element. An element is an f32
// number, whatever type computes with it.
//
// Blocks lie along rows, or along columns if the columns of the matrix are cut over ranks: always along the dim that is
// not cut. A block is thus whole on every rank that has a part of it, so an element's value does not depend on the mesh.
//
// Storage, as bytes: the codes, row by row (two of 4 bits in a byte, the lower half first; a row begins with a new byte),
// padding to a multiple of 16, and the scales in the order of their blocks' first elements.
#pragma once

#include <cstdint>
#include <span>

namespace trifold {

enum class QuantizedType : uint8_t { Int8, Nf4 };

constexpr int64_t kQuantizedBlock = 64;

struct QuantizedForm {
  QuantizedType type = QuantizedType::Nf4;
  int64_t rows = 0, columns = 0;  // part of this rank
  // Rows of one matrix: rows / matrix_rows matrices follow each other. Only blocks along columns ask for it, which do not
  // cross matrices.
  int64_t matrix_rows = 0;
  bool along_columns = false;  // a block has elements of one column instead of one row

  bool operator==(const QuantizedForm&) const = default;

  int64_t row_bytes() const { return type == QuantizedType::Nf4 ? (columns + 1) / 2 : columns; }
  int64_t code_bytes() const { return rows * row_bytes(); }
  // The byte at which scales begin.
  int64_t scales_at() const { return (code_bytes() + 15) / 16 * 16; }
  int64_t row_blocks() const { return (columns + kQuantizedBlock - 1) / kQuantizedBlock; }
  int64_t bands_of_matrix() const { return (matrix_rows + kQuantizedBlock - 1) / kQuantizedBlock; }
  int64_t scales() const {
    return along_columns ? rows / matrix_rows * bands_of_matrix() * columns : rows * row_blocks();
  }
  int64_t bytes() const { return scales_at() + 2 * scales(); }
  // The index of the scale of the first element of a row; the others follow, one for each column or block of columns.
  int64_t first_scale(int64_t row) const {
    if (!along_columns) return row * row_blocks();
    return (row / matrix_rows * bands_of_matrix() + row % matrix_rows / kQuantizedBlock) * columns;
  }
  // The end of the band of rows that begins at `row`: the rows whose blocks are whole together. Rows of a band have codes
  // and scales that follow each other, and can be quantized without the other rows.
  int64_t band_end(int64_t row) const {
    if (!along_columns) return row + kQuantizedBlock < rows ? row + kQuantizedBlock : rows;
    const int64_t matrix_end = (row / matrix_rows + 1) * matrix_rows;
    return row + kQuantizedBlock < matrix_end ? row + kQuantizedBlock : matrix_end;
  }
};

// The values of the 16 codes of Nf4.
std::span<const float, 16> nf4_values();

// Quantizes rows [first, first + the rows of one band) on the host: x [band rows, columns] row by row, to their codes
// [band rows * row_bytes] and scales, as bf16 bits. Elements that are not finite are an Error.
void quantize_band(const QuantizedForm& form, int64_t first, std::span<const float> x,
                   std::span<uint8_t> codes, std::span<uint16_t> scales);
// The inverse: the values of a band, on the host, as OpTable::dequantize computes them.
void dequantize_band(const QuantizedForm& form, int64_t first, std::span<const uint8_t> codes,
                     std::span<const uint16_t> scales, std::span<float> x);

}  // namespace trifold
