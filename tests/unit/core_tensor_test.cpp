#include "core/tensor.h"

#include <gtest/gtest.h>

namespace trifold {
namespace {

TEST(Shape, CountsElements) {
  EXPECT_EQ(Shape({2, 3, 4}).elements(), 24);
  EXPECT_EQ(Shape().elements(), 1);
  EXPECT_EQ(Shape({5, 0}).elements(), 0);
  EXPECT_THROW(Shape({1, 1, 1, 1, 1}), Error);
}

TEST(Shape, HasNoElementsWhenTheyCannotBeCounted) {
  constexpr int64_t kManyRows = int64_t{1} << 32;
  EXPECT_THROW(Shape({kManyRows, kManyRows}).elements(), Error) << "the product is 2^64";
  EXPECT_THROW(Shape({kManyRows, kManyRows / 2}).elements(), Error) << "the number of bytes would overflow";
  EXPECT_THROW(Shape({-1, -1}).elements(), Error);
  EXPECT_EQ(Shape({kManyRows, 1 << 24}).elements(), Shape::kMaxElements);
  Arena arena(4096);
  EXPECT_THROW(arena.take(DType::F64, {-1}), Error);
  EXPECT_THROW(arena.take(DType::F64, Shape({kManyRows, 1 << 24})), Error);
}

TEST(Shape, RowsAreAllDimsButTheLast) {
  const auto rows = [](const Shape& shape) { return Tensor{nullptr, DType::F32, shape}.row_count(); };
  EXPECT_EQ(rows({2, 3, 4}), 6);
  EXPECT_EQ(rows({5}), 1);
  EXPECT_EQ(rows({7, 0}), 0) << "rows without elements hold nothing";
  EXPECT_THROW(rows({}), Error) << "a scalar";
  EXPECT_THROW(rows({-2, 3}), Error);
}

TEST(Tensor, ViewsShareMemory) {
  const Buffer buffer(6 * sizeof(float));
  const Tensor t = buffer.tensor(DType::F32, {3, 2});
  for (int i = 0; i < 6; ++i) t.as<float>()[i] = static_cast<float>(i);
  EXPECT_EQ(t.rows(1, 3).as<float>()[0], 2.0F);
  EXPECT_EQ(t.flat(5, 6).as<float>()[0], 5.0F);
  EXPECT_EQ(t.reshape({2, 3}).rows(1, 2).as<float>()[2], 5.0F);
  EXPECT_THROW(t.reshape({4}), Error);
  EXPECT_THROW(t.rows(2, 4), Error);
  EXPECT_THROW(t.as<double>(), Error);
}

TEST(Arena, RepeatsAddressesAndMeasures) {
  Arena real(4096);
  Arena measure = Arena::measuring();
  for (Arena* arena : {&real, &measure}) {
    const Arena::Mark mark = arena->mark();
    const Tensor first = arena->take(DType::F32, {10});
    arena->take(DType::F64, {20});
    arena->release(mark);
    EXPECT_EQ(arena->take(DType::F32, {10}).data, first.data);
  }
  EXPECT_THROW(real.release(real.used() + 1), Error);
  EXPECT_EQ(real.peak(), measure.peak());
  EXPECT_GE(measure.peak(), 10 * 4 + 20 * 8);
  EXPECT_THROW(real.take(DType::F64, {1000}), Error);
  EXPECT_NO_THROW(measure.take(DType::F64, {1000}));
}

// What was taken once is there again, where it was and as it was, without being taken; the next tensor lies
// behind it.
TEST(Arena, IsFilledAsAtAnotherTime) {
  Arena arena(4096);
  const Tensor first = arena.take(DType::F32, {10});
  const Arena::Mark between = arena.mark();
  const Tensor second = arena.take(DType::F64, {20});
  const Arena::Mark full = arena.mark();
  const Tensor third = arena.take(DType::F32, {5});
  second.as<double>()[19] = 0.5;
  arena.reset();
  arena.restore(full);
  EXPECT_EQ(arena.used(), full);
  EXPECT_EQ(second.as<double>()[19], 0.5);
  EXPECT_EQ(arena.take(DType::F32, {5}).data, third.data);
  arena.restore(between);  // to a mark of less, too
  EXPECT_EQ(arena.take(DType::F64, {20}).data, second.data);
  arena.restore(0);
  EXPECT_EQ(arena.take(DType::F32, {10}).data, first.data);
  arena.restore(arena.capacity());
  EXPECT_THROW(arena.take(DType::F32, {1}), Error);
  EXPECT_THROW(arena.restore(arena.capacity() + 1), Error);
  EXPECT_EQ(arena.used(), arena.capacity());
  Arena measure = Arena::measuring();
  EXPECT_THROW(measure.restore(1), Error) << "nothing was taken from it";
}

}  // namespace
}  // namespace trifold
