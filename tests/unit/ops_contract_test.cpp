#include "ops/contract.h"

#include <functional>
#include <set>
#include <string>

#include "unit/ops_support.h"

namespace trifold::ops_test {
namespace {

// The processor's table without one of its operations.
const OpTable& incomplete() {
  static const OpTable kTable = [] {
    OpTable ops = cpu_ops();
    ops.name = "incomplete";
    ops.convert = nullptr;  // the third of OpTable
    return ops;
  }();
  return kTable;
}

TEST(Contract, TablesThatLackAnOperationAreRefused) {
  EXPECT_EQ(error_of([] { with_contract<incomplete>(); }),
            "the table incomplete has no entry for operation 4 of OpTable");
  EXPECT_EQ(error_of([] { with_contract<cpu_ops>(); }), "");
}

// With the size that ops.h compares, no entry is missing in the list.
TEST(Contract, EveryOperationIsInTheListOnce) {
  OpTable table{};
  std::set<const void*> entries;
  Operations::for_each([&](auto operation) { entries.insert(&(table.*decltype(operation)::kEntry)); });
  EXPECT_EQ(entries.size(), Operations::kCount);
}

// The checks come before the entry, and an entry sees its arguments as they were given.
int calls_of_scale = 0;
const OpTable& with_own_scale() {
  static const OpTable kTable = [] {
    OpTable ops = cpu_ops();
    ops.scale = [](Stream&, Tensor y, const Factor& a) {
      calls_of_scale += y.elements() == 3 && a.constant == 2;
    };
    return ops;
  }();
  return kTable;
}

TEST(Contract, IsCheckedBeforeTheEntry) {
  const OpTable ops = with_contract<with_own_scale>();
  Machine machine(1);
  calls_of_scale = 0;
  EXPECT_EQ(error_of([&] { ops.scale(machine.stream, Host(DType::I32, {3}), 2); }),
            "scale: y is i32, but a floating-point type is needed");
  EXPECT_EQ(calls_of_scale, 0);
  ops.scale(machine.stream, Host(DType::F32, {3}), 2);
  EXPECT_EQ(calls_of_scale, 1);
}

TEST(Contract, FirstKeysNeedACausalMaskAndNoLengths) {
  const OpTable& ops = cpu_ops();
  ThreadPool pool(1);
  Stream dry(Stream::Mode::Dry, pool);
  const Host first(DType::I32, {1, 20});
  const Host lengths(DType::I32, {1});
  const Host out(DType::F32, {20, 8});
  const Host lse(DType::F32, {1, 1, 20});
  const Host qkv(DType::F32, {20, 24});
  Attention how;
  how.batch = how.heads = how.kv_heads = 1;
  how.seq = 20;
  how.head_dim = 8;
  how.first_keys = first;
  EXPECT_EQ(error_of([&] { ops.attention(dry, out, lse, qkv, how); }), "");
  how.lengths = lengths;
  EXPECT_EQ(error_of([&] { ops.attention(dry, out, lse, qkv, how); }),
            "attention: first_keys need causal attention without lengths, but this attention has lengths");
  how.lengths = {};
  how.causal = false;
  EXPECT_EQ(
      error_of([&] { ops.attention_backward(dry, qkv, out, qkv, out, lse, how); }),
      "attention_backward: first_keys need causal attention without lengths, but this attention is not causal");
  how.causal = true;
  how.first_keys = lengths;
  EXPECT_EQ(error_of([&] { ops.attention(dry, out, lse, qkv, how); }),
            "attention: first_keys is i32 [1], but i32 with 20 elements is needed");
}

// An error names the operation that was called, not one that it is composed of.
TEST(Contract, ProductsOfLinearLayersSpeakForThemselves) {
  const OpTable& ops = cpu_ops();
  ThreadPool pool(1);
  Stream dry(Stream::Mode::Dry, pool);
  const auto f32 = [](std::initializer_list<int64_t> extents) {
    return Tensor{nullptr, DType::F32, extents};
  };
  const Tensor y = f32({2, 3}), x = f32({2, 4}), w = f32({3, 4}), row = f32({4});
  EXPECT_EQ(error_of([&] { ops.affine(dry, y, x, w, row); }),
            "affine: bias is f32 [4], but f32 with 3 elements is needed");
  EXPECT_EQ(error_of([&] { ops.affine_add(dry, y, row, x, w, {}); }),
            "affine_add: residual is f32 [4], but f32 with 6 elements is needed");
  EXPECT_EQ(error_of([&] { ops.affine_gelu(dry, row, y, x, w, {}); }),
            "affine_gelu: y is f32 [4], but f32 with 6 elements is needed");
  EXPECT_EQ(error_of([&] { ops.affine_backward_weight(dry, w, row, y, x, true); }),
            "affine_backward_weight: db is f32 [4], but f32 with 3 elements is needed");
  EXPECT_EQ(error_of([&] { ops.affine_backward_input(dry, y, y, w, 0); }),
            "gemm: f32 [2, 3] is not the product of f32 [2, 3] and f32 [3, 4]");
}

}  // namespace
}  // namespace trifold::ops_test
