// Speed of embedding tables against the memory's: `embedding_bench [workers] [repetitions]`. Tables, and
// the rows that a batch touches where ids are uniform, are far larger than the caches; ids are uniform or
// follow Zipf's law. Bytes are counted as a lookup needs them:
//   forward   ids, rows read, bags written
//   backward  the gradient of every bag read, sorted pairs written and read once for each pass over them,
//             touched rows read and written, and the cache lines that hold their state
// The limit is a sum of two arrays into a third (STREAM's "add", three transfers a number), in the same run.
// The rate of random single cache lines, prefetched long before they are read, is measured too: no lookup of uncached
// rows can be faster. Exits with status 1 if a case is below kLeastShare of the limit.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <vector>

#include "core/random.h"
#include "ops/ops.h"

namespace {

using namespace trifold;
using Clock = std::chrono::steady_clock;

constexpr int64_t kTables = 8;
constexpr double kLeastShare = 0.6;

// Of at least `repetitions` runs, and of half a second's: on a shared machine some are disturbed.
template <class Body>
double best_seconds(int repetitions, Body body) {
  double best = 1e30;
  const auto begin = Clock::now();
  for (int i = 0; i < repetitions || Clock::now() - begin < std::chrono::milliseconds(500); ++i) {
    const auto start = Clock::now();
    body();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

double stream_bandwidth(Stream& stream, int repetitions) {
  constexpr int64_t kNumbers = int64_t{64} << 20;
  const Buffer a(kNumbers * 4), b(kNumbers * 4), c(kNumbers * 4);
  const auto view = [](const Buffer& buffer) { return buffer.tensor(DType::F32, {kNumbers}); };
  // Memory that was never written is one page of zeros, which is in the cache.
  for (const Buffer* buffer : {&a, &b, &c}) cpu_ops().fill(stream, view(*buffer), 1);
  const double seconds = best_seconds(repetitions, [&] { cpu_ops().add(stream, view(c), view(a), view(b)); });
  return 3.0 * kNumbers * 4 / seconds;
}

// Single lines of 1 GiB, in a random order.
double random_lines(Stream& stream, int repetitions) {
  constexpr int64_t kLines = int64_t{1} << 24, kReads = int64_t{1} << 21, kAhead = 64, kNumbers = 16;
  const Buffer memory(kLines * 64), order((kReads + kAhead) * 4);
  const Tensor all = memory.tensor(DType::F32, {kLines * kNumbers});
  cpu_ops().fill(stream, all, 1);
  int32_t* at = order.tensor(DType::I32, {kReads + kAhead}).as<int32_t>();
  const PhiloxKey key = philox_key(1, "lines");
  for (int64_t i = 0; i < kReads + kAhead; ++i) at[i] = static_cast<int32_t>(philox_word(key, i) % kLines);
  std::vector<float> sums(1 << 10);
  const double seconds = best_seconds(repetitions, [&] {
    stream.pool().run([&](int worker) {
      const int64_t share = kReads / stream.pool().size();
      const float* line = all.as<float>();
      float sum = 0;
      for (int64_t i = worker * share; i < (worker + 1) * share; ++i) {
        __builtin_prefetch(line + at[i + kAhead] * kNumbers, 0, 2);
        sum += line[at[i] * kNumbers];
      }
      sums[static_cast<size_t>(worker) * 16] = sum;
    });
  });
  return kReads * 64 / seconds;
}

// Ids of `bags` bags of `pooling` ids. Zipf: rank r has probability proportional to 1 / r^1.05, ranks are
// scattered over the table.
std::vector<int32_t> make_ids(int64_t count, int64_t rows, bool zipf, uint64_t table) {
  const PhiloxKey key = philox_key(table, "ids");
  std::vector<int32_t> ids(static_cast<size_t>(count));
  const double power = 1 - 1.05;
  const double most = std::pow(static_cast<double>(rows), power) - 1;
  for (size_t i = 0; i < ids.size(); ++i) {
    const double u = (philox_word(key, i) + 0.5) / 4294967296.0;
    const double rank = zipf ? std::pow(1 + u * most, 1 / power) - 1 : u * static_cast<double>(rows);
    const auto scattered = static_cast<uint64_t>(rank) * 2654435761U % static_cast<uint64_t>(rows);
    ids[i] = static_cast<int32_t>(scattered);
  }
  return ids;
}

struct Case {
  int64_t width, rows, bags, pooling;
  bool zipf;
};

struct Memory {
  Buffer table, state, ids, offsets, row, begin, bag, count, scratch;
  int64_t touched = 0;
};

// Cache lines of a number for each touched row.
double lines_of_rows(const LookupOrder& order) {
  const int32_t* row = order.row.as<int32_t>();
  int64_t lines = 0, last = -1;
  for (int64_t i = 0; i < *order.count.as<int64_t>(); ++i) {
    if (row[i] / 16 != last) ++lines;
    last = row[i] / 16;
  }
  return static_cast<double>(lines);
}

// Prints a line; the least share of the limit in it.
double measure(Stream& stream, const Case& c, double limit, int repetitions) {
  const OpTable& ops = cpu_ops();
  const int64_t n = c.bags * c.pooling;
  std::vector<Memory> memory;
  std::vector<BagLookup> lookups;
  std::vector<LookupOrder> orders;
  for (int64_t t = 0; t < kTables; ++t) {
    const auto bytes = [](int64_t numbers, int64_t size) { return static_cast<size_t>(numbers * size); };
    memory.push_back({Buffer(bytes(c.rows * c.width, 4)), Buffer(bytes(c.rows * c.width, 4)),
                      Buffer(bytes(n, 4)), Buffer(bytes(c.bags + 1, 4)), Buffer(bytes(n, 4)),
                      Buffer(bytes(n + 1, 4)), Buffer(bytes(n, 4)), Buffer(8), Buffer(bytes(2 * n, 8))});
    Memory& m = memory.back();
    const Tensor ids = m.ids.tensor(DType::I32, {n});
    const std::vector<int32_t> made = make_ids(n, c.rows, c.zipf, static_cast<uint64_t>(t));
    std::copy(made.begin(), made.end(), ids.as<int32_t>());
    const Tensor offsets = m.offsets.tensor(DType::I32, {c.bags + 1});
    for (int64_t b = 0; b <= c.bags; ++b) offsets.as<int32_t>()[b] = static_cast<int32_t>(b * c.pooling);
    lookups.push_back({m.table.tensor(DType::F32, {c.rows, c.width}), ids, offsets, {}, t * c.width});
    ops.fill(stream, lookups.back().table, 1);
    ops.fill(stream, m.state.tensor(DType::F32, {c.rows, c.width}), 1);
    orders.push_back({c.rows,
                      m.row.tensor(DType::I32, {n}),
                      m.begin.tensor(DType::I32, {n + 1}),
                      m.bag.tensor(DType::I32, {n}),
                      {},
                      m.count.tensor(DType::I64, {1}),
                      m.scratch.tensor(DType::I64, {2 * n})});
  }
  const Buffer output(static_cast<size_t>(c.bags * kTables * c.width * 4));
  const Tensor y = output.tensor(DType::F32, {c.bags, kTables * c.width});
  const double forward = best_seconds(repetitions, [&] { ops.embedding_bags(stream, y, lookups); });
  const double sorting = best_seconds(repetitions, [&] { ops.sort_lookups(stream, orders, lookups); });
  double touched = 0, lines = 0;
  for (const LookupOrder& order : orders) {
    touched += static_cast<double>(*order.count.as<int64_t>());
    lines += lines_of_rows(order);
  }

  const double all = static_cast<double>(n * kTables);
  const double row_bytes = static_cast<double>(c.width) * 4;
  const double bag_bytes = static_cast<double>(c.bags * kTables) * row_bytes;
  const double forward_bytes = all * (4 + row_bytes) + bag_bytes;
  const int passes = (std::bit_width(static_cast<uint64_t>(c.rows - 1)) + 10) / 11;
  std::cout << fmt::format("D {:>3} {:<7} pooling {:>2}: forward {:5.1f} GB/s {:3.0f} %", c.width,
                           c.zipf ? "zipf" : "uniform", c.pooling, forward_bytes / forward / 1e9,
                           100 * forward_bytes / forward / limit);
  double least = forward_bytes / forward / limit;
  for (const SparseKind kind : {SparseKind::Sgd, SparseKind::RowwiseAdagrad, SparseKind::Adagrad}) {
    std::vector<RowUpdate> updates;
    for (size_t t = 0; t < orders.size(); ++t) {
      const Shape shape = kind == SparseKind::Adagrad ? Shape{c.rows, c.width} : Shape{c.rows};
      updates.push_back({lookups[t].table,
                         memory[t].state.tensor(DType::F32, shape),
                         {},
                         &orders[t],
                         lookups[t].column,
                         {},
                         0});
    }
    const double update =
        best_seconds(repetitions, [&] { ops.update_rows(stream, y, updates, {.kind = kind, .lr = 1e-6}); });
    const double state = kind == SparseKind::Sgd       ? 0
                         : kind == SparseKind::Adagrad ? touched * row_bytes
                                                       : lines * 64;
    const double bytes = bag_bytes + all * 8 * (2 * passes + 2) + 2 * (touched * row_bytes + state);
    const double seconds = update + sorting;
    least = std::min(least, bytes / seconds / limit);
    std::cout << fmt::format(" | {} {:5.1f} GB/s {:3.0f} %",
                             kind == SparseKind::Sgd       ? "sgd"
                             : kind == SparseKind::Adagrad ? "adagrad"
                                                           : "rowwise",
                             bytes / seconds / 1e9, 100 * bytes / seconds / limit);
    if (kind == SparseKind::Sgd)
      std::cout << fmt::format(" (sort {:.2f} of {:.2f} ms)", sorting * 1e3, seconds * 1e3);
  }
  std::cout << std::endl;
  return least;
}

}  // namespace

int main(int argc, char** argv) {
  ThreadPool pool(argc > 1 ? std::atoi(argv[1]) : 2);
  Stream stream(Stream::Mode::Inline, pool);
  const int repetitions = argc > 2 ? std::atoi(argv[2]) : 7;
  const double limit = stream_bandwidth(stream, repetitions);
  std::cout << fmt::format("{} workers, {}: memory {:.1f} GB/s, lines at random places {:.1f} GB/s\n",
                           pool.size(), cpu_ops().name, limit / 1e9, random_lines(stream, repetitions) / 1e9);
  double least = 1e30;
  for (const bool zipf : {false, true})
    for (const Case& c : {Case{16, 4'000'000, 131072, 1, zipf}, Case{64, 1'000'000, 32768, 1, zipf},
                          Case{128, 500'000, 16384, 1, zipf}, Case{64, 1'000'000, 2048, 20, zipf}})
      least = std::min(least, measure(stream, c, limit, repetitions));
  std::cout << fmt::format("least share of the memory's bandwidth {:.0f} % (limit {:.0f} %)\n", 100 * least,
                           100 * kLeastShare);
  return least < kLeastShare ? 1 : 0;
}
