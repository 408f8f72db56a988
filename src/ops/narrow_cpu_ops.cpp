// The processor's table with narrow factors: operands are rounded in bf16, which represents every code times its scale,
// and multiplied by the bf16 products of cpu_ops().
#include <algorithm>
#include <utility>
#include <vector>

#include "ops/activations.h"
#include "ops/composed.h"
#include "ops/contract.h"
#include "ops/launch_support.h"
#include "ops/narrow.h"
#include "ops/round_blocks.h"

namespace trifold {

namespace {

const OpTable& raw_narrow_ops();

// Tensors of one operation, which live until the stream has executed it. A Dry stream does not need their memory.
class NarrowTemporaries {
 public:
  explicit NarrowTemporaries(Stream& stream) : stream_(stream) {}
  ~NarrowTemporaries() {
    stream_.run([held = std::move(held_)] {});
  }
  NarrowTemporaries(const NarrowTemporaries&) = delete;
  NarrowTemporaries& operator=(const NarrowTemporaries&) = delete;

  Tensor take(int64_t rows, int64_t columns) {
    const Shape shape{rows, columns};
    if (stream_.mode() == Stream::Mode::Dry) return {nullptr, DType::BF16, shape};
    held_.emplace_back(static_cast<size_t>(shape.elements()) * size_of(DType::BF16));
    return held_.back().tensor(DType::BF16, shape);
  }

 private:
  Stream& stream_;
  std::vector<Buffer> held_;
};

// y = x rounded with a scale for each `block`; y may be x.
void round_matrix(Stream& stream, Tensor y, Tensor x, const cpu::ScaledBlock& block) {
  const int64_t rows = x.row_count(), columns = x.last_dim();
  const auto band = [=, out = y.as<Bfloat16>(), in = x.as<Bfloat16>()](int64_t begin, int64_t end) {
    for (int64_t r = begin * block.rows; r < std::min(end * block.rows, rows); r += block.rows) {
      if (block.columns == 1) {
        cpu::round_columns(out + r * columns, in + r * columns, std::min(block.rows, rows - r), columns,
                           columns);
        continue;
      }
      for (int64_t c = 0; c < columns; c += block.columns)
        cpu::round_block(out + r * columns + c, in + r * columns + c,
                         {std::min(block.rows, rows - r), std::min(block.columns, columns - c)}, columns);
    }
  };
  cpu::over_elements(stream, cpu::parts(rows, block.rows),
                     cpu::row_grain(columns * block.rows, cpu::kCheapGrain), band);
}

// x or dy as products read it: rounded with a scale for 128 elements of a row.
Tensor in_rows(NarrowTemporaries& temporaries, Stream& stream, Tensor factor) {
  const int64_t rows = factor.row_count(), columns = factor_columns(factor);
  const Tensor y = temporaries.take(rows, columns);
  if (!is_narrow(factor)) {
    round_matrix(stream, y, factor, {1, kScaleBlock});
    return y;
  }
  const auto* codes = factor.as<uint8_t>();
  cpu::over_rows(stream, rows, columns, cpu::kCheapGrain,
                 [=, out = y.as<Bfloat16>()](int64_t begin, int64_t end) {
                   const auto* scales = reinterpret_cast<const float*>(codes + rows * columns);
                   cpu::widen_rows(out, codes, scales, rows, columns, begin, end);
                 });
  return y;
}

// x or dy as gradients of weights read it: then with a scale for 128 elements of a column.
Tensor turned(NarrowTemporaries& temporaries, Stream& stream, const Forms& factor) {
  if (!is_present(factor.turned)) {
    const Tensor y = in_rows(temporaries, stream, factor.rows);
    round_matrix(stream, y, y, {kScaleBlock, 1});
    return y;
  }
  const int64_t rows = rows_of(factor), columns = columns_of(factor);
  const Tensor y = temporaries.take(rows, columns);
  const auto* codes = factor.turned.as<uint8_t>();
  cpu::over_rows(stream, rows, columns, cpu::kCheapGrain,
                 [=, out = y.as<Bfloat16>()](int64_t begin, int64_t end) {
                   const auto* scales = reinterpret_cast<const float*>(codes + rows * columns);
                   cpu::widen_turned(out, codes, scales, rows, columns, begin, end);
                 });
  return y;
}

Tensor weight_of(NarrowTemporaries& temporaries, Stream& stream, Tensor w) {
  const Tensor y = temporaries.take(w.row_count(), w.last_dim());
  round_matrix(stream, y, w, {kScaleBlock, kScaleBlock});
  return y;
}

void affine(Stream& stream, Tensor y, Tensor x, Tensor w, Tensor bias) {
  NarrowTemporaries temporaries(stream);
  cpu_ops().affine(stream, y, in_rows(temporaries, stream, x), weight_of(temporaries, stream, w), bias);
}

void affine_backward_input(Stream& stream, Tensor dx, Tensor dy, Tensor w, double beta) {
  NarrowTemporaries temporaries(stream);
  cpu_ops().affine_backward_input(stream, dx, in_rows(temporaries, stream, dy),
                                  weight_of(temporaries, stream, w), beta);
}

// The sums of a bias' gradient are of the elements before they were rounded, where a form has these.
void affine_backward_weight(Stream& stream, Tensor dw, Tensor db, const Forms& dy, const Forms& x,
                            bool accumulate) {
  NarrowTemporaries temporaries(stream);
  cpu_ops().affine_backward_weight(stream, dw, {}, turned(temporaries, stream, dy),
                                   turned(temporaries, stream, x), accumulate);
  if (db.rank() == 0) return;
  const Tensor summed = is_present(dy.sums)  ? dy.sums
                        : is_narrow(dy.rows) ? in_rows(temporaries, stream, dy.rows)
                                             : dy.rows;
  cpu_ops().column_sum(stream, db, summed, accumulate);
}

// An entry of cpu_ops() whose result may have narrow forms.
template <auto Entry>
struct WithNarrowResult;
template <class Result, class... Args, void (*OpTable::*Entry)(Stream&, Result, Args...)>
struct WithNarrowResult<Entry> {
  static void call(Stream& stream, Result result, Args... args) {
    const Forms y = result;
    if (y.are_wide()) return (cpu_ops().*Entry)(stream, result, args...);
    NarrowTemporaries temporaries(stream);
    const Tensor wide = temporaries.take(rows_of(y), columns_of(y));
    (cpu_ops().*Entry)(stream, wide, args...);
    cpu_ops().write_forms(stream, y, wide);
  }
};
template <auto Entry>
void add_narrow_result(OpTable& ops) {
  ops.*Entry = WithNarrowResult<Entry>::call;
}

OpTable make_raw_narrow_ops() {
  OpTable ops = cpu_ops();
  ops.name = "cpu, fp8 emulated";
  ops.affine = affine;
  ops.affine_backward_input = affine_backward_input;
  ops.affine_backward_weight = affine_backward_weight;
  add_composed_epilogues<raw_narrow_ops>(ops);
  add_narrow_result<&OpTable::layer_norm>(ops);
  add_narrow_result<&OpTable::rms_norm>(ops);
  add_narrow_result<&OpTable::gated>(ops);
  add_narrow_result<&OpTable::gated_backward>(ops);
  for_each_activation([&](auto number) {
    add_narrow_result<kActivations[decltype(number)::value].forward>(ops);
    add_narrow_result<kActivations[decltype(number)::value].backward>(ops);
  });
  return ops;
}

const OpTable& raw_narrow_ops() {
  static const OpTable kTable = make_raw_narrow_ops();
  return kTable;
}

}  // namespace

const OpTable& narrow_cpu_ops() {
  static const OpTable kTable = with_contract<raw_narrow_ops>();
  return kTable;
}

}  // namespace trifold
