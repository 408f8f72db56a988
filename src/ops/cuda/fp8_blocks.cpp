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
  NarrowForms made;
  const Bfloat16* wide;  // null: the rows are narrow, or absent
  Read read;

  bool turned() const { return read == Read::Turned || read == Read::TurnedWeight; }
  int64_t extent() const { return turned() ? made.columns : made.rows; }
  int64_t depth() const { return turned() ? made.rows : made.columns; }
  // Whether a form is what the product reads.
  bool is_made() const {
    return (read == Read::Turned && made.turned_codes != nullptr) ||
           (read == Read::Rows && made.codes != nullptr);
  }
  size_t workspace() const { return is_made() ? 0 : fp8_block_factor_workspace(extent(), depth()); }
};

BlockFactor factor_of(const char* op, const Forms& forms, Read read) {
  const bool is_wide = is_present(forms.rows) && !is_narrow(forms.rows);
  if (is_wide)
    check(forms.rows.dtype == DType::BF16, "{}: products in 8 bits are of bf16, not of {}", op,
          name_of(forms.rows.dtype));
  return {narrow_forms(forms), is_wide ? forms.rows.as<Bfloat16>() : nullptr, read};
}

// The gradient of a bias: a form of dy has the sums, or the pass that turns dy takes them.
struct BiasSum {
  float* db = nullptr;  // null: none
  bool accumulate = false;
};

void expect_units(const char* op, const BlockFactor& left, const BlockFactor& right) {
  constexpr int64_t kExtentUnit = 16;  // cuBLASLt requires every extent to be a multiple of this
  for (const BlockFactor* factor : {&left, &right})
    check(factor->extent() % kExtentUnit == 0 && factor->depth() % kExtentUnit == 0,
          "{}: a product in 8 bits needs extents that are multiples of {}, not [{}, {}] x [{}, {}]", op,
          kExtentUnit, left.extent(), left.depth(), right.extent(), right.depth());
}

// Provides the codes and scales of a factor: in `memory`, unless a form is already what the product reads. The sums
// of blocks are as large as the scales of a turned factor.
void prepare(CudaStream stream, std::byte* memory, const BlockFactor& factor, const BiasSum& bias_sum,
             const void** at, NarrowFactor* narrow) {
  const NarrowForms& made = factor.made;
  const int64_t rows = made.rows, columns = made.columns;
  const bool is_weight = factor.read == Read::Weight || factor.read == Read::TurnedWeight;
  auto* codes = reinterpret_cast<uint8_t*>(memory);
  auto* scales = reinterpret_cast<float*>(memory + aligned_workspace(static_cast<size_t>(rows * columns)));
  float* sums = made.sums;
  if (is_weight) {
    narrow_weight(stream, codes, scales, factor.wide, rows, columns, factor.turned());
  } else if (factor.is_made()) {
    codes = factor.turned() ? made.turned_codes : made.codes;
    scales = factor.turned() ? made.turned_scales : made.scales;
  } else if (factor.read == Read::Turned) {
    NarrowForms y{.rows = rows, .columns = columns, .turned_codes = codes, .turned_scales = scales};
    if (bias_sum.db != nullptr && sums == nullptr) sums = y.sums = scales + columns * scale_blocks(rows);
    if (factor.wide == nullptr)
      turn_rows(stream, y, {made.codes, made.scales, rows, columns});
    else
      write_forms(stream, y, factor.wide);
  } else {
    write_forms(stream, {.rows = rows, .columns = columns, .codes = codes, .scales = scales}, factor.wide);
  }
  if (bias_sum.db != nullptr) add_turned_sums(stream, bias_sum.db, sums, rows, columns, bias_sum.accumulate);
  *at = codes;
  *narrow = {cpu::Fp8::E4M3, scales, is_weight ? ScaleForm::Squares : ScaleForm::Rows};
}

// What is added to a product: beta y, a bias for every column, and a residual of y's shape, if there are any.
struct Addends {
  Tensor bias = {};
  const Bfloat16* residual = nullptr;
  double beta = 0;
};

// y [left's extent, right's extent] = left right^T + addends.
void block_product(const char* op, Stream& stream, Tensor y, const BlockFactor& left,
                   const BlockFactor& right, const Addends& addends, const BiasSum& bias_sum = {}) {
  expect_units(op, left, right);
  if (y.elements() == 0) return;
  stream.enqueue([=, queue = stream.queue()] {
    auto& on = static_cast<CudaQueue&>(*queue);
    std::byte* memory = factor_memory(on, right.workspace() + left.workspace());
    const auto native = static_cast<CudaStream>(on.native());
    Product asked =
        narrow_product(y, addends.bias, right.extent(), left.extent(), left.depth(), addends.beta);
    prepare(native, memory, right, {}, &asked.a, &asked.narrow_a);
    prepare(native, memory + right.workspace(), left, bias_sum, &asked.b, &asked.narrow_b);
    on.check_launch(op);
    if (addends.residual == nullptr) return run_narrow_product(on, op, asked, y, addends.bias);
    // The residual is cuBLASLt's matrix c, which is read as the result is written.
    Product with_residual = asked;
    with_residual.c = addends.residual;
    with_residual.beta = 1;
    if (try_product(on, with_residual)) return;
    run_narrow_product(on, op, asked, y, addends.bias);
    add(native, y.as<Bfloat16>(), addends.residual, y.as<Bfloat16>(), y.elements());
    on.check_launch(op);
  });
}

void affine_in_blocks(Stream& stream, Tensor y, Tensor x, Tensor w, Tensor bias) {
  const char* const op = "affine";
  block_product(op, stream, y, factor_of(op, x, Read::Rows), factor_of(op, w, Read::Weight), {.bias = bias});
}

void affine_add_in_blocks(Stream& stream, Tensor y, Tensor residual, Tensor x, Tensor w, Tensor bias) {
  const char* const op = "affine_add";
  block_product(op, stream, y, factor_of(op, x, Read::Rows), factor_of(op, w, Read::Weight),
                {.bias = bias, .residual = residual.as<Bfloat16>()});
}

void affine_backward_input_in_blocks(Stream& stream, Tensor dx, Tensor dy, Tensor w, double beta) {
  const char* const op = "affine_backward_input";
  block_product(op, stream, dx, factor_of(op, dy, Read::Rows), factor_of(op, w, Read::TurnedWeight),
                {.beta = beta});
}

void affine_backward_weight_in_blocks(Stream& stream, Tensor dw, Tensor db, const Forms& dy, const Forms& x,
                                      bool accumulate) {
  const char* const op = "affine_backward_weight";
  block_product(op, stream, dw, factor_of(op, dy, Read::Turned), factor_of(op, x, Read::Turned),
                {.beta = accumulate ? 1.0 : 0.0}, {is_present(db) ? db.as<float>() : nullptr, accumulate});
}

const OpTable& raw_fp8_blocks_ops() {
  static const OpTable kTable = [] {
    OpTable ops = raw_ops<F32Products::Exact>();
    ops.name = "cuda, fp8 in blocks";
    ops.affine = affine_in_blocks;
    ops.affine_backward_input = affine_backward_input_in_blocks;
    ops.affine_backward_weight = affine_backward_weight_in_blocks;
    add_composed_epilogues<raw_fp8_blocks_ops>(ops);
    ops.affine_add = affine_add_in_blocks;
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
