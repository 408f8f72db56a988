// Functions that the entries of the CUDA table share, in addition to ops/launch_support.h.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "core/stream.h"
#include "ops/cuda/enqueue.h"
#include "ops/cuda/kernels/kernels.h"
#include "ops/launch_support.h"
#include "ops/narrow.h"

namespace trifold::cuda {

// Scratch memory for a launch on a host stream. Emulated kernels have run when the launch returns, so it is reused.
void* host_workspace(size_t bytes);

// enqueue for launches that need `bytes` of scratch memory: calls launch(CudaStream, scratch).
template <class Launch>
void enqueue_with_scratch(Stream& stream, const char* op, size_t bytes, Launch launch) {
  stream.enqueue([queue = stream.queue(), op, bytes, launch = std::move(launch)]() mutable {
    if (queue == nullptr) return launch(nullptr, host_workspace(bytes));
    void* scratch = queue->workspace(bytes);
    launch(static_cast<CudaStream>(queue->native()), scratch);
    queue->check_launch(op);
  });
}

// The memory of a narrow tensor.
static_assert(kNarrowBlock == kScaleBlock);
inline NarrowMatrix narrow_matrix(const Tensor& tensor) {
  auto* codes = tensor.as<uint8_t>();
  const int64_t rows = tensor.row_count(), columns = factor_columns(tensor);
  return {codes, reinterpret_cast<float*>(codes + rows * columns), rows, columns};
}

// The memory of a matrix' narrow forms and sums.
inline NarrowForms narrow_forms(const Forms& forms) {
  NarrowForms y{.rows = rows_of(forms), .columns = columns_of(forms)};
  const int64_t elements = y.rows * y.columns;
  if (is_narrow(forms.rows)) {
    y.codes = forms.rows.as<uint8_t>();
    y.scales = reinterpret_cast<float*>(y.codes + elements);
  }
  if (is_present(forms.turned)) {
    y.turned_codes = forms.turned.as<uint8_t>();
    y.turned_scales = reinterpret_cast<float*>(y.turned_codes + elements);
  }
  if (is_present(forms.sums)) y.sums = forms.sums.as<float>();
  return y;
}

}  // namespace trifold::cuda
