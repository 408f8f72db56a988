// Speed of embedding tables against the memory's: `embedding_bench [workers] [repetitions] [width]`. Tables, and
// the rows that a batch touches where ids are uniform, are far larger than the caches; ids are uniform or
// follow Zipf's law. Bytes are counted as a lookup needs them:
//   forward   ids, rows read, bags written
//   backward  the gradient of every bag read; for its sort ids read twice, a key of 4 bytes and the bag written and read
//             for each lookup, two numbers written and read for each touched row; touched rows read and written, and
//             the cache lines that hold their state
// The limit is a sum of two arrays into a third (STREAM's "add", three transfers a number), in the same run. Of rows of
// one cache line (16 numbers) it is, for forward, the rate at which the same rows of the same tables are read in the same
// order and nothing is written, and for backward that at which touched rows are read, added to and written in the order
// of its update, each the fastest of several prefetch distances; `rows` is the share of the first rate at which rows are
// looked up, whatever is written for them. All measurements of a case alternate, and medians are compared. Times are
// those of the processors divided by the workers, on which other programs have less influence than on wall-clock time.
// Exits with status 1 if a case is below kLeastShare of the limit, or rows of one line below kLeastShareOfLines.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <iostream>
#include <vector>

#include "core/random.h"
#include "ops/ops.h"

namespace {

using namespace trifold;
using Clock = std::chrono::steady_clock;

constexpr int64_t kTables = 8;
constexpr double kLeastShare = 0.6, kLeastShareOfLines = 0.7;

// Seconds of all threads of this process.
double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The median seconds of each body, in at least `repetitions` rounds and a second. A round runs each of them once.
std::vector<double> median_seconds(int workers, int repetitions,
                                   std::span<const std::function<void()>> bodies) {
  std::vector<std::vector<double>> seconds(bodies.size());
  const auto begin = Clock::now();
  for (int round = 0; round < repetitions || Clock::now() - begin < std::chrono::seconds(1); ++round)
    for (size_t i = 0; i < bodies.size(); ++i) {
      const double start = processor_seconds();
      bodies[i]();
      seconds[i].push_back((processor_seconds() - start) / workers);
    }
  std::vector<double> medians;
  for (std::vector<double>& of : seconds) {
    std::nth_element(of.begin(), of.begin() + std::ssize(of) / 2, of.end());
    medians.push_back(of[of.size() / 2]);
  }
  return medians;
}

double stream_bandwidth(Stream& stream, int repetitions) {
  constexpr int64_t kNumbers = int64_t{64} << 20;
  const Buffer a(kNumbers * 4), b(kNumbers * 4), c(kNumbers * 4);
  const auto view = [](const Buffer& buffer) { return buffer.tensor(DType::F32, {kNumbers}); };
  // Memory that was never written is one page of zeros, which is in the cache.
  for (const Buffer* buffer : {&a, &b, &c}) cpu_ops().fill(stream, view(*buffer), 1);
  const std::function<void()> sum = [&] { cpu_ops().add(stream, view(c), view(a), view(b)); };
  return 3.0 * kNumbers * 4 / median_seconds(stream.pool().size(), repetitions, {&sum, 1})[0];
}

// Reads one number of each row that `lookups` name, in their order, and writes nothing. Rows are prefetched `Ahead` rows
// early, into the first-level cache or the second. Rows of 16 numbers are single cache lines.
template <int Ahead, int Level>
void read_rows(Stream& stream, std::span<const BagLookup> lookups) {
  constexpr int64_t kPiece = 8192;
  const int64_t n = lookups[0].ids.elements(), pieces = (n + kPiece - 1) / kPiece;
  std::atomic<int64_t> next{0};
  std::vector<float> sums(static_cast<size_t>(stream.pool().size()) * 16);  // a cache line for each worker
  stream.pool().run([&](int worker) {
    float sum = 0;
    for (int64_t at = next++; at < pieces * std::ssize(lookups); at = next++) {
      const BagLookup& lookup = lookups[static_cast<size_t>(at / pieces)];
      const float* table = lookup.table.as<float>();
      const int32_t* ids = lookup.ids.as<int32_t>();
      const int64_t width = lookup.table.last_dim(), begin = at % pieces * kPiece;
      for (int64_t i = begin; i < std::min(n, begin + kPiece); ++i) {
        __builtin_prefetch(table + ids[std::min(n - 1, i + Ahead)] * width, 0, Level);
        sum += table[ids[i] * width];
      }
    }
    sums[static_cast<size_t>(worker) * 16] = sum;
  });
}

// Reads, adds to and writes the rows that `orders` name, in their order, prefetched as above.
template <int Ahead, int Level>
void change_rows(Stream& stream, std::span<const LookupOrder> orders, std::span<const BagLookup> lookups) {
  constexpr int64_t kPiece = 8192;
  const int64_t pieces = (lookups[0].ids.elements() + kPiece - 1) / kPiece;
  std::atomic<int64_t> next{0};
  stream.pool().run([&](int) {
    for (int64_t at = next++; at < pieces * std::ssize(lookups); at = next++) {
      const LookupOrder& order = orders[static_cast<size_t>(at / pieces)];
      float* table = lookups[static_cast<size_t>(at / pieces)].table.as<float>();
      const int32_t* rows = order.row.as<int32_t>();
      const int64_t begin = at % pieces * kPiece, end = std::min(*order.count.as<int64_t>(), begin + kPiece);
      for (int64_t i = begin; i < end; ++i) {
        __builtin_prefetch(table + rows[std::min(end - 1, i + Ahead)] * int64_t{16}, 1, Level);
        float* row = table + rows[i] * int64_t{16};
        for (int c = 0; c < 16; ++c) row[c] += 1e-6F;
      }
    }
  });
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

// Inserts a reader and a changer of rows of one line after each body, so that none finds more of the tables in the cache
// than the others.
void insert_references(std::vector<std::function<void()>>& bodies, Stream& stream,
                       const std::vector<BagLookup>& lookups, const std::vector<LookupOrder>& orders) {
  auto at = bodies.begin();
  const auto insert = [&]<int Ahead, int Level>() {
    at = bodies.insert(at + 1, [&] { read_rows<Ahead, Level>(stream, lookups); });
    at = bodies.insert(at + 1, [&] { change_rows<Ahead, Level>(stream, orders, lookups); }) + 1;
  };
  insert.operator()<32, 2>();
  insert.operator()<64, 2>();
  insert.operator()<128, 2>();
  insert.operator()<32, 3>();
  insert.operator()<64, 3>();
}

constexpr SparseKind kKinds[] = {SparseKind::Sgd, SparseKind::RowwiseAdagrad, SparseKind::Adagrad};

// Prints a line; whether the shares of the limits in it are large enough.
bool measure(Stream& stream, const Case& c, double bandwidth, int repetitions) {
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
  ops.sort_lookups(stream, orders, lookups);
  std::vector<std::vector<RowUpdate>> updates(std::size(kKinds));
  std::vector<std::function<void()>> bodies{[&] { ops.embedding_bags(stream, y, lookups); },
                                            [&] { ops.sort_lookups(stream, orders, lookups); }};
  for (size_t k = 0; k < std::size(kKinds); ++k) {
    const Shape shape = kKinds[k] == SparseKind::Adagrad ? Shape{c.rows, c.width} : Shape{c.rows};
    for (size_t t = 0; t < orders.size(); ++t)
      updates[k].push_back({lookups[t].table,
                            memory[t].state.tensor(DType::F32, shape),
                            {},
                            &orders[t],
                            lookups[t].column,
                            {},
                            0});
    bodies.emplace_back([&, k] { ops.update_rows(stream, y, updates[k], {.kind = kKinds[k], .lr = 1e-6}); });
  }
  const bool is_line = c.width == 16;
  if (is_line) insert_references(bodies, stream, lookups, orders);
  const std::vector<double> seconds = median_seconds(stream.pool().size(), repetitions, bodies);
  const size_t apart = is_line ? 3 : 1;  // measurements from one operation to the next
  const double forward = seconds[0], sorting = seconds[apart];
  double reading = 0, changing = 0;
  if (is_line) {
    reading = seconds[1], changing = seconds[2];
    for (size_t i = 4; i < seconds.size(); i += apart) {
      reading = std::min(reading, seconds[i]);
      changing = std::min(changing, seconds[i + 1]);
    }
  }
  double touched = 0, lines = 0;
  for (const LookupOrder& order : orders) {
    touched += static_cast<double>(*order.count.as<int64_t>());
    lines += lines_of_rows(order);
  }

  const double all = static_cast<double>(n * kTables);
  const double row_bytes = static_cast<double>(c.width) * 4;
  const double bag_bytes = static_cast<double>(c.bags * kTables) * row_bytes;
  const double forward_bytes = all * (4 + row_bytes) + bag_bytes;
  const double limit = is_line ? all * 64 / reading : bandwidth;
  const double update_limit = is_line ? touched * 2 * 64 / changing : bandwidth;
  std::cout << fmt::format("D {:>3} {:<7} pooling {:>2}: forward {:5.1f} GB/s {:3.0f} %", c.width,
                           c.zipf ? "zipf" : "uniform", c.pooling, forward_bytes / forward / 1e9,
                           100 * forward_bytes / forward / limit);
  double least = forward_bytes / forward / limit;
  if (is_line) {
    least = std::min(least, reading / forward);
    std::cout << fmt::format(" of {:.1f} GB/s, {:.1f} million rows/s, rows {:.0f} % | changed {:.1f} GB/s",
                             limit / 1e9, 1e-6 * all / forward, 100 * reading / forward, update_limit / 1e9);
  }
  for (size_t k = 0; k < std::size(kKinds); ++k) {
    const SparseKind kind = kKinds[k];
    const double state = kind == SparseKind::Sgd       ? 0
                         : kind == SparseKind::Adagrad ? touched * row_bytes
                                                       : lines * 64;
    const double bytes = bag_bytes + all * 24 + touched * 16 + 2 * (touched * row_bytes + state);
    const double both = seconds[apart * (2 + k)] + sorting;
    least = std::min(least, bytes / both / update_limit);
    std::cout << fmt::format(" | {} {:5.1f} GB/s {:3.0f} %",
                             kind == SparseKind::Sgd       ? "sgd"
                             : kind == SparseKind::Adagrad ? "adagrad"
                                                           : "rowwise",
                             bytes / both / 1e9, 100 * bytes / both / update_limit);
    if (kind == SparseKind::Sgd)
      std::cout << fmt::format(" (sort {:.2f} of {:.2f} ms)", sorting * 1e3, both * 1e3);
  }
  std::cout << std::endl;
  return least >= (is_line ? kLeastShareOfLines : kLeastShare);
}

}  // namespace

int main(int argc, char** argv) {
  ThreadPool pool(argc > 1 ? std::atoi(argv[1]) : 2);
  Stream stream(Stream::Mode::Inline, pool);
  const int repetitions = argc > 2 ? std::atoi(argv[2]) : 7;
  const int64_t width = argc > 3 ? std::atoi(argv[3]) : 0;  // 0: all
  const double bandwidth = stream_bandwidth(stream, repetitions);
  std::cout << fmt::format("{} workers, {}: memory {:.1f} GB/s\n", pool.size(), cpu_ops().name,
                           bandwidth / 1e9);
  bool enough = true;
  for (Case c : {Case{16, 4'000'000, 131072, 1, false}, Case{16, 4'000'000, 8192, 20, false},
                 Case{64, 1'000'000, 32768, 1, false}, Case{128, 500'000, 16384, 1, false},
                 Case{64, 1'000'000, 2048, 20, false}})
    for (const bool zipf : {false, true}) {
      if (width != 0 && c.width != width) continue;
      c.zipf = zipf;
      enough = measure(stream, c, bandwidth, repetitions) && enough;
    }
  std::cout << fmt::format(
      "the least shares are {:.0f} % of the limit and, of rows of a line, {:.0f} %: {}\n", 100 * kLeastShare,
      100 * kLeastShareOfLines, enough ? "reached" : "missed");
  return enough ? 0 : 1;
}
