#include "ops/cuda/fp8_blocks.h"

#include <cublasLt.h>

#include "core/cuda/cuda_device.h"
#include "core/cuda/cuda_queue.h"
#include "ops/composed.h"
#include "ops/contract.h"
#include "ops/cuda/entries_support.h"
#include "ops/cuda/fp8_product.h"
#include "ops/cuda/lt_description.h"
#include "ops/cuda/table.h"
#include "ops/cuda/workspace.h"

namespace trifold::cuda {

namespace {

// How a product reads a factor: as it is, or turned, so that it sums over the factor's rows.
enum class Read : uint8_t { Rows, Turned, Weight, TurnedWeight };

struct BlockFactor {
  Tensor tensor;
  Read read;

  bool turned() const { return read == Read::Turned || read == Read::TurnedWeight; }
  int64_t rows() const { return tensor.row_count(); }
  int64_t columns() const { return factor_columns(tensor); }
  int64_t extent() const { return turned() ? columns() : rows(); }
  int64_t depth() const { return turned() ? rows() : columns(); }
  size_t workspace() const { return fp8_block_factor_workspace(extent(), depth()); }
};

// The gradient of a bias: the column sums of dy's rounded elements, taken as dy is turned.
struct BiasSum {
  Tensor db;
  bool accumulate = false;
};

void expect_bf16(const char* op, const BlockFactor& left, const BlockFactor& right) {
  constexpr int64_t kExtentUnit = 16;  // cuBLASLt requires every extent to be a multiple of this
  for (const BlockFactor* factor : {&left, &right}) {
    check(is_narrow(factor->tensor) || factor->tensor.dtype == DType::BF16,
          "{}: products in 8 bits are of bf16, not of {}", op, name_of(factor->tensor.dtype));
    check(factor->extent() % kExtentUnit == 0 && factor->depth() % kExtentUnit == 0,
          "{}: a product in 8 bits needs extents that are multiples of {}, not [{}, {}] x [{}, {}]", op,
          kExtentUnit, left.extent(), left.depth(), right.extent(), right.depth());
  }
}

// Provides the codes and scales of a factor: in `memory`, unless its tensor is already what the product reads. The sums
// of blocks are as large as the scales of a turned factor.
void prepare(CudaStream stream, std::byte* memory, const BlockFactor& factor, const BiasSum& bias_sum,
             const void** at, NarrowFactor* narrow) {
  const int64_t rows = factor.rows(), columns = factor.columns();
  auto* codes = reinterpret_cast<uint8_t*>(memory);
  auto* scales = reinterpret_cast<float*>(memory + aligned_workspace(static_cast<size_t>(rows * columns)));
  const bool is_weight = factor.read == Read::Weight || factor.read == Read::TurnedWeight;
  if (is_weight) {
    narrow_weight(stream, codes, scales, factor.tensor.as<Bfloat16>(), rows, columns, factor.turned());
  } else if (factor.read == Read::Turned) {
    float* const sums = bias_sum.db.rank() > 0 ? scales + columns * scale_blocks(rows) : nullptr;
    if (is_narrow(factor.tensor))
      turn_rows(stream, codes, scales, sums, narrow_matrix(factor.tensor));
    else
      turn_rows(stream, codes, scales, sums, factor.tensor.as<Bfloat16>(), rows, columns);
    if (sums != nullptr)
      add_turned_sums(stream, bias_sum.db.as<float>(), sums, rows, columns, bias_sum.accumulate);
  } else if (is_narrow(factor.tensor)) {
    const NarrowMatrix made = narrow_matrix(factor.tensor);
    codes = made.codes;
    scales = made.scales;
  } else {
    narrow_rows(stream, {codes, scales, rows, columns}, factor.tensor.as<Bfloat16>());
  }
  *at = codes;
  *narrow = {cpu::Fp8::E4M3, scales, is_weight ? ScaleForm::Squares : ScaleForm::Rows};
}

// y [left's extent, right's extent] = left right^T + beta y, plus a bias for every column if there is one.
void block_product(const char* op, Stream& stream, Tensor y, const BlockFactor& left,
                   const BlockFactor& right, Tensor bias, double beta, const BiasSum& bias_sum = {}) {
  expect_bf16(op, left, right);
  if (y.elements() == 0) return;
  stream.enqueue([=, queue = stream.queue()] {
    auto& on = static_cast<CudaQueue&>(*queue);
    std::byte* memory = factor_memory(on, right.workspace() + left.workspace());
    const auto native = static_cast<CudaStream>(on.native());
    Product asked = narrow_product(y, bias, right.extent(), left.extent(), left.depth(), beta);
    prepare(native, memory, right, {}, &asked.a, &asked.narrow_a);
    prepare(native, memory + right.workspace(), left, bias_sum, &asked.b, &asked.narrow_b);
    on.check_launch(op);
    run_narrow_product(on, op, asked, y, bias);
  });
}

void affine_in_blocks(Stream& stream, Tensor y, Tensor x, Tensor w, Tensor bias) {
  block_product("affine", stream, y, {x, Read::Rows}, {w, Read::Weight}, bias, 0);
}

void affine_backward_input_in_blocks(Stream& stream, Tensor dx, Tensor dy, Tensor w, double beta) {
  block_product("affine_backward_input", stream, dx, {dy, Read::Rows}, {w, Read::TurnedWeight}, {}, beta);
}

void affine_backward_weight_in_blocks(Stream& stream, Tensor dw, Tensor db, Tensor dy, Tensor x,
                                      bool accumulate) {
  block_product("affine_backward_weight", stream, dw, {dy, Read::Turned}, {x, Read::Turned}, {},
                accumulate ? 1 : 0, {db, accumulate});
}

const OpTable& raw_fp8_blocks_ops() {
  static const OpTable kTable = [] {
    OpTable ops = raw_ops<F32Products::Exact>();
    ops.name = "cuda, fp8 in blocks";
    ops.affine = affine_in_blocks;
    ops.affine_backward_input = affine_backward_input_in_blocks;
    ops.affine_backward_weight = affine_backward_weight_in_blocks;
    add_composed_epilogues<raw_fp8_blocks_ops>(ops);
    return ops;
  }();
  return kTable;
}

}  // namespace

OpTable make_fp8_blocks_table(CudaDevice* device) {
  const Properties& found = device->properties();
  if (found.major != 9)
    bad_input(
        "--fp8-recipe blockwise: {} has compute capability {}.{}, but cuBLASLt multiplies with scales of blocks on "
        "9.0 (Hopper) alone: give --fp8-recipe tensorwise",
        device->name(), found.major, found.minor);
  constexpr size_t kFirstVersion = 120900;
  if (const size_t version = blas::installed_lt().version(); version < kFirstVersion)
    bad_input(
        "--fp8-recipe blockwise: cuBLASLt {}.{} is installed, but scales of blocks need 12.9 or newer: install that, or "
        "give --fp8-recipe tensorwise",
        version / 10000, version / 100 % 100);
  OpTable ops = with_contract<raw_fp8_blocks_ops>();
  ops.device = device;
  return ops;
}

}  // namespace trifold::cuda
