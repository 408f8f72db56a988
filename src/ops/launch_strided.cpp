// Launchers of operations on strided views.
#include "ops/kernels/walk.h"
#include "ops/launch.h"
#include "ops/launch_support.h"
#include "ops/walk.h"

namespace trifold::cpu {

namespace {

// The element at which a view begins. An empty tensor may have no memory, and then the result is null.
template <class T>
T* begin_of(const Tensor& tensor, const StridedView& view) {
  T* const data = static_cast<T*>(tensor.data);
  return data == nullptr ? data : data + view.begin;
}

// Copies a box with a kernel for the types Y and X.
template <class Y, class X, class Kernel>
void copy_with(Stream& stream, Tensor y, const StridedView& to, Tensor x, const StridedView& from,
               const Box& box, Kernel kernel) {
  stream.run([=, pool = &stream.pool(), out = begin_of<Y>(y, to), in = begin_of<const X>(x, from)] {
    for (const WalkPart& part : copy_walks(box, to, from))
      pool->parallel_for(elements_of(part.walk), kCheapGrain, [&](int64_t begin, int64_t end) {
        kernel(out + part.begin[0], in + part.begin[1], part.walk, begin, end);
      });
  });
}

}  // namespace

void strided_copy(const KernelTable& table, Stream& stream, Tensor y, const StridedView& to, Tensor x,
                  const StridedView& from, const Box& box) {
  const auto copy =
      [&]<class Y, class X>(auto(*kernel)(Y*, const X*, const StridedWalk<2>&, int64_t, int64_t)->void) {
        copy_with<Y, X>(stream, y, to, x, from, box, kernel);
      };
  if (y.dtype == x.dtype) {
    const size_t size = size_of(y.dtype);
    if (size == 2) return copy(table.words.copy_2);
    return size == 4 ? copy(table.words.copy_4) : copy(table.words.copy_8);
  }
  if (x.dtype == DType::F32 || x.dtype == DType::F64) {
    dispatch_float(y.dtype, [&](auto zero) {
      const auto& kernels = storage_kernels<decltype(zero)>(table);
      if (x.dtype == DType::F32)
        copy(kernels.copy_strided_from_f32);
      else
        copy(kernels.copy_strided_from_f64);
    });
    return;
  }
  dispatch_float(x.dtype, [&](auto zero) {
    const auto& kernels = storage_kernels<decltype(zero)>(table);
    if (y.dtype == DType::F32)
      copy(kernels.copy_strided_to_f32);
    else
      copy(kernels.copy_strided_to_f64);
  });
}

namespace {

// Elements of y that one call sums, each in f64.
constexpr int64_t kSumBlock = 256;
// If y has few blocks, the terms of a sum are cut into parts of about this many elements of x in all, whose sums are
// added in order.
constexpr int64_t kSumPart = 32768;
constexpr int64_t kFewBlocks = 16;
constexpr int64_t kMostParts = 64;

// strided_sum of x (T) in y (Y).
template <class Y, class T>
struct StridedSum {
  const StorageKernels<T>& kernels;
  const StorageKernels<Y>& results;
  Y* y;
  const T* x;
  SumWalks walks;
  double factor;
  bool accumulate;

  // sums[i] = the sum of terms [first, last) for element begin + i of y.
  void sum(double* sums, int64_t begin, int64_t end, int64_t first, int64_t last) const {
    if (first == last) {  // x may have no memory
      std::fill_n(sums, end - begin, 0.0);
      return;
    }
    const StridedWalk<2>& kept = walks.kept;
    const int64_t stride = kept.strides[1][kept.rank - 1];
    const StridedWalk<1>& summed = walks.summed;
    // Vectors lie along the axis of x whose elements are adjacent: that of y's elements, or that of the terms.
    const bool along_terms = stride != 1 && summed.strides[0][summed.rank - 1] == 1;
    over_runs(kept, begin, end, [&](int64_t at, const int64_t* distance, int64_t n) {
      const T* from = x + distance[1];
      if (along_terms) {
        for (int64_t i = 0; i < n; ++i)
          sums[at + i] = kernels.sum_strided(from + i * stride, summed, first, last);
      } else {
        std::fill(sums + at, sums + at + n, 0.0);
        kernels.add_strided(sums + at, from, stride, n, summed, first, last);
      }
    });
  }

  void store(const double* sums, int64_t begin, int64_t end) const {
    const StridedWalk<2>& kept = walks.kept;
    over_runs(kept, begin, end, [&](int64_t at, const int64_t* distance, int64_t n) {
      results.store_sums(y + distance[0], kept.strides[0][kept.rank - 1], sums + at, n, factor, accumulate);
    });
  }

  void run(ThreadPool& pool) const {
    const int64_t elements = elements_of(walks.kept);
    const int64_t terms = elements_of(walks.summed);
    const int64_t blocks = parts(elements, kSumBlock);
    const int64_t wanted = blocks < kFewBlocks ? std::min(kMostParts, terms * elements / kSumPart) : 1;
    if (wanted > 1) return run_in_parts(pool, elements, terms, parts(terms, wanted));
    const int64_t grain = row_grain(kSumBlock * std::max<int64_t>(1, terms), kCheapGrain);
    pool.parallel_for(blocks, grain, [&](int64_t first_block, int64_t last_block) {
      double sums[kSumBlock];
      for (int64_t block = first_block; block < last_block; ++block) {
        const int64_t begin = block * kSumBlock;
        const int64_t end = std::min(elements, begin + kSumBlock);
        sum(sums, begin, end, 0, terms);
        store(sums, begin, end);
      }
    });
  }

  void run_in_parts(ThreadPool& pool, int64_t elements, int64_t terms, int64_t part) const {
    const int64_t count = parts(terms, part);
    double* const sums = scratch<double>(count * elements);
    pool.parallel_for(count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        sum(sums + i * elements, 0, elements, i * part, std::min(terms, (i + 1) * part));
    });
    for (int64_t i = 1; i < count; ++i)
      for (int64_t e = 0; e < elements; ++e) sums[e] += sums[i * elements + e];
    store(sums, 0, elements);
  }
};

}  // namespace

void strided_sum(const KernelTable& table, Stream& stream, Tensor y, const StridedView& to, Tensor x,
                 const StridedView& from, const Box& box, double factor, bool accumulate) {
  dispatch_float(x.dtype, [&](auto of_x) {
    using T = decltype(of_x);
    const auto sum = [&](auto of_y) {
      using Y = decltype(of_y);
      stream.run([=, pool = &stream.pool(), kernels = &storage_kernels<T>(table),
                  results = &storage_kernels<Y>(table), out = begin_of<Y>(y, to),
                  in = begin_of<const T>(x, from)] {
        StridedSum<Y, T>{*kernels, *results, out, in, sum_walks(box, to, from), factor, accumulate}.run(
            *pool);
      });
    };
    if (y.dtype == x.dtype) return sum(T{});
    if (y.dtype == DType::F64) return sum(double{});
    sum(Accumulate<T>{});
  });
}

namespace {

// The most elements that one call of a MapKernel computes: four blocks of f64 fit the first-level cache.
constexpr int64_t kMapBlock = 1024;

// The elements of y in blocks: rows of `row` elements, each cut into `pieces` blocks of kMapBlock and a rest.
struct MapRows {
  int64_t elements, row, pieces;

  // Rows are the longest along which every input is in one piece, unless those are very short.
  MapRows(int64_t count, std::span<const StridedWalk<1>> walks) : elements(count), row(count) {
    constexpr int64_t kLeast = 128;
    for (const StridedWalk<1>& walk : walks)
      if (walk.rank > 1) row = std::min(row, walk.extents[walk.rank - 1]);
    if (row < kLeast) row = count;
    pieces = parts(row, kMapBlock);
  }
  int64_t blocks() const { return row == 0 ? 0 : elements / row * pieces; }
  int64_t begin(int64_t block) const { return block / pieces * row + block % pieces * kMapBlock; }
  int64_t end(int64_t block) const { return std::min(begin(block) + kMapBlock, (block / pieces + 1) * row); }
};

// map in the type T. An input that is not adjacent in memory, or has 16 bits, is gathered a block at a time.
template <class T>
struct MapBlocks {
  using Wide = Accumulate<T>;
  const StorageKernels<T>& storage;
  MapKernel<Wide> kernel;
  T* y;
  std::array<const T*, 3> x;
  std::array<StridedWalk<1>, 3> walks;
  size_t inputs;
  Wide a, b;

  bool is_number(size_t input) const { return walks[input].rank == 1 && walks[input].strides[0][0] == 0; }

  // The numbers of an input for elements [begin, end), in `block` if not in memory.
  const Wide* numbers(size_t input, Wide* block, int64_t begin, int64_t end) const {
    const StridedWalk<1>& walk = walks[input];
    if constexpr (std::is_same_v<T, Wide>) {
      const int64_t run = walk.extents[walk.rank - 1];
      if (walk.strides[0][walk.rank - 1] == 1 && (walk.rank == 1 || begin % run + (end - begin) <= run))
        return x[input] + distance_of(walk, 0, begin);
    }
    if (!is_number(input)) storage.gather(block, x[input], walk, begin, end);
    return block;
  }

  void compute(const MapRows& rows, int64_t first_block, int64_t last_block) const {
    alignas(64) Wide blocks[4][kMapBlock];
    for (size_t i = 0; i < inputs; ++i)
      if (is_number(i)) storage.gather(blocks[i], x[i], {1, {kMapBlock}, {{0}}}, 0, kMapBlock);
    for (int64_t block = first_block; block < last_block; ++block) {
      const int64_t begin = rows.begin(block);
      const int64_t end = rows.end(block);
      const Wide* in[3] = {};
      for (size_t i = 0; i < inputs; ++i) in[i] = numbers(i, blocks[i], begin, end);
      if constexpr (std::is_same_v<T, Wide>) {
        kernel(y + begin, in[0], in[1], in[2], end - begin, a, b);
      } else {
        kernel(blocks[3], in[0], in[1], in[2], end - begin, a, b);
        storage.from_f32(y + begin, blocks[3], end - begin);
      }
    }
  }
};

}  // namespace

void map(const KernelTable& table, Stream& stream, Tensor y, std::span<const Tensor> x, const Map& map) {
  dispatch_float(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    using Wide = Accumulate<T>;
    std::array<const T*, 3> in{};
    for (size_t i = 0; i < x.size(); ++i) in[i] = begin_of<const T>(x[i], map.from[i]);
    stream.run([=, pool = &stream.pool(), out = y.as<T>(), elements = y.elements(), inputs = x.size(),
                storage = &storage_kernels<T>(table), maps = kernels<Wide>(table).maps] {
      MapBlocks<T> blocks{*storage,   maps[static_cast<int>(map.op)], out, in, {}, inputs, Wide(map.a),
                          Wide(map.b)};
      for (size_t i = 0; i < inputs; ++i)
        blocks.walks[i] = walk_of(map.box, kAllAxes, WalkOrder::Box, map.from[i]);
      const MapRows rows(elements, std::span(blocks.walks).first(inputs));
      pool->parallel_for(rows.blocks(), row_grain(std::min(rows.row, kMapBlock), kMathGrain),
                         [&](int64_t begin, int64_t end) { blocks.compute(rows, begin, end); });
    });
  });
}

void add_strided(OpTable& ops, const KernelTable& table) {
  bind<&OpTable::strided_copy, strided_copy>(ops, table);
  bind<&OpTable::strided_sum, strided_sum>(ops, table);
  bind<&OpTable::map, map>(ops, table);
}

}  // namespace trifold::cpu
