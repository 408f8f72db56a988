// Files for preprocess/ids/number_ids.h: columns of keys, ids and dictionaries, read and written in chunks because they
// may be larger than memory; and temporary files. Errors are thrown as by files/raw_file.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "files/raw_file.h"

namespace trifold {

inline constexpr int64_t kValuesAtOnce = int64_t{1} << 18;  // values per chunk

// A key that gets an id, and the position of its first occurrence in the column, counted behind the values of an older
// dictionary. Ids are assigned in this order.
struct KeptKey {
  uint64_t first;
  uint64_t key;
};

// Returns the number of values of T in a file.
template <class T>
int64_t count_values(const RawFile& file) {
  return file.size() / static_cast<int64_t>(sizeof(T));
}

// Calls body(values, first) for all values of a file of T, in order; `first` is the index of the first of them.
template <class T>
void for_each_chunk(const RawFile& file, const std::function<void(std::span<T>, int64_t)>& body) {
  std::vector<T> chunk(static_cast<size_t>(kValuesAtOnce));
  const int64_t count = count_values<T>(file);
  for (int64_t first = 0; first < count; first += kValuesAtOnce) {
    const std::span<T> values(chunk.data(), static_cast<size_t>(std::min(kValuesAtOnce, count - first)));
    file.read_all(values, first);
    body(values, first);
  }
}

// Appends values to a file, in order.
template <class T>
class ColumnWriter {
 public:
  explicit ColumnWriter(const std::string& path) : file_(path, RawFile::Mode::Create) {}
  void add(const T& value) {
    waiting_.push_back(value);
    if (std::ssize(waiting_) == kValuesAtOnce) flush();
  }
  void flush() {
    file_.write_all(std::span<const T>(waiting_), written_);
    written_ += std::ssize(waiting_);
    waiting_.clear();
  }
  int64_t count() const { return written_ + std::ssize(waiting_); }

 private:
  RawFile file_;
  std::vector<T> waiting_;
  int64_t written_ = 0;
};

// Writes the hashes of a dictionary, in 4 or 8 bytes each.
class DictionaryWriter {
 public:
  DictionaryWriter(const std::string& path, int bytes) {
    if (bytes == 4) {
      narrow_.emplace(path);
    } else {
      wide_.emplace(path);
    }
  }
  void add(uint64_t key) {
    if (narrow_) {
      narrow_->add(static_cast<uint32_t>(key));
    } else {
      wide_->add(key);
    }
  }
  int64_t count() const { return narrow_ ? narrow_->count() : wide_->count(); }
  void flush() {
    if (narrow_) {
      narrow_->flush();
    } else {
      wide_->flush();
    }
  }

 private:
  std::optional<ColumnWriter<uint32_t>> narrow_;
  std::optional<ColumnWriter<uint64_t>> wide_;
};

inline int bytes_for(uint64_t largest_key) {
  return largest_key <= std::numeric_limits<uint32_t>::max() ? 4 : 8;
}

// Reads a file of KeptKey in order.
class KeptKeyReader {
 public:
  explicit KeptKeyReader(const std::string& path)
      : file_(path, RawFile::Mode::Read), left_(file_.size() / static_cast<int64_t>(sizeof(KeptKey))) {}
  std::optional<KeptKey> next() {
    if (at_ == chunk_.size()) {
      if (left_ == 0) return std::nullopt;
      chunk_.resize(static_cast<size_t>(std::min<int64_t>(left_, 4096)));
      file_.read_all(std::span<KeptKey>(chunk_), read_);
      read_ += std::ssize(chunk_);
      left_ -= std::ssize(chunk_);
      at_ = 0;
    }
    return chunk_[at_++];
  }

 private:
  RawFile file_;
  std::vector<KeptKey> chunk_;
  size_t at_ = 0;
  int64_t read_ = 0;
  int64_t left_;
};

// Names of temporary files; the destructor removes the files.
class ScratchFiles {
 public:
  explicit ScratchFiles(std::string prefix) : prefix_(std::move(prefix)) {}
  ~ScratchFiles() {
    std::error_code ignored;
    for (const std::string& path : paths_) std::filesystem::remove(path, ignored);
  }
  ScratchFiles(const ScratchFiles&) = delete;
  ScratchFiles& operator=(const ScratchFiles&) = delete;
  std::string add(const std::string& name) {
    paths_.push_back(prefix_ + name);
    return paths_.back();
  }

 private:
  std::string prefix_;
  std::vector<std::string> paths_;
};

// Reads ids of type u32 from a file in chunks, applies `change` to each chunk, and writes them to the new file `to` as
// integers of `bytes` bytes (1, 2 or 4).
inline void write_narrow_ids(const RawFile& from, const std::string& to, int bytes,
                             const std::function<void(std::span<uint32_t>)>& change) {
  RawFile out(to, RawFile::Mode::Create);
  std::vector<uint8_t> small(static_cast<size_t>(kValuesAtOnce) * 2);
  for_each_chunk<uint32_t>(from, [&](std::span<uint32_t> ids, int64_t first) {
    change(ids);
    if (bytes == 4) return out.write_all(std::span<const uint32_t>(ids), first);
    if (bytes == 1) {
      std::copy(ids.begin(), ids.end(), small.begin());
    } else {
      std::copy(ids.begin(), ids.end(), reinterpret_cast<uint16_t*>(small.data()));
    }
    const auto size = ids.size() * static_cast<size_t>(bytes);
    out.write(std::as_bytes(std::span(small).first(size)), first * bytes);
  });
}

}  // namespace trifold
