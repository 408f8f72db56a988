#include "fake_device/tf32.h"

#include <bit>
#include <tuple>

#include "fake_device/temporaries.h"

namespace trifold::test {

namespace {

// To nearest, ties to even.
float round_to_tf32(float x) {
  constexpr uint32_t kDropped = 13;  // of f32's 23 bits of mantissa
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t half = (uint32_t{1} << (kDropped - 1)) - 1 + (bits >> kDropped & 1);
  return std::bit_cast<float>((bits + half) >> kDropped << kDropped);
}

Tensor& matrix_of(Tensor& factor) { return factor; }
Tensor& matrix_of(Forms& factor) { return factor.rows; }

// A product, whose factors are its arguments A and B.
template <auto Entry, size_t A, size_t B>
struct InTf32;
template <class... Args, void (*OpTable::*Entry)(Stream&, Args...), size_t A, size_t B>
struct InTf32<Entry, A, B> {
  static void call(Stream& stream, Args... args) {
    std::tuple<std::decay_t<Args>...> all(args...);
    if (matrix_of(std::get<A>(all)).dtype != DType::F32) return (cpu_ops().*Entry)(stream, args...);
    Temporaries temporaries;
    const auto round = [&](auto& argument) {
      Tensor& factor = matrix_of(argument);
      factor = temporaries.changed(stream, factor, [](std::span<float> numbers) {
        for (float& x : numbers) x = round_to_tf32(x);
      });
    };
    round(std::get<A>(all));
    round(std::get<B>(all));
    std::apply([&](const auto&... each) { (cpu_ops().*Entry)(stream, each...); }, all);
    temporaries.release(stream);
  }
};

OpTable make_tf32() {
  OpTable table = cpu_ops();
  table.gemm = InTf32<&OpTable::gemm, 1, 3>::call;
  table.affine = InTf32<&OpTable::affine, 1, 2>::call;
  table.affine_add = InTf32<&OpTable::affine_add, 2, 3>::call;
  table.affine_gelu = InTf32<&OpTable::affine_gelu, 2, 3>::call;
  table.affine_backward_input = InTf32<&OpTable::affine_backward_input, 1, 2>::call;
  table.affine_backward_gelu = InTf32<&OpTable::affine_backward_gelu, 1, 2>::call;
  table.affine_backward_weight = InTf32<&OpTable::affine_backward_weight, 2, 3>::call;
  table.linear = InTf32<&OpTable::linear, 1, 2>::call;
  return table;
}

}  // namespace

const OpTable& tf32_ops() {
  static const OpTable kTable = make_tf32();
  return kTable;
}

}  // namespace trifold::test
