// StoredArray: an array of a data set in memory or in a mapped file, with a sample in each of its rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "graph/host/array.h"

namespace trifold::graph {

// The types that files may have; more than a graph has.
enum class NumberType : uint8_t { F64, F32, BF16, F16, I64, I32, I16, I8, U64, U32, U16, U8, Bool };

std::string_view name_of(NumberType type);
int64_t size_of(NumberType type);

struct StoredArray {
  std::string name;   // the input of the model that it is for
  std::string where;  // "train.npz: labels"
  NumberType type = NumberType::F32;
  std::vector<int64_t> dims;  // the first one counts samples
  // The elements, row-major and little-endian, perhaps not aligned; not owned.
  const std::byte* data = nullptr;
  // A stream of tokens, of one dim, which the shape of the model's input cuts into samples, beginning at token `shift`.
  bool is_stream = false;
  int64_t shift = 0;

  int64_t samples() const { return dims.empty() ? 0 : dims[0]; }
};

// "'labels' (train.npz: labels)", for messages.
std::string to_text(const StoredArray& array);

// Whether elements of a type can become elements of the other without loss, if their values allow it: integers may be
// too large, and only 0 and 1 are bools. Floats do not become narrower, nor integers.
bool converts(NumberType from, ElementType to);

// Converts samples `positions`, which exist, to the rows of `to`, whose shape is that of the array but for the first
// dim, and whose type it converts to. BadInput, naming array and sample, for an element that the type cannot represent.
void gather_samples(const StoredArray& from, std::span<const int64_t> positions, Array& to);

}  // namespace trifold::graph
