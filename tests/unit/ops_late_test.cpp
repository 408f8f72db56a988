// Numbers that operations read at run time (Factor, Dropout::sample, Attention::sample) have the same effect, bit by
// bit, as numbers passed as arguments.
#include <array>

#include "unit/ops_support.h"

namespace trifold::ops_test {
namespace {

// Calls body(ops, stream, late): the results must be the same however numbers are passed.
template <class Body>
void check_late(Body body) {
  with_every_table([&](const OpTable& ops, Stream& stream) {
    const Values in_time = body(ops, stream, false);
    EXPECT_EQ(in_time, body(ops, stream, true));
    EXPECT_NE(in_time, Values(in_time.size(), 0.0));
  });
}

TEST(LateNumbers, Scale) {
  const Host factor(DType::F64, {1}, {0.3});
  check_late([&](const OpTable& ops, Stream& stream, bool late) {
    const Host y(DType::F32, {100}, random_values(100, 1));
    ops.scale(stream, y, late ? Factor(1.7, factor) : Factor(1.7 * 0.3));
    return y.values();
  });
}

TEST(LateNumbers, Dropout) {
  const Host sample(DType::I64, {1}, {1000});
  check_late([&](const OpTable& ops, Stream& stream, bool late) {
    const Host y(DType::F32, {3000}, random_values(3000, 1));
    Dropout how{0.4, philox_key(1, "late"), late ? uint64_t{7} : uint64_t{7 + 1000 * 12345}};
    if (late) how.sample = sample, how.sample_elements = 12345;
    ops.dropout(stream, y, y, how);
    return y.values();
  });
}

TEST(LateNumbers, Attention) {
  const Host sample(DType::I64, {1}, {1000});
  const Values in = random_values(20 * 24, 1);
  check_late([&](const OpTable& ops, Stream& stream, bool late) {
    Attention how;
    how.batch = 2;
    how.seq = 10;
    how.heads = how.kv_heads = 1;
    how.head_dim = 8;
    how.dropout.probability = 0.4;
    how.dropout.key = philox_key(1, "late");
    how.global_heads = 3;
    how.first_head = 2;
    how.first_sample = late ? 4 : 1004;
    if (late) how.sample = sample;
    const Host out(DType::F32, {20, 8});
    const Host lse(DType::F32, {2, 1, 10});
    const Host qkv(DType::F32, {20, 24}, in);
    const Host dqkv(DType::F32, {20, 24});
    ops.attention(stream, out, lse, qkv, how);
    ops.attention_backward(stream, dqkv, Host(DType::F32, {20, 8}, random_values(160, 2)), qkv, out, lse,
                           how);
    Values all = out.values();
    for (const double x : dqkv.values()) all.push_back(x);
    return all;
  });
}

TEST(LateNumbers, GradientOfTheLoss) {
  const Host factor(DType::F64, {1}, {0.3});
  check_late([&](const OpTable& ops, Stream& stream, bool late) {
    const Host logits(DType::F32, {5, 7}, random_values(35, 1));
    const Host max(DType::F32, {5}, Values(5, 2.0));
    const Host sum(DType::F32, {5}, Values(5, 9.0));
    const Host labels(DType::I32, {5}, {0, 6, 3, 3, 1});
    const Host weight(DType::F32, {5}, {1, 0, 1, 1, 0.5});
    ops.cross_entropy_backward(stream, logits, logits, max, sum, labels, weight,
                               late ? Factor(0.5, factor) : Factor(0.5 * 0.3), 0, 7);
    return logits.values();
  });
}

TEST(LateNumbers, AreOfOneType) {
  Machine machine(1);
  const Host y(DType::F32, {4});
  EXPECT_THROW(cpu_ops().scale(machine.stream, y, Factor(1, Host(DType::F32, {1}))), Error);
}

}  // namespace
}  // namespace trifold::ops_test
