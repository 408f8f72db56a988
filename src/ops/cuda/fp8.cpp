#include "ops/cuda/fp8.h"

#include <cstddef>

#include "core/cuda/cuda_device.h"
#include "core/cuda/cuda_queue.h"
#include "ops/composed.h"
#include "ops/contract.h"
#include "ops/cuda/fp8_product.h"
#include "ops/cuda/kernels/kernels.h"
#include "ops/cuda/lt_product.h"
#include "ops/cuda/table.h"
#include "ops/cuda/workspace.h"

namespace trifold::cuda {

namespace {

using cpu::Fp8;

constexpr int64_t kUnit = 16;  // cuBLASLt requires every extent to be a multiple of this

// One factor of a product, [extent, depth]. Products sum over contiguous elements; if they are not
// contiguous, the factor is transposed as it is rounded.
struct Factor {
  Tensor tensor;
  bool transposed;
  Fp8 format;

  int64_t depth() const { return transposed ? tensor.row_count() : tensor.last_dim(); }
  int64_t extent() const { return transposed ? tensor.last_dim() : tensor.row_count(); }
};

void expect_units(const char* op, const Factor& left, const Factor& right) {
  for (const Factor* factor : {&left, &right}) {
    check(factor->tensor.dtype == DType::BF16, "{}: products in 8 bits are of bf16, not of {}", op,
          name_of(factor->tensor.dtype));
    check(factor->extent() % kUnit == 0 && factor->depth() % kUnit == 0,
          "{}: a product in 8 bits needs extents that are multiples of {}, not [{}, {}] x [{}, {}]", op,
          kUnit, left.extent(), left.depth(), right.depth(), right.extent());
  }
}

static_assert(offsetof(Fp8Scale, from) % kScaleAlignment == 0 && alignof(Fp8Scale) % kScaleAlignment == 0);

// Rounds a factor into `memory`.
void narrow(CudaStream stream, std::byte* memory, const Factor& factor, const void** at,
            NarrowFactor* narrowed) {
  auto* scale = reinterpret_cast<Fp8Scale*>(memory);
  auto* codes = reinterpret_cast<uint8_t*>(memory + kWorkspaceAlignment + kFp8Scratch);
  to_fp8(stream, memory + kWorkspaceAlignment, codes, scale, factor.tensor.as<Bfloat16>(),
         factor.tensor.row_count(), factor.tensor.last_dim(), factor.transposed, factor.format);
  *at = codes;
  *narrowed = {factor.format, &scale->from};
}

// y [left's extent, right's extent] = left right^T + beta y, plus a bias for every column if there is one.
void product(const char* op, Stream& stream, Tensor y, const Factor& left, const Factor& right, Tensor bias,
             double beta) {
  expect_units(op, left, right);
  if (y.elements() == 0) return;
  stream.enqueue([=, queue = stream.queue()] {
    auto& on = static_cast<CudaQueue&>(*queue);
    const size_t of_right = fp8_factor_workspace(right.tensor.elements());
    std::byte* memory = factor_memory(on, of_right + fp8_factor_workspace(left.tensor.elements()));
    const auto native = static_cast<CudaStream>(on.native());
    Product asked = narrow_product(y, bias, right.extent(), left.extent(), left.depth(), beta);
    narrow(native, memory, right, &asked.a, &asked.narrow_a);
    narrow(native, memory + of_right, left, &asked.b, &asked.narrow_b);
    on.check_launch(op);
    run_narrow_product(on, op, asked, y, bias);
  });
}

void affine(Stream& stream, Tensor y, Tensor x, Tensor w, Tensor bias) {
  product("affine", stream, y, {x, false, Fp8::E4M3}, {w, false, Fp8::E4M3}, bias, 0);
}

void affine_backward_input(Stream& stream, Tensor dx, Tensor dy, Tensor w, double beta) {
  product("affine_backward_input", stream, dx, {dy, false, Fp8::E5M2}, {w, true, Fp8::E4M3}, {}, beta);
}

void affine_backward_weight(Stream& stream, Tensor dw, Tensor db, const Forms& dy, const Forms& x,
                            bool accumulate) {
  product("affine_backward_weight", stream, dw, {dy.rows, true, Fp8::E5M2}, {x.rows, true, Fp8::E4M3}, {},
          accumulate ? 1 : 0);
  if (db.rank() > 0) raw_ops<F32Products::Exact>().column_sum(stream, db, dy.rows, accumulate);
}

const OpTable& raw_fp8_ops() {
  static const OpTable kTable = [] {
    OpTable ops = raw_ops<F32Products::Exact>();
    ops.name = "cuda, fp8";
    ops.affine = affine;
    ops.affine_backward_input = affine_backward_input;
    ops.affine_backward_weight = affine_backward_weight;
    add_composed_epilogues<raw_fp8_ops>(ops);
    return ops;
  }();
  return kTable;
}

}  // namespace

OpTable make_fp8_table(CudaDevice* device) {
  const Properties& found = device->properties();
  if (found.major * 10 + found.minor < 89)
    bad_input(
        "--fp8: {} has compute capability {}.{}, but products in 8 bits need at least 8.9 (Ada, Hopper): "
        "leave the option out",
        device->name(), found.major, found.minor);
  OpTable ops = with_contract<raw_fp8_ops>();
  ops.device = device;
  return ops;
}

}  // namespace trifold::cuda
