#include "preprocess/ids/number_tables.h"

#include <atomic>
#include <filesystem>
#include <mutex>
#include <utility>

#include "preprocess/ids/number_ids.h"
#include "preprocess/ids/unknown_ids.h"

namespace trifold {

namespace {

class TableNumbering {
 public:
  TableNumbering(const NumberingJob& job, ClickFolder& folder, ThreadPool& pool)
      : job_(job), folder_(folder), pool_(pool) {}

  // Each worker takes the next table; the assignment does not affect the result.
  NumberedTables number_all(FunctionRef<void(int)> progress) {
    std::atomic<int> next{0};
    std::atomic<int> done{0};
    std::mutex reporting;
    pool_.run([&](int) {
      for (int t = next++; t < std::ssize(folder_.tables); t = next++) {
        if (folder_.tables[static_cast<size_t>(t)].shares.empty()) number_columns(columns_of(t));
        const std::lock_guard lock(reporting);
        progress(++done);
      }
    });
    return {partitioned_, unknown_};
  }

 private:
  // The columns of a table, that with its name first.
  std::vector<int> columns_of(int table) const {
    std::vector<int> columns{table};
    const std::vector<ClickFolder::Table>& tables = folder_.tables;
    for (size_t t = 0; t < tables.size(); ++t)
      if (tables[t].shares == tables[static_cast<size_t>(table)].name) columns.push_back(static_cast<int>(t));
    return columns;
  }

  // The job of a column.
  IdColumnJob job_of(int t) const {
    IdColumnJob job;
    job.keys = job_.keys.key_file(t);
    job.key_bytes = job_.key_bytes;
    job.scratch = job.keys + ".";
    job.ids = folder_.ids_file(job_.folder, t);
    job.dictionary = folder_.dictionary_file(job_.folder, t);
    job.threshold = job_.options.frequency_threshold;
    job.memory = job_.options.memory / static_cast<size_t>(pool_.size());
    return job;
  }

  void number_columns(const std::vector<int>& columns) {
    if (job_.options.keep_keys) return keep_keys(columns[0]);
    IdColumnResult ids;
    std::optional<int> given;  // bytes of a hash in the table's dictionary, once it is complete
    if (!job_.options.hash_ids) given = finish_dictionary(columns, ids);
    for (const int t : columns) {
      IdColumnJob job = job_of(t);
      job.given = given;
      if (job_.options.hash_ids)
        ids = number_hashed_ids(job, job_.options.max_ind_range);
      else if (given)
        ids = number_ids(job);
      take_in_ids(t, ids);
      if (!job_.options.hash_ids) count_unknown(t, job);
      std::filesystem::remove(job.keys);
    }
  }

  // Makes, or copies, the dictionary of a table. Returns the bytes of its hashes if columns are still to be numbered by
  // it; a single column of a new dictionary has its ids already, with what `ids` says.
  //
  // The dictionary of several columns is that of the first, grown by the values of the others; each column is numbered
  // again when it is complete, because a value that is rare in one may have an id by another.
  std::optional<int> finish_dictionary(const std::vector<int>& columns, IdColumnResult& ids) {
    const std::string file = folder_.dictionary_file(job_.folder, columns[0]);
    std::optional<IdColumnJob::Known> known;
    if (job_.given != nullptr) {
      known = {job_.given->dictionary_file(*job_.options.dictionaries_of, columns[0]),
               job_.given->tables[static_cast<size_t>(columns[0])].dictionary_bytes};
      if (!job_.options.grow_dictionaries) {
        std::filesystem::copy_file(known->file, file);
        return known->bytes;
      }
    }
    for (const int t : columns) {
      IdColumnJob job = job_of(t);
      job.known = known;
      if (t != columns.back()) job.dictionary = job.scratch + "dictionary";
      ids = number_ids(job);
      if (known && t != columns[0]) std::filesystem::remove(known->file);
      known = {job.dictionary, ids.dictionary_bytes};
    }
    if (columns.size() == 1) return std::nullopt;
    return ids.dictionary_bytes;
  }

  void keep_keys(int t) {
    ClickFolder::Table& table = folder_.tables[static_cast<size_t>(t)];
    std::filesystem::rename(job_.keys.key_file(t), folder_.ids_file(job_.folder, t));
    table.keys = true;
    table.dictionary = false;
    table.id_bytes = job_.key_bytes;
  }

  void take_in_ids(int t, const IdColumnResult& ids) {
    ClickFolder::Table& table = folder_.tables[static_cast<size_t>(t)];
    table.rows = ids.rows;
    table.id_bytes = ids.id_bytes;
    table.dictionary = !job_.options.hash_ids;
    table.dictionary_bytes = ids.dictionary_bytes;
    if (table.dictionary) table.dictionary_crc = folder_.dictionary_checksum(job_.folder, t);
    if (job_.given != nullptr && table.dictionary) note_older(t);
    const std::lock_guard lock(counting_);
    partitioned_ += ids.partitions > 1 ? 1 : 0;
  }

  // Only a dictionary of other data, and one with a threshold, lacks values. Which ones is of use for evaluations, whose
  // data are numbered by a dictionary of other data.
  void count_unknown(int t, const IdColumnJob& job) {
    if (job_.given == nullptr && job_.options.frequency_threshold <= 1) return;
    ClickFolder::Table& table = folder_.tables[static_cast<size_t>(t)];
    const bool grows = job_.options.grow_dictionaries;
    const int64_t known = grows ? job_.given->tables[static_cast<size_t>(t)].rows : table.rows;
    const std::string hashes = job_.given != nullptr ? folder_.unknown_file(job_.folder, t) : std::string();
    const UnknownIds counts = count_unknown_ids(job, table.id_bytes, known, hashes);
    if (!hashes.empty() && counts.unknown > 0)
      table.unknown_values = counts.unknown;
    else if (!hashes.empty())
      std::filesystem::remove(hashes);
    const std::lock_guard lock(counting_);
    unknown_.emplace(t, counts);
  }

  // Records the dictionary that a table's was grown from, if they differ.
  void note_older(int t) {
    ClickFolder::Table& table = folder_.tables[static_cast<size_t>(t)];
    const ClickFolder::Table& older = job_.given->tables[static_cast<size_t>(t)];
    table.grown_from = older.grown_from;
    std::string mapping = job_.given->mapping(*job_.options.dictionaries_of, t);
    if (mapping != folder_.mapping(job_.folder, t))
      table.grown_from.push_back({older.rows, std::move(mapping)});
  }

  const NumberingJob& job_;
  ClickFolder& folder_;
  ThreadPool& pool_;
  std::mutex counting_;
  int partitioned_ = 0;
  std::map<int, UnknownIds> unknown_;
};

}  // namespace

NumberedTables number_tables(const NumberingJob& job, ClickFolder& folder, ThreadPool& pool,
                             FunctionRef<void(int done)> progress) {
  return TableNumbering(job, folder, pool).number_all(progress);
}

}  // namespace trifold
