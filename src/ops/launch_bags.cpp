// Launchers of lookups in embedding tables: forward, sorting by row, and the update of touched rows.
//
// Work is divided into pieces that the workers take dynamically, so that tables of very different sizes keep all
// workers busy. The result of a row or a bag does not depend on the piece or the worker.
#include <algorithm>
#include <atomic>
#include <bit>
#include <span>
#include <utility>
#include <vector>

#include "ops/launch.h"
#include "ops/launch_support.h"

namespace trifold::cpu {

namespace {

// The number of bags, or lookups, of one table in a piece. The first rows of a piece are not prefetched early enough,
// so pieces are large: each worker has about kPieces of them.
constexpr int64_t kLeastPiece = 512, kMostPiece = 8192, kPieces = 8;

int64_t piece_of(int64_t all, const ThreadPool& pool) {
  return std::clamp(all / (kPieces * pool.size()), kLeastPiece, kMostPiece);
}

// Calls body(entry, piece) for every piece of every entry; pieces(entry) is the number of its pieces.
template <class Pieces, class Body>
void over_pieces(ThreadPool& pool, size_t entries, Pieces pieces, Body body) {
  int64_t total = 0;
  for (size_t i = 0; i < entries; ++i) total += pieces(i);
  std::atomic<int64_t> next{0};
  const auto work = [&](int) {
    size_t entry = 0;
    int64_t before = 0;  // pieces of the entries before `entry`
    for (int64_t at = next++; at < total; at = next++) {
      while (at - before >= pieces(entry)) before += pieces(entry++);
      body(entry, at - before);
    }
  };
  if (pool.size() == 1 || total == 1) return work(0);
  pool.run(work);
}

const float* floats(const Tensor& t) { return t.data == nullptr ? nullptr : t.as<float>(); }

}  // namespace

void embedding_bags(const KernelTable& table, Stream& stream, Tensor y, std::span<const BagLookup> lookups) {
  const int64_t bags = y.row_count();
  dispatch_wide_float(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    stream.run([=, pool = &stream.pool(), out = y.as<T>(), stride = y.last_dim(),
                kernel = recommender_kernels<T>(table).embedding_bag] {
      const int64_t size = piece_of(bags * std::ssize(lookups), *pool);
      over_pieces(
          *pool, lookups.size(), [&](size_t) { return parts(bags, size); },
          [&](size_t i, int64_t piece) {
            const BagLookup& lookup = lookups[i];
            kernel(out + lookup.column, stride, lookup.table.as<T>(), lookup.table.last_dim(),
                   lookup.ids.as<int32_t>(), lookup.offsets.as<int32_t>(), floats(lookup.weights),
                   piece * size, std::min(bags, (piece + 1) * size));
          });
    });
  });
}

namespace {

constexpr int kMostDigit = 11;  // bits of a digit; its counters stay in the first-level cache

int bits_of(int64_t number) { return static_cast<int>(std::bit_width(static_cast<uint64_t>(number))); }

// Replaces counts by the sums of those before them.
void places_of(std::span<uint32_t> counts) {
  uint32_t before = 0;
  for (uint32_t& count : counts) before += std::exchange(count, before);
}

// Sorts keys[0, n) by bits [shift, shift + bits), stably: a radix sort, lowest digit first, with the counts of all
// digits taken in one pass. Returns the array with the result: `keys` or `spare`.
template <int Digits, class Key>
Key* sort_by_digits(Key* keys, Key* spare, int64_t n, int shift, int digit) {
  const Key mask = (Key{1} << digit) - 1;
  const auto in_digit = [=](Key key, int d) { return key >> (shift + d * digit) & mask; };
  uint32_t places[Digits][size_t{1} << kMostDigit];
  for (auto& place : places) std::fill_n(place, mask + 1, 0);
  for (int64_t i = 0; i < n; ++i)
    for (int d = 0; d < Digits; ++d) ++places[d][in_digit(keys[i], d)];
  for (int d = 0; d < Digits; ++d) {
    places_of({places[d], static_cast<size_t>(mask + 1)});
    for (int64_t i = 0; i < n; ++i) spare[places[d][in_digit(keys[i], d)]++] = keys[i];
    std::swap(keys, spare);
  }
  return keys;
}

template <class Key>
Key* sort_bits(Key* keys, Key* spare, int64_t n, int shift, int bits) {
  constexpr int64_t kFew = 48;  // up to here counters cost more than a comparison sort
  if (n < 2 || bits == 0) return keys;
  if (n < kFew) {
    std::sort(keys, keys + n);  // lower bits ascend in any case
    return keys;
  }
  // Digits with about a quarter as many values as there are keys.
  const int most = std::clamp(bits_of(n) - 2, 7, kMostDigit);
  const int digits = std::min(3, (bits + most - 1) / most);
  const int digit = (bits + digits - 1) / digits;
  if (digits == 1) return sort_by_digits<1>(keys, spare, n, shift, digit);
  if (digits == 2) return sort_by_digits<2>(keys, spare, n, shift, digit);
  return sort_by_digits<3>(keys, spare, n, shift, digit);
}

// A sort of the lookups of a table: `value` is the bag, or the lookup if its weight must be found again.
struct RowSort {
  int row_bits, value_bits;
  int bucket_bits;  // upper bits of the row that select the bucket

  RowSort(int64_t rows, int64_t values, int64_t n)
      : row_bits(width_of(rows)), value_bits(width_of(values)), bucket_bits(0) {
    constexpr int kBucket = 14;  // log2 of lookups of a bucket, whose keys stay in the second-level cache
    const int wanted = bits_of(n) - kBucket;
    bucket_bits = std::clamp(wanted, 0, std::min(row_bits, kMostDigit));
    // Keys of 32 bits take half the memory.
    const int narrow = row_bits + value_bits - 32;
    if (narrow > bucket_bits && narrow <= kMostDigit) bucket_bits = narrow;
  }
  bool narrow() const { return row_bits - bucket_bits + value_bits <= 32; }
  static int width_of(int64_t count) { return bits_of(std::max<int64_t>(1, count - 1)); }
};

// Lookups are first distributed over buckets by the upper bits of their rows. Within a bucket the key is
// the lower bits and the value, which ascends before and after.
template <class Key>
void sort_with(const LookupOrder& order, const BagLookup& lookup, const RowSort& sort) {
  const int32_t* ids = lookup.ids.as<int32_t>();
  const int32_t* offsets = lookup.offsets.as<int32_t>();
  const bool by_lookup = floats(lookup.weights) != nullptr;
  const int64_t n = lookup.ids.elements();
  const int64_t bags = lookup.offsets.elements() - 1;
  auto* keys = reinterpret_cast<Key*>(order.scratch.as<int64_t>());
  const int lower = sort.row_bits - sort.bucket_bits;
  uint32_t places[size_t{1} << kMostDigit];
  const size_t buckets = size_t{1} << sort.bucket_bits;
  std::fill_n(places, buckets, 0);
  for (int64_t i = 0; i < n; ++i) ++places[static_cast<uint32_t>(ids[i]) >> lower];
  places_of({places, buckets});
  const uint32_t lower_mask = (uint32_t{1} << lower) - 1;
  for (int64_t b = 0; b < bags; ++b)
    for (int64_t i = offsets[b]; i < offsets[b + 1]; ++i) {
      const auto id = static_cast<uint32_t>(ids[i]);
      keys[places[id >> lower]++] =
          static_cast<Key>(id & lower_mask) << sort.value_bits | static_cast<Key>(by_lookup ? i : b);
    }
  int32_t* row = order.row.as<int32_t>();
  int32_t* begin = order.begin.as<int32_t>();
  int32_t* bag = order.bag.as<int32_t>();
  const Key value_mask = (Key{1} << sort.value_bits) - 1;
  int64_t count = 0, last = -1, first = 0;
  for (size_t bucket = 0; bucket < buckets; ++bucket) {
    const int64_t end = places[bucket];
    const Key* sorted = sort_bits(keys + first, keys + n, end - first, sort.value_bits, lower) - first;
    for (int64_t i = first; i < end; ++i) {
      const auto id = static_cast<int64_t>(bucket << lower | sorted[i] >> sort.value_bits);
      row[count] = static_cast<int32_t>(id);  // overwritten unless this is a new row
      begin[count] = static_cast<int32_t>(i);
      count += id != last ? 1 : 0;
      last = id;
      bag[i] = static_cast<int32_t>(sorted[i] & value_mask);
    }
    first = end;
  }
  begin[count] = static_cast<int32_t>(n);
  *order.count.as<int64_t>() = count;
}

void sort_one(const LookupOrder& order, const BagLookup& lookup) {
  const int32_t* offsets = lookup.offsets.as<int32_t>();
  const float* weights = floats(lookup.weights);
  const int64_t n = lookup.ids.elements();
  const int64_t bags = lookup.offsets.elements() - 1;
  const RowSort sort(order.rows, weights == nullptr ? bags : n, n);
  if (sort.narrow())
    sort_with<uint32_t>(order, lookup, sort);
  else
    sort_with<uint64_t>(order, lookup, sort);
  if (weights == nullptr) return;
  int32_t* bag = order.bag.as<int32_t>();
  float* sorted_weights = order.weight.as<float>();
  for (int64_t i = 0; i < n; ++i) {
    const int64_t at = bag[i];
    sorted_weights[i] = weights[at];
    bag[i] = static_cast<int32_t>(std::upper_bound(offsets, offsets + bags + 1, at) - offsets - 1);
  }
}

}  // namespace

void sort_lookups(const KernelTable&, Stream& stream, std::span<const LookupOrder> orders,
                  std::span<const BagLookup> lookups) {
  stream.run([=, pool = &stream.pool()] {
    over_pieces(
        *pool, orders.size(), [](size_t) { return int64_t{1}; },
        [&](size_t i, int64_t) { sort_one(orders[i], lookups[i]); });
  });
}

namespace {

template <class T>
T* numbers(const Tensor& t) {
  return t.data == nullptr ? nullptr : t.as<T>();
}

template <class T>
RowTask<T> task_of(const RowUpdate& update, const Tensor& dy) {
  const LookupOrder& order = *update.order;
  const int64_t width = update.table.last_dim();
  return {.table = update.table.as<T>(),
          .state = numbers<T>(update.state),
          .second = numbers<T>(update.second),
          .row = order.row.as<int32_t>(),
          .begin = order.begin.as<int32_t>(),
          .bag = order.bag.as<int32_t>(),
          .weight = floats(order.weight),
          .dy = dy.as<T>() + update.column,
          .squares = numbers<T>(update.squares),
          .touched = numbers<T>(update.touched),
          .dy_stride = dy.last_dim(),
          .width = width,
          .whole_width = update.squares.data == nullptr ? width : update.whole_width};
}

void over_touched_rows(const KernelTable& table, Stream& stream, Tensor dy,
                       std::span<const RowUpdate> updates, RowAction action, const LateRule<RowRule>& rule) {
  dispatch_wide_float(dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    stream.run([=, pool = &stream.pool(), kernel = recommender_kernels<T>(table).update_rows] {
      const RowRule now = rule.now();
      int64_t all = 0;
      for (const RowUpdate& update : updates) all += update.order->row.elements();
      const int64_t size = piece_of(all, *pool);
      over_pieces(
          *pool, updates.size(), [&](size_t i) { return parts(updates[i].order->row.elements(), size); },
          [&](size_t i, int64_t piece) {
            const LookupOrder& order = *updates[i].order;
            // The rows whose first lookup is in this piece.
            const int32_t* begin = order.begin.as<int32_t>();
            const int64_t count = *order.count.as<int64_t>();
            const auto first = std::lower_bound(begin, begin + count, piece * size) - begin;
            const auto last = std::lower_bound(begin + first, begin + count, (piece + 1) * size) - begin;
            const RowTask<T> task = task_of<T>(updates[i], dy);
            if (first < last) kernel(task, action, now, scratch<T>(task.width), first, last);
          });
    });
  });
}

}  // namespace

void update_rows(const KernelTable& table, Stream& stream, Tensor dy, std::span<const RowUpdate> updates,
                 const SparseRule& rule) {
  over_touched_rows(table, stream, dy, updates, action_of(rule.kind), late("update_rows", rule));
}

void row_squares(const KernelTable& table, Stream& stream, Tensor dy, std::span<const RowUpdate> updates,
                 double grad_scale) {
  LateRule<RowRule> rule;
  rule.rule.moments.grad_scale = grad_scale;
  over_touched_rows(table, stream, dy, updates, RowAction::Squares, rule);
}

void row_gradients(const KernelTable& table, Stream& stream, Tensor dy, std::span<const RowUpdate> updates) {
  over_touched_rows(table, stream, dy, updates, RowAction::Store, {});
}

void add_bags(OpTable& ops, const KernelTable& table) {
  bind<&OpTable::embedding_bags, embedding_bags>(ops, table);
  bind<&OpTable::sort_lookups, sort_lookups>(ops, table);
  bind<&OpTable::update_rows, update_rows>(ops, table);
  bind<&OpTable::row_squares, row_squares>(ops, table);
  bind<&OpTable::row_gradients, row_gradients>(ops, table);
}

}  // namespace trifold::cpu
