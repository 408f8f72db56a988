// Launchers of lookups in embedding tables: forward, their order by row, and the update of touched rows.
//
// Work is cut into pieces of fixed size, which the workers take dynamically: the result of a piece does not
// depend on the worker, and tables of very different sizes still keep all workers busy.
#include <atomic>
#include <bit>
#include <vector>

#include "ops/launch.h"
#include "ops/launch_support.h"

namespace trifold::cpu {

namespace {

constexpr int64_t kBagPiece = 512;      // bags of one table
constexpr int64_t kUpdatePiece = 1024;  // lookups of one table

// Calls body(list index, piece of it) for every piece of every entry; pieces(i) says how many it has.
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
      over_pieces(
          *pool, lookups.size(), [&](size_t) { return parts(bags, kBagPiece); },
          [&](size_t i, int64_t piece) {
            const BagLookup& lookup = lookups[i];
            kernel(out + lookup.column, stride, lookup.table.as<T>(), lookup.table.last_dim(),
                   lookup.ids.as<int32_t>(), lookup.offsets.as<int32_t>(), floats(lookup.weights),
                   piece * kBagPiece, std::min(bags, (piece + 1) * kBagPiece));
          });
    });
  });
}

namespace {

// Sorts by the upper halves of `keys`, which are below `rows`; equal keys keep their order. Counting sort by
// one digit of the row at a time, lowest first; returns where the result is: `keys` or `spare`.
uint64_t* sort_by_row(uint64_t* keys, uint64_t* spare, int64_t n, int64_t rows) {
  constexpr int kMostBits = 11;  // keeps a digit's counters in first-level cache
  const int bits = std::bit_width(static_cast<uint64_t>(std::max<int64_t>(1, rows - 1)));
  const int passes = (bits + kMostBits - 1) / kMostBits;
  const int digit = (bits + passes - 1) / passes;
  const uint64_t mask = (uint64_t{1} << digit) - 1;
  std::array<uint32_t, size_t{1} << kMostBits> place;
  for (int shift = 32; shift < 32 + bits; shift += digit) {
    std::fill_n(place.begin(), mask + 1, 0);
    for (int64_t i = 0; i < n; ++i) ++place[keys[i] >> shift & mask];
    uint32_t before = 0;
    for (uint64_t d = 0; d <= mask; ++d) {
      const uint32_t count = place[d];
      place[d] = before;
      before += count;
    }
    for (int64_t i = 0; i < n; ++i) spare[place[keys[i] >> shift & mask]++] = keys[i];
    std::swap(keys, spare);
  }
  return keys;
}

// Sorts (row, bag), or (row, lookup) if the lookup's weight must be found again.
void sort_one(const LookupOrder& order, const BagLookup& lookup) {
  const int32_t* ids = lookup.ids.as<int32_t>();
  const int32_t* offsets = lookup.offsets.as<int32_t>();
  const float* weights = floats(lookup.weights);
  const int64_t n = lookup.ids.elements();
  const int64_t bags = lookup.offsets.elements() - 1;
  auto* keys = reinterpret_cast<uint64_t*>(order.scratch.as<int64_t>());
  int32_t* bag = order.bag.as<int32_t>();
  for (int64_t b = 0; b < bags; ++b)
    for (int64_t i = offsets[b]; i < offsets[b + 1]; ++i)
      keys[i] = static_cast<uint64_t>(static_cast<uint32_t>(ids[i])) << 32 |
                static_cast<uint32_t>(weights == nullptr ? b : i);
  const uint64_t* sorted = sort_by_row(keys, keys + n, n, order.rows);
  int32_t* row = order.row.as<int32_t>();
  int32_t* begin = order.begin.as<int32_t>();
  int64_t count = 0;
  int64_t last = -1;
  for (int64_t i = 0; i < n; ++i) {
    const auto id = static_cast<int64_t>(sorted[i] >> 32);
    row[count] = static_cast<int32_t>(id);  // overwritten unless this is a new row
    begin[count] = static_cast<int32_t>(i);
    if (id != last) {
      ++count;
      last = id;
    }
    bag[i] = static_cast<int32_t>(static_cast<uint32_t>(sorted[i]));
  }
  begin[count] = static_cast<int32_t>(n);
  *order.count.as<int64_t>() = count;
  if (weights == nullptr) return;
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
      over_pieces(
          *pool, updates.size(),
          [&](size_t i) { return parts(updates[i].order->row.elements(), kUpdatePiece); },
          [&](size_t i, int64_t piece) {
            const LookupOrder& order = *updates[i].order;
            // The rows whose first lookup is in this piece.
            const int32_t* begin = order.begin.as<int32_t>();
            const int64_t count = *order.count.as<int64_t>();
            const auto first = std::lower_bound(begin, begin + count, piece * kUpdatePiece) - begin;
            const auto last =
                std::lower_bound(begin + first, begin + count, (piece + 1) * kUpdatePiece) - begin;
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
