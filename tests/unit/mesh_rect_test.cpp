#include "mesh/rect.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>

namespace trifold {
namespace {

// The message of the Error that `body` throws; empty when it does not throw.
template <class Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

std::string cover_error(const Shape& global, const std::vector<Rect>& rects) {
  return error_of([&] { check_exact_cover("w", global, rects); });
}

testing::AssertionResult has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "\"" << text << "\" does not say \"" << part << "\"";
}

// Cuts `box` at random places into about `count` boxes.
std::vector<Rect> random_cuts(const Shape& global, size_t count, std::mt19937& random) {
  std::vector<Rect> boxes{Rect::whole(global)};
  for (size_t attempt = 0; boxes.size() < count && attempt < 20 * count; ++attempt) {
    const size_t which = random() % boxes.size();
    const int dim = static_cast<int>(random() % static_cast<unsigned>(global.rank()));
    Rect& low = boxes[which];
    if (low.extent[dim] < 2) continue;
    const auto cut = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(low.extent[dim] - 1));
    Rect high = low;
    high.offset[dim] += cut;
    high.extent[dim] -= cut;
    low.extent[dim] = cut;
    boxes.push_back(high);
  }
  std::shuffle(boxes.begin(), boxes.end(), random);
  return boxes;
}

const std::vector<Shape> kShapes{{40}, {12, 15}, {5, 7, 9}, {4, 3, 5, 6}};

TEST(Rect, ReadsAsARange) {
  EXPECT_EQ(to_string(Rect{{0, 128}, {4, 128}}), "[0:4, 128:256]");
  EXPECT_EQ(to_string(Rect{}), "[]");
  EXPECT_EQ(to_string(Rect::whole({3, 2})), "[0:3, 0:2]");
}

TEST(Rect, Intersects) {
  const Rect a{{0, 2}, {4, 4}};
  EXPECT_EQ(intersect(a, Rect{{2, 0}, {4, 3}}), (Rect{{2, 2}, {2, 1}}));
  EXPECT_EQ(intersect(a, Rect{{4, 2}, {1, 1}}), std::nullopt);  // touches only
  EXPECT_EQ(intersect(a, Rect{{1, 3}, {0, 2}}), std::nullopt);  // empty
  EXPECT_EQ(intersect(Rect{}, Rect{}), Rect{});                 // scalars have one element
  EXPECT_THROW(intersect(a, Rect{{0}, {1}}), Error);
}

TEST(ExactCover, AcceptsRandomCuts) {
  std::mt19937 random(1);
  for (const Shape& global : kShapes)
    for (size_t count : {1U, 2U, 5U, 30U, 90U})
      for (int repeat = 0; repeat < 5; ++repeat) {
        std::vector<Rect> boxes = random_cuts(global, count, random);
        EXPECT_EQ(cover_error(global, boxes), "");
        Rect nothing = boxes.front();
        nothing.extent[0] = 0;
        boxes.push_back(nothing);  // an empty box holds nothing and harms nothing
        EXPECT_EQ(cover_error(global, boxes), "");
      }
}

TEST(ExactCover, NamesTheHole) {
  std::mt19937 random(2);
  for (const Shape& global : kShapes)
    for (size_t count : {1U, 3U, 30U, 90U})
      for (int repeat = 0; repeat < 5; ++repeat) {
        std::vector<Rect> boxes = random_cuts(global, count, random);
        const Rect missing = boxes.back();
        boxes.pop_back();
        const std::string error = cover_error(global, boxes);
        EXPECT_TRUE(has(error, "tensor w: no box holds " + to_string(missing)));
      }
}

TEST(ExactCover, FindsAHoleOfOneElement) {
  std::mt19937 random(3);
  for (const Shape& global : kShapes)
    for (int repeat = 0; repeat < 20; ++repeat) {
      std::vector<Rect> boxes = random_cuts(global, 40, random);
      const size_t which = random() % boxes.size();
      const Rect box = boxes[which];
      const auto element = static_cast<int64_t>(random() % static_cast<uint64_t>(box.elements()));
      boxes.erase(boxes.begin() + static_cast<std::ptrdiff_t>(which));
      for (const Rect& part : rects_of_range(box, 0, element)) boxes.push_back(part);
      for (const Rect& part : rects_of_range(box, element + 1, box.elements())) boxes.push_back(part);
      EXPECT_TRUE(has(cover_error(global, boxes),
                      "no box holds " + to_string(rects_of_range(box, element, element + 1)[0])));
    }
}

TEST(ExactCover, NamesTheOverlap) {
  std::mt19937 random(4);
  for (const Shape& global : kShapes)
    for (size_t count : {2U, 5U, 30U, 90U})
      for (int repeat = 0; repeat < 10; ++repeat) {
        std::vector<Rect> boxes = random_cuts(global, count, random);
        const size_t which = random() % boxes.size();
        Rect& grown = boxes[which];
        int dim = 0;
        while (dim < global.rank() && grown.extent[dim] == global[dim]) ++dim;
        ASSERT_LT(dim, global.rank());
        if (grown.offset[dim] > 0) grown.offset[dim] -= 1;
        grown.extent[dim] += 1;
        const std::string error = cover_error(global, boxes);
        EXPECT_TRUE(has(error, "tensor w: boxes "));
        EXPECT_TRUE(has(error, to_string(grown)));
        EXPECT_TRUE(has(error, " overlap in "));
      }
}

TEST(ExactCover, NamesADuplicate) {
  const Rect half{{0, 0}, {2, 4}};
  const std::vector<Rect> boxes{half, {{2, 0}, {2, 4}}, half};
  EXPECT_TRUE(has(cover_error({4, 4}, boxes), "boxes [0:2, 0:4] and [0:2, 0:4] overlap in [0:2, 0:4]"));
}

TEST(ExactCover, NamesABoxOutside) {
  constexpr int64_t kHuge = INT64_MAX;
  const std::vector<Rect> bad{{{2, 0}, {3, 4}}, {{-1, 0}, {2, 4}},        {{0, 0}, {4, -4}},
                              {{0}, {4}},       {{kHuge, 0}, {kHuge, 4}}, {{0, 0}, {kHuge, kHuge}}};
  for (const Rect& box : bad)
    EXPECT_TRUE(has(cover_error({4, 4}, {Rect::whole({4, 4}), box}), "is outside its shape [4, 4]"));
}

TEST(ExactCover, Scalars) {
  EXPECT_EQ(cover_error({}, {Rect{}}), "");
  EXPECT_TRUE(has(cover_error({}, {}), "no box holds []"));
  EXPECT_TRUE(has(cover_error({}, {Rect{}, Rect{}}), "overlap"));
  EXPECT_EQ(cover_error({0, 5}, {}), "");  // nothing to hold
}

// Layouts that defeat a sweep along any one dim: half the tensor in rows, half in columns, and grids.
TEST(ExactCover, IsFastForManyBoxes) {
  constexpr int64_t kSide = 20000;
  std::vector<Rect> combs;
  for (int64_t i = 0; i < kSide / 2; ++i) combs.push_back({{i, 0}, {1, kSide}});
  for (int64_t i = 0; i < kSide; ++i) combs.push_back({{kSide / 2, i}, {kSide / 2, 1}});
  std::mt19937 random(5);
  std::vector<Rect> cuts = random_cuts({1 << 14, 1 << 12, 1 << 10}, 20000, random);
  std::shuffle(combs.begin(), combs.end(), random);

  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(cover_error({kSide, kSide}, combs), "");
  EXPECT_EQ(cover_error({1 << 14, 1 << 12, 1 << 10}, cuts), "");
  combs.push_back({{7, 5}, {1, 1}});
  EXPECT_TRUE(has(cover_error({kSide, kSide}, combs), "overlap in [7:8, 5:6]"));
  cuts.pop_back();
  EXPECT_TRUE(has(cover_error({1 << 14, 1 << 12, 1 << 10}, cuts), "no box holds"));
  // Comparing all pairs would take many times as long, even where a sanitizer slows everything down.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

// Every range of small blocks: boxes in memory order hold exactly the elements of the range, and few of them
// suffice.
TEST(RectsOfRange, ExhaustiveOnSmallBlocks) {
  const std::vector<Rect> blocks{{{}, {}},
                                 {{3}, {7}},
                                 {{1, 2}, {3, 4}},
                                 {{0, 5}, {1, 6}},
                                 {{4, 0}, {6, 1}},
                                 {{1, 2, 3}, {3, 2, 4}},
                                 {{0, 0, 1}, {2, 3, 3}},
                                 {{1, 0, 2, 0}, {2, 3, 2, 3}},
                                 {{0, 0, 0, 0}, {3, 1, 3, 2}}};
  for (const Rect& block : blocks) {
    const int64_t count = block.elements();
    const auto bound = static_cast<size_t>(std::max(1, 2 * block.extent.rank() - 1));
    size_t most = 0;
    for (int64_t begin = 0; begin <= count; ++begin)
      for (int64_t end = begin; end <= count; ++end) {
        const std::vector<Rect> boxes = rects_of_range(block, begin, end);
        most = std::max(most, boxes.size());
        std::vector<int64_t> seen;  // flat indices within the block, box after box
        for (const Rect& box : boxes) {
          ASSERT_GT(box.elements(), 0);
          for (int64_t e = 0; e < box.elements(); ++e) {
            int64_t rest = e;
            int64_t flat = 0;
            int64_t stride = 1;
            for (int dim = box.extent.rank() - 1; dim >= 0; --dim) {
              flat += (box.offset[dim] + rest % box.extent[dim] - block.offset[dim]) * stride;
              rest /= box.extent[dim];
              stride *= block.extent[dim];
            }
            seen.push_back(flat);
          }
        }
        std::vector<int64_t> expected(static_cast<size_t>(end - begin));
        std::iota(expected.begin(), expected.end(), begin);
        ASSERT_EQ(seen, expected) << to_string(block) << " " << begin << ":" << end;
        ASSERT_LE(boxes.size(), bound);
      }
    if (block == Rect{{1, 2, 3}, {3, 2, 4}}) {
      EXPECT_EQ(most, bound);  // the bound is reached, not generous
    }
  }
}

TEST(RectsOfRange, RejectsRangesOutsideTheBlock) {
  EXPECT_THROW(rects_of_range(Rect::whole({2, 2}), 0, 5), Error);
  EXPECT_THROW(rects_of_range(Rect::whole({2, 2}), -1, 2), Error);
  EXPECT_THROW(rects_of_range(Rect::whole({2, 2}), 3, 2), Error);
}

// Scatters random pieces of a numbered tensor into random blocks and compares element by element.
TEST(CopyRect, MatchesElementwiseCopy) {
  std::mt19937 random(6);
  const auto random_rect_in = [&](const Rect& outer) {
    Rect rect = outer;
    for (int dim = 0; dim < outer.extent.rank(); ++dim) {
      rect.extent[dim] = static_cast<int64_t>(random() % static_cast<uint64_t>(outer.extent[dim] + 1));
      if (random() % 3 == 0) rect.extent[dim] = outer.extent[dim];
      rect.offset[dim] +=
          static_cast<int64_t>(random() % static_cast<uint64_t>(outer.extent[dim] - rect.extent[dim] + 1));
    }
    return rect;
  };
  for (const Shape& global : std::vector<Shape>{{}, {9}, {5, 6}, {3, 4, 5}, {2, 3, 4, 3}})
    for (int repeat = 0; repeat < 200; ++repeat) {
      const Rect from = random_rect_in(Rect::whole(global));
      const Rect to = random_rect_in(Rect::whole(global));
      const auto part = intersect(from, to);
      if (!part) continue;
      // The value of an element is its flat index in the global tensor; -1 where nothing was copied.
      const auto number = [&](const Rect& block, int64_t e) {
        int64_t value = 0;
        int64_t stride = 1;
        for (int dim = global.rank() - 1; dim >= 0; --dim) {
          value += (block.offset[dim] + e % block.extent[dim]) * stride;
          e /= block.extent[dim];
          stride *= global[dim];
        }
        return value;
      };
      std::vector<int64_t> source(static_cast<size_t>(from.elements()));
      for (size_t e = 0; e < source.size(); ++e) source[e] = number(from, static_cast<int64_t>(e));
      std::vector<int64_t> target(static_cast<size_t>(to.elements()), -1);
      copy_rect(target.data(), to, source.data(), from, *part, sizeof(int64_t));
      int64_t copied = 0;
      for (size_t e = 0; e < target.size(); ++e) {
        const bool was_source =
            std::find(source.begin(), source.end(), number(to, static_cast<int64_t>(e))) != source.end();
        ASSERT_EQ(target[e], was_source ? number(to, static_cast<int64_t>(e)) : -1);
        copied += target[e] >= 0;
      }
      ASSERT_EQ(copied, part->elements());
    }
}

TEST(CopyRect, RejectsAPartThatIsNotInBoth) {
  char a[4] = {};
  char b[4] = {};
  EXPECT_THROW(copy_rect(a, {{0}, {4}}, b, {{2}, {4}}, {{1}, {2}}, 1), Error);
  EXPECT_THROW(copy_rect(a, {{0}, {4}}, b, {{2}, {4}}, {{3}, {2}}, 1), Error);
}

}  // namespace
}  // namespace trifold
