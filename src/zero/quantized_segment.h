// Fills segments of quantized parameters (ops/quantized.h) from values that are read piece by piece, so that the matrix
// is never in memory in another form.
#pragma once

#include "core/function_ref.h"
#include "data_parallel/flat_layout.h"
#include "ops/ops.h"

namespace trifold {

// Reads the values of a box of a parameter, in global coordinates, to `values` on the host: f32, with the box's extent.
using ReadBox = FunctionRef<void(const Rect& box, Tensor values)>;

// Writes a segment of a quantized parameter to `stored`, u8 [segment.count] on the device of `ops`; complete on return.
// Reads only the rows that the segment needs, each once. An element that is not finite is an Error that names the
// parameter.
void fill_quantized(const FlatLayout& layout, const FlatLayout::Segment& segment, Tensor stored, ReadBox read,
                    const OpTable& ops, Stream& stream);

}  // namespace trifold
