// Compares stores of an embedding table that is larger than memory: the same rows are loaded and stored, batch by
// batch, in our file of pages and log (RowFile), in RocksDB, and in a plain file that is mapped into memory.
//
//   row_store_bench --store ours|rocksdb|mapped|announced --folder FOLDER [--rows N] [--tables N] [--record-bytes N]
//     [--cache-rows N] [--batch N] [--churn N] [--warm-up N] [--steps N] [--threads N] [--seed N] [--bookkeeping]
//
// FOLDER is on the disk in question. It must have room for the table, with `rocksdb` for 1.5 times as much. To be run
// in a control group that limits memory (row_stores.sh), because the mapped file is otherwise in memory as a whole.
//
// A cache of --cache-rows rows is only simulated: which rows a batch looks up, which of them are missing and which
// others leave for them follows from the arguments, and is the same for each store. A batch has --batch ids, as many of
// each table, which follow Zipf's law (1.05) and are scattered over the rows of the table. The cache chooses victims as
// RowCache does (CLOCK with use counters) and begins full, with the most frequent rows of each table; every row is in
// the store already and every row of a batch changes, so that each missing row is read and each victim is written. It
// is the hardest case of such a table: a run that begins with an empty one neither reads rows that were never used nor,
// for a long time, evicts any.
//
// The contents of a row follow from the row and its version, the number of times that it was stored; what is loaded is
// compared with that. Only the stores' calls are timed; the simulation, the contents and their comparison are not.
// Every store gets the batch's victims, then must deliver its rows, one batch after another: a training step, during
// which most of this happens in a real run, is missing. The first --churn batches only store: a log fills, and levels
// of a tree grow, over thousands of batches, and only then do they cost what they cost in the long run. --warm-up
// batches follow.
//
//   ours       RowFile and PageQueue as RowCache uses them: victims go to the log, pages of missing rows are all in flight
//              together, around the page cache; a second thread merges the log
//   rocksdb    see RocksStore for its settings; --threads threads look the rows up, sorted, by MultiGet, one write batch
//              stores the victims
//   mapped     rows at row * record bytes, with MADV_RANDOM: victims and rows are copied in the order of the rows
//   announced  the same, but each page is announced first (MADV_WILLNEED), so that many reads are in flight together
//
// Prints one line. For --steps batches: the median and the 90th percentile of a batch's milliseconds, rows loaded per
// second; per batch, the rows loaded, megabytes read and written by this process (/proc/self/io) and milliseconds of
// its processors, background threads included, simulation and comparison not; the store's size on the disk at the end,
// seconds to fill it at the begin and to bring everything to its place at the end, and the peak of resident memory.
// --bookkeeping only prints the bytes of memory that the simulation takes.
//
// Exit status: 0; 1 after an error, or if a loaded row is wrong; 2 for invalid arguments.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "embedding/stored/row_file.h"
#include "embedding/stored/row_index.h"
#include "embedding/table_storage.h"
#include "files/file_memory.h"

#ifdef TRIFOLD_ROCKSDB
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/sst_file_writer.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>
#endif

namespace {

using namespace trifold;
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct Given {
  std::string store, folder;
  int64_t rows = 14'700'000, tables = 10, record = 68, cache = 2'500'000, batch = 20'480;
  int64_t churn = 0, warm_up = 400, steps = 200, threads = 32, seed = 1;
  bool bookkeeping = false;
  size_t record_bytes() const { return static_cast<size_t>(record); }
};

double seconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The number after `name` in a file of the system about this process.
double system_number(const char* path, const std::string& name) {
  std::ifstream in(path);
  for (std::string word; in >> word;)
    if (double value = 0; word == name && in >> value) return value;
  return 0;
}

// What a row's record holds after it was stored `version` times.
void fill_record(int64_t row, uint8_t version, std::byte* to, size_t bytes) {
  uint64_t word = static_cast<uint64_t>(row) << 8 | version;
  for (size_t at = 0; at < bytes; at += sizeof word) {
    word = (word ^ (word >> 31)) * 0x9e3779b97f4a7c15ULL + 1;
    std::memcpy(to + at, &word, std::min(sizeof word, bytes - at));
  }
}

// Rows that a batch loads and stores, each in ascending order, and records of these in the same order.
struct Batch {
  std::vector<int32_t> loads, stores;
  std::vector<std::byte> loaded, stored;
};

// The cache's rows and their use, without their contents.
class Simulation {
 public:
  explicit Simulation(const Given& given)
      : given_(given),
        rows_of_table_(given.rows / given.tables),
        index_(given.cache),
        row_of_slot_(static_cast<size_t>(given.cache), -1),
        last_batch_(row_of_slot_.size(), 0),
        uses_(row_of_slot_.size(), 0),
        version_(static_cast<size_t>(given.rows), 1) {
    // The most frequent rows, those that are used most often with the highest counters.
    const int64_t share = given.cache / given.tables;
    for (int64_t rank = 0, slot = 0; rank < share; ++rank)
      for (int64_t table = 0; table < given.tables; ++table, ++slot) {
        const int32_t row = row_of(table, static_cast<uint64_t>(rank));
        row_of_slot_[static_cast<size_t>(slot)] = row;
        for (uint8_t uses = 1; uses <= kMostUses; ++uses)
          if (rank < share >> uses) uses_[static_cast<size_t>(slot)] = uses;
        index_.assign(row, static_cast<int32_t>(slot));
      }
  }
  static size_t bytes(const Given& given) {
    const size_t of_slot = 2 * sizeof(int32_t) + sizeof(uint8_t);
    return RowIndex::bytes(given.cache) + static_cast<size_t>(given.cache) * of_slot +
           static_cast<size_t>(given.rows);
  }

  void next(Batch& batch) {
    ++number_;
    batch.loads.clear();
    batch.stores.clear();
    missing_.clear();
    const int64_t ids = given_.batch / given_.tables;
    for (int64_t table = 0; table < given_.tables; ++table)
      for (int64_t i = 0; i < ids; ++i) look_up(drawn(table, (number_ - 1) * ids + i));
    for (const int32_t row : missing_) {
      if (index_.find(row) != RowIndex::kNone) continue;  // drawn twice
      const size_t slot = free_slot();
      if (row_of_slot_[slot] >= 0) {
        index_.erase(row_of_slot_[slot]);
        batch.stores.push_back(row_of_slot_[slot]);
      }
      row_of_slot_[slot] = row;
      last_batch_[slot] = number_;
      uses_[slot] = 0;
      index_.assign(row, static_cast<int32_t>(slot));
      batch.loads.push_back(row);
    }
    std::sort(batch.loads.begin(), batch.loads.end());
    std::sort(batch.stores.begin(), batch.stores.end());
    fill(batch);
  }

  // Fails unless the loaded records are those that were stored last.
  void compare(const Batch& batch) {
    std::vector<std::byte> right(given_.record_bytes());
    for (size_t i = 0; i < batch.loads.size(); ++i) {
      const int32_t row = batch.loads[i];
      fill_record(row, version_[static_cast<size_t>(row)], right.data(), right.size());
      check(std::memcmp(right.data(), batch.loaded.data() + i * right.size(), right.size()) == 0,
            "batch {}: row {} was loaded with other contents than it was stored with", number_, row);
    }
  }

 private:
  static constexpr uint8_t kMostUses = 3;

  int32_t row_of(int64_t table, uint64_t rank) const {
    const auto rows = static_cast<uint64_t>(rows_of_table_);
    return static_cast<int32_t>(table * rows_of_table_ + static_cast<int64_t>(rank * 2654435761U % rows));
  }
  // The row of one id, by Zipf's law.
  int32_t drawn(int64_t table, int64_t id) const {
    const double power = 1 - 1.05;
    const double most = std::pow(static_cast<double>(rows_of_table_), power) - 1;
    const auto words = philox(philox_key(static_cast<uint64_t>(given_.seed), "ids"),
                              static_cast<uint64_t>(id * given_.tables + table));
    const double u = (words[0] + (words[1] + 0.5) * 0x1p-32) * 0x1p-32;
    const double rank = std::pow(1 + u * most, 1 / power) - 1;
    return row_of(table, std::min(static_cast<uint64_t>(rank), static_cast<uint64_t>(rows_of_table_ - 1)));
  }
  void look_up(int32_t row) {
    const int64_t slot = index_.find(row);
    if (slot == RowIndex::kNone) return missing_.push_back(row);
    const auto at = static_cast<size_t>(slot);
    if (last_batch_[at] == number_) return;
    if (uses_[at] < kMostUses) ++uses_[at];
    last_batch_[at] = number_;
  }
  size_t free_slot() {
    for (;;) {
      const auto slot = static_cast<size_t>(hand_);
      hand_ = hand_ + 1 == given_.cache ? 0 : hand_ + 1;
      if (number_ - last_batch_[slot] <= 1) continue;
      if (uses_[slot] == 0) return slot;
      --uses_[slot];
    }
  }
  void fill(Batch& batch) {
    const size_t record = given_.record_bytes();
    batch.loaded.assign(batch.loads.size() * record, std::byte{0});
    batch.stored.resize(batch.stores.size() * record);
    for (size_t i = 0; i < batch.stores.size(); ++i) {
      uint8_t& version = version_[static_cast<size_t>(batch.stores[i])];
      ++version;
      fill_record(batch.stores[i], version, batch.stored.data() + i * record, record);
    }
  }

  const Given& given_;
  int64_t rows_of_table_;
  RowIndex index_;
  std::vector<int32_t> row_of_slot_, last_batch_;
  std::vector<uint8_t> uses_;     // per slot
  std::vector<uint8_t> version_;  // per row, modulo 256
  std::vector<int32_t> missing_;
  int32_t number_ = 2;  // number of the current batch; more than 1 above the 0 of unused slots
  int64_t hand_ = 0;
};

class Store {
 public:
  virtual ~Store() = default;
  // Stores version 1 of every row.
  virtual void begin() = 0;
  virtual void store(const Batch& batch) = 0;
  virtual void load(Batch& batch) = 0;
  virtual void end_batch() {}
  // Waits until the writes in flight and the compactions of the store are done.
  virtual void settle() = 0;
  virtual double bytes_on_disk() const = 0;
};

class OurStore final : public Store, private PageQueue::Taker {
 public:
  explicit OurStore(const Given& given)
      : layout_(given.record_bytes()),
        rows_(given.rows),
        queue_(std::max(layout_.most_pages(), layout_.unit_pages)),
        merger_({&layout_, 1}),
        file_({given.folder, "--folder", "name another"}, given.rows, layout_,
              waiting_rows(given.rows, given.cache)) {}

  void begin() override {
    const auto never = [](int64_t, int64_t) { return false; };
    const auto see = [&](int64_t row, std::byte* record) {
      fill_record(row, 1, record, layout_.record);
      return true;
    };
    if (layout_.of_page > 0) {
      for (int64_t done = 0; done < rows_;) done += file_.visit(done, rows_ - done, never, merger_, see);
      return;
    }
    // Records that cross pages: a run's first page has the end of the record before it.
    const auto before = [&](int64_t first, int64_t) { return first < seen_; };
    for (; seen_ < rows_;) seen_ += file_.visit(seen_, rows_ - seen_, before, merger_, see);
  }
  void store(const Batch& batch) override {
    for (size_t i = 0; i < batch.stores.size(); ++i)
      std::memcpy(file_.put(batch.stores[i], queue_, merger_), batch.stored.data() + i * layout_.record,
                  layout_.record);
    queue_.finish();
  }
  // As RowCache::start_reads, with rows of a page read together.
  void load(Batch& batch) override {
    to_ = batch.loaded.data();
    reads_.clear();
    for (size_t i = 0; i < batch.loads.size(); ++i) {
      const RowFile::Location place = file_.find(batch.loads[i]);
      if (place.memory != nullptr)
        std::memcpy(to_ + i * layout_.record, place.memory, layout_.record);
      else
        reads_.push_back({place, i});
    }
    std::sort(reads_.begin(), reads_.end(), [](const Read& a, const Read& b) {
      return a.place.page != b.place.page ? a.place.page < b.place.page : a.place.pages > b.place.pages;
    });
    for (size_t i = 0; i < reads_.size(); ++i)
      if (i == 0 || reads_[i].place.page != reads_[i - 1].place.page)
        queue_.read(file_.pages(), reads_[i].place.page, reads_[i].place.pages, *this,
                    static_cast<int64_t>(i));
    queue_.finish();
  }
  void end_batch() override { file_.tidy(merger_); }
  void settle() override { file_.settle(queue_, merger_); }
  double bytes_on_disk() const override {
    struct stat status {};
    fstat(file_.pages().number(), &status);
    return 512.0 * static_cast<double>(status.st_blocks);
  }

 private:
  struct Read {
    RowFile::Location place;
    size_t at;  // in the batch
  };
  void take(int64_t tag, const std::byte* pages) override {
    const int64_t page = reads_[static_cast<size_t>(tag)].place.page;
    for (auto i = static_cast<size_t>(tag); i < reads_.size() && reads_[i].place.page == page; ++i)
      std::memcpy(to_ + reads_[i].at * layout_.record, pages + reads_[i].place.offset, layout_.record);
  }

  RowRecords layout_;
  int64_t rows_, seen_ = 0;
  PageQueue queue_;
  RowMerger merger_;
  RowFile file_;
  std::byte* to_ = nullptr;
  std::vector<Read> reads_;
};

class MappedStore final : public Store {
 public:
  MappedStore(const Given& given, bool announced)
      : record_(given.record_bytes()),
        rows_(given.rows),
        announced_(announced),
        memory_({given.folder, "--folder", "name another"}, static_cast<size_t>(given.rows) * record_) {
    check(madvise(memory_.data(), memory_.bytes(), MADV_RANDOM) == 0, "madvise: {}", std::strerror(errno));
  }

  void begin() override {
    const auto most = static_cast<int64_t>((size_t{1} << 20) / record_ + 1);
    std::vector<std::byte> run(static_cast<size_t>(most) * record_);
    for (int64_t row = 0; row < rows_; row += most) {
      const int64_t count = std::min(most, rows_ - row);
      for (int64_t i = 0; i < count; ++i)
        fill_record(row + i, 1, run.data() + static_cast<size_t>(i) * record_, record_);
      memory_.write(run.data(), place_of(row), static_cast<size_t>(count) * record_);
    }
    settle();
  }
  void store(const Batch& batch) override {
    announce(batch.stores);
    for (size_t i = 0; i < batch.stores.size(); ++i)
      std::memcpy(memory_.data() + place_of(batch.stores[i]), batch.stored.data() + i * record_, record_);
  }
  void load(Batch& batch) override {
    announce(batch.loads);
    for (size_t i = 0; i < batch.loads.size(); ++i)
      std::memcpy(batch.loaded.data() + i * record_, memory_.data() + place_of(batch.loads[i]), record_);
  }
  void settle() override {
    check(msync(memory_.data(), memory_.bytes(), MS_SYNC) == 0, "msync: {}", std::strerror(errno));
  }
  double bytes_on_disk() const override { return static_cast<double>(memory_.bytes()); }

 private:
  size_t place_of(int64_t row) const { return static_cast<size_t>(row) * record_; }
  void announce(const std::vector<int32_t>& rows) const {
    if (!announced_) return;
    for (const int32_t row : rows) memory_.expect(place_of(row), place_of(row) + record_);
  }

  size_t record_;
  int64_t rows_;
  bool announced_;
  FileMemory memory_;
};

#ifdef TRIFOLD_ROCKSDB

// Keys are rows of four bytes, the highest first, so that their order is that of the rows. Direct reads and writes;
// neither compression nor a log nor checksums on reads; blocks of a page with a hash index of their keys; indexes of
// all tables stay in memory, Bloom filters (10 bits a key) except in the last level, which has every key; a cache of 16
// MiB for blocks and two write buffers of 16 MiB; levels sized from the last one, compacted by two threads.
class RocksStore final : public Store {
 public:
  explicit RocksStore(const Given& given)
      : record_(given.record_bytes()),
        rows_(given.rows),
        threads_(static_cast<size_t>(given.threads)),
        folder_(fs::path(given.folder) / ("row_store_bench-" + std::to_string(getpid()))) {
    rocksdb::BlockBasedTableOptions table;
    table.block_size = 4096;
    table.block_cache = rocksdb::NewLRUCache(size_t{16} << 20);
    table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
    table.data_block_index_type = rocksdb::BlockBasedTableOptions::kDataBlockBinaryAndHash;
    table.format_version = 5;
    options_.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
    options_.create_if_missing = true;
    options_.compression = rocksdb::kNoCompression;
    options_.bottommost_compression = rocksdb::kNoCompression;
    options_.use_direct_reads = true;
    options_.use_direct_io_for_flush_and_compaction = true;
    options_.optimize_filters_for_hits = true;
    options_.level_compaction_dynamic_level_bytes = true;
    options_.write_buffer_size = size_t{16} << 20;
    options_.max_write_buffer_number = 2;
    options_.target_file_size_base = uint64_t{64} << 20;
    options_.max_bytes_for_level_base = uint64_t{64} << 20;
    options_.max_background_jobs = 2;
    options_.max_open_files = -1;
    rocksdb::DB* db = nullptr;
    require(rocksdb::DB::Open(options_, folder_.string(), &db));
    db_.reset(db);
  }
  ~RocksStore() override {
    db_.reset();
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  // Tables in the order of their keys, which become the last level.
  void begin() override {
    const auto most = static_cast<int64_t>((size_t{64} << 20) / record_);
    std::vector<std::string> files;
    std::vector<char> record(record_);
    for (int64_t row = 0; row < rows_;) {
      files.push_back((folder_ / ("begin-" + std::to_string(files.size()) + ".sst")).string());
      rocksdb::SstFileWriter writer(rocksdb::EnvOptions(), options_);
      require(writer.Open(files.back()));
      for (const int64_t end = std::min(rows_, row + most); row < end; ++row) {
        fill_record(row, 1, reinterpret_cast<std::byte*>(record.data()), record_);
        const Key key(row);
        require(writer.Put(key.slice(), {record.data(), record_}));
      }
      require(writer.Finish());
    }
    rocksdb::IngestExternalFileOptions ingest;
    ingest.move_files = true;
    require(db_->IngestExternalFile(files, ingest));
  }
  void store(const Batch& batch) override {
    rocksdb::WriteBatch writes(batch.stores.size() * (record_ + 16));
    for (size_t i = 0; i < batch.stores.size(); ++i)
      require(writes.Put(Key(batch.stores[i]).slice(),
                         {reinterpret_cast<const char*>(batch.stored.data()) + i * record_, record_}));
    rocksdb::WriteOptions options;
    options.disableWAL = true;
    require(db_->Write(options, &writes));
  }
  // A MultiGet waits for one block after another, so threads that share the rows keep the disk busy.
  void load(Batch& batch) override {
    std::vector<std::thread> threads;
    std::vector<std::string> errors(threads_);
    for (size_t t = 0; t < threads_; ++t)
      threads.emplace_back([&, t] {
        const size_t rows = batch.loads.size();
        errors[t] = load(batch, rows * t / threads_, rows * (t + 1) / threads_);
      });
    for (std::thread& thread : threads) thread.join();
    for (const std::string& error : errors) check(error.empty(), "RocksDB: {}", error);
  }
  void settle() override {
    require(db_->Flush({}));
    for (uint64_t pending = 1; pending > 0;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      pending = 0;
      for (const char* what : {"compaction-pending", "num-running-compactions", "num-running-flushes"}) {
        uint64_t number = 0;
        db_->GetIntProperty(std::string("rocksdb.") + what, &number);
        pending += number;
      }
    }
  }
  double bytes_on_disk() const override {
    double bytes = 0;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      struct stat status {};
      if (stat(entry.path().c_str(), &status) == 0) bytes += 512.0 * static_cast<double>(status.st_blocks);
    }
    return bytes;
  }

 private:
  struct Key {
    explicit Key(int64_t row) {
      for (int i = 0; i < 4; ++i) bytes[i] = static_cast<char>(row >> (24 - 8 * i));
    }
    rocksdb::Slice slice() const { return {bytes, sizeof bytes}; }
    char bytes[4];
  };
  static void require(const rocksdb::Status& status) { check(status.ok(), "RocksDB: {}", status.ToString()); }
  std::string load(Batch& batch, size_t begin, size_t end) const {
    const std::vector<Key> keys(batch.loads.begin() + static_cast<std::ptrdiff_t>(begin),
                                batch.loads.begin() + static_cast<std::ptrdiff_t>(end));
    std::vector<rocksdb::Slice> slices;
    for (const Key& key : keys) slices.push_back(key.slice());
    std::vector<rocksdb::PinnableSlice> values(keys.size());
    std::vector<rocksdb::Status> statuses(keys.size());
    rocksdb::ReadOptions options;
    options.verify_checksums = false;
    options.fill_cache = false;
    db_->MultiGet(options, db_->DefaultColumnFamily(), keys.size(), slices.data(), values.data(),
                  statuses.data(), true);
    for (size_t i = 0; i < keys.size(); ++i) {
      if (!statuses[i].ok()) return statuses[i].ToString();
      if (values[i].size() != record_) return "a record has another size";
      std::memcpy(batch.loaded.data() + (begin + i) * record_, values[i].data(), record_);
    }
    return {};
  }

  size_t record_;
  int64_t rows_;
  size_t threads_;
  fs::path folder_;
  rocksdb::Options options_;
  std::unique_ptr<rocksdb::DB> db_;
};

#endif

std::unique_ptr<Store> make_store(const Given& given) {
  if (given.store == "ours") return std::make_unique<OurStore>(given);
  if (given.store == "mapped" || given.store == "announced")
    return std::make_unique<MappedStore>(given, given.store == "announced");
#ifdef TRIFOLD_ROCKSDB
  if (given.store == "rocksdb") return std::make_unique<RocksStore>(given);
#endif
  bad_input("--store {}: this program has no such store{}", given.store,
            given.store == "rocksdb" ? ", as RocksDB was not found when it was built" : "");
}

// What the process took so far. The simulation's share of the processors is that of this thread outside the timed
// calls.
struct Used {
  double read, written, processors;
};
Used used(double simulated) {
  return {system_number("/proc/self/io", "read_bytes:"), system_number("/proc/self/io", "write_bytes:"),
          seconds_of(CLOCK_PROCESS_CPUTIME_ID) - simulated};
}

template <class Body>
double seconds(Body&& body) {
  const auto start = Clock::now();
  body();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void measure(const Given& given) {
  const std::unique_ptr<Store> store = make_store(given);
  const double filling = seconds([&] { store->begin(); });
  Simulation simulation(given);
  Batch batch;
  std::vector<double> times;
  double simulated = 0, loaded = 0;
  Used before{};
  for (int64_t step = -given.churn - given.warm_up; step < given.steps; ++step) {
    if (step == 0) before = used(simulated);
    double since = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    simulation.next(batch);
    simulated += seconds_of(CLOCK_THREAD_CPUTIME_ID) - since;
    const bool loads = step >= -given.warm_up;
    const double time = seconds([&] {
      store->store(batch);
      if (loads) store->load(batch);
      store->end_batch();
    });
    since = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    if (loads) simulation.compare(batch);
    simulated += seconds_of(CLOCK_THREAD_CPUTIME_ID) - since;
    if (step < 0) continue;
    times.push_back(time);
    loaded += static_cast<double>(batch.loads.size());
  }
  const Used after = used(simulated);
  const double settling = seconds([&] { store->settle(); });
  double sum = 0;
  for (const double time : times) sum += time;
  std::sort(times.begin(), times.end());
  const auto steps = static_cast<double>(times.size());
  std::printf(
      "%-9s median %7.2f ms, 90th percentile %7.2f, %8.0f rows/s; a batch: %5.0f rows, %6.1f MB read, %6.1f MB written, "
      "%6.2f ms of processors; %5.2f GB on disk, filled in %.0f s, settled in %.1f, peak of memory %.2f GiB\n",
      given.store.c_str(), 1e3 * times[times.size() / 2], 1e3 * times[times.size() * 9 / 10], loaded / sum,
      loaded / steps, (after.read - before.read) / steps * 1e-6,
      (after.written - before.written) / steps * 1e-6, (after.processors - before.processors) / steps * 1e3,
      store->bytes_on_disk() * 1e-9, filling, settling,
      system_number("/proc/self/status", "VmHWM:") / (1 << 20));
}

Given parse(const std::vector<std::string>& words) {
  Given given;
  const std::vector<std::pair<std::string, int64_t*>> numbers{
      {"--rows", &given.rows},        {"--tables", &given.tables}, {"--record-bytes", &given.record},
      {"--cache-rows", &given.cache}, {"--batch", &given.batch},   {"--churn", &given.churn},
      {"--warm-up", &given.warm_up},  {"--steps", &given.steps},   {"--threads", &given.threads},
      {"--seed", &given.seed}};
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--bookkeeping") {
      given.bookkeeping = true;
      continue;
    }
    if (i + 1 == words.size()) bad_input("{}: not an option, or without a value", words[i]);
    const std::string& value = words[++i];
    if (words[i - 1] == "--store" || words[i - 1] == "--folder") {
      (words[i - 1] == "--store" ? given.store : given.folder) = value;
      continue;
    }
    const auto found = std::find_if(numbers.begin(), numbers.end(),
                                    [&](const auto& each) { return each.first == words[i - 1]; });
    if (found == numbers.end()) bad_input("{}: no such option", words[i - 1]);
    *found->second = std::atoll(value.c_str());
    const bool may_be_0 =
        found->first == "--churn" || found->first == "--warm-up" || found->first == "--seed";
    if (*found->second < (may_be_0 ? 0 : 1)) bad_input("{} {}: too small", words[i - 1], value);
  }
  if (!given.bookkeeping && (given.store.empty() || given.folder.empty()))
    bad_input("--store and --folder are needed");
  given.rows = given.rows / given.tables * given.tables;
  given.batch = std::max(given.batch / given.tables, int64_t{1}) * given.tables;
  given.cache = given.cache / given.tables * given.tables;
  if (given.rows > INT32_MAX) bad_input("--rows {}: rows are numbers of 32 bits", given.rows);
  if (given.cache < 2 * given.batch || given.cache > given.rows)
    bad_input("--cache-rows {}: from two batches to all rows", given.cache);
  return given;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Given given = parse({argv + 1, argv + argc});
    if (given.bookkeeping)
      std::printf("%zu\n", Simulation::bytes(given));
    else
      measure(given);
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "row_store_bench: %s\n", error.what());
    return error.kind() == ErrorKind::BadInput ? 2 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "row_store_bench: %s\n", error.what());
    return 1;
  }
}
