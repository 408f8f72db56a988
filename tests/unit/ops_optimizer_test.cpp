#include "core/exact_sum.h"
#include "unit/ops_support.h"

namespace trifold::ops_test {
namespace {

// Numbers of very different size, with all the digits that `dtype` holds.
Values rough_values(int64_t count, uint64_t seed) {
  Values values = random_values(count, seed);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = std::ldexp(values[i], static_cast<int>(i * 7 % 41) - 20);
  return values;
}

int64_t chunks_of(int64_t count) { return (count + kNormChunk - 1) / kNormChunk; }

Values squares_of(const OpTable& ops, Stream& stream, DType dtype, const Values& x) {
  const auto count = static_cast<int64_t>(x.size());
  // Stale values must be overwritten.
  const Host partials(DType::F64, {chunks_of(count)}, Values(static_cast<size_t>(chunks_of(count)), 7.0));
  ops.chunk_squares(stream, partials, Host(dtype, {count}, x));
  return partials.values();
}

TEST(ChunkSquares, EveryChunkIsTheSumOfItsSquares) {
  for (int64_t n : {0, 1, 15, 16, 17, 255, 256, 257, 1000, 100'003}) {
    const Values x = random_values(n, 1);
    Values expected;
    for (int64_t begin = 0; begin < n; begin += kNormChunk) {
      long double sum = 0;
      for (int64_t i = begin; i < std::min(n, begin + kNormChunk); ++i) {
        const long double value = x[static_cast<size_t>(i)];
        sum += value * value;
      }
      expected.push_back(static_cast<double>(sum));
    }
    check_everywhere(
        {expected},
        [&](const OpTable& ops, Stream& stream, DType dtype) -> Outputs {
          return {squares_of(ops, stream, dtype, x)};
        },
        1e-14, 1e-14);
  }
}

// f32 in every table; f64 where there is a fused multiply-add.
TEST(ChunkSquares, InstructionSetsGiveTheSameBits) {
  const Values x = rough_values(10'000, 2);
  Values thirds = x;
  for (double& value : thirds) value /= 3;  // squares that f64 must round
  Machine machine(1);
  const OpTable& best = cpu_ops();
  for (const OpTable* ops : all_cpu_ops()) {
    SCOPED_TRACE(ops->name);
    EXPECT_EQ(squares_of(*ops, machine.stream, DType::F32, x),
              squares_of(best, machine.stream, DType::F32, x));
    if (std::string(ops->name) == "generic") continue;
    EXPECT_EQ(squares_of(*ops, machine.stream, DType::F64, thirds),
              squares_of(best, machine.stream, DType::F64, thirds));
  }
}

// The norm of a parameter that two to many ranks share, cut anywhere between chunks.
TEST(ChunkSquares, CutsBetweenChunksKeepTheBitsOfTheNorm) {
  const int64_t n = 9 * kNormChunk + 100;
  const Values x = rough_values(n, 3);
  with_every_table([&](const OpTable& ops, Stream& stream) {
    for (DType dtype : {DType::F32, DType::F64}) {
      ExactSum whole;
      whole.add(squares_of(ops, stream, dtype, x));
      for (int64_t cut = kNormChunk; cut < n; cut += kNormChunk) {
        ExactSum parts;
        parts.add(squares_of(ops, stream, dtype, {x.begin() + cut, x.end()}));
        parts.add(squares_of(ops, stream, dtype, {x.begin(), x.begin() + cut}));
        EXPECT_EQ(parts.limbs(), whole.limbs());
      }
    }
  });
}

TEST(ChunkSquares, InfinitiesAndNansReachTheSum) {
  with_every_table([&](const OpTable& ops, Stream& stream) {
    for (DType dtype : {DType::F32, DType::F64})
      for (const double bad : {double(INFINITY), double(-INFINITY), double(NAN)}) {
        Values x = random_values(600, 4);
        x[300] = bad;
        const Values partials = squares_of(ops, stream, dtype, x);
        EXPECT_TRUE(std::isfinite(partials[0]) && std::isfinite(partials[2]));
        EXPECT_EQ(std::isnan(partials[1]), std::isnan(bad));
        EXPECT_FALSE(std::isfinite(partials[1]));
      }
  });
}

TEST(ChunkSquares, WrongTensorsAreErrors) {
  Machine machine(1);
  const Host x(DType::F32, {257});
  EXPECT_THROW(cpu_ops().chunk_squares(machine.stream, Host(DType::F64, {1}), x), Error);
  EXPECT_THROW(cpu_ops().chunk_squares(machine.stream, Host(DType::F32, {2}), x), Error);
  EXPECT_THROW(cpu_ops().chunk_squares(machine.stream, Host(DType::F64, {1}), Host(DType::I32, {4})), Error);
}

}  // namespace
}  // namespace trifold::ops_test
