// HugeCTR's Norm files (their names end in .data): the format of its tools before Parquet. All numbers are
// little-endian.
//
//   header   8 x i64: check (0: no sums, 1: sums), records, labels, dense, slots, and three that are not used
//   record   f32 [labels], f32 [dense], and for each slot i32 n, then its n keys, each u32 or i64
//
// With sums, the header and each record are in a block: i32 length, the bytes, and their sum modulo 256. The file does
// not record whether keys have 4 or 8 bytes: the reader chooses the size with which the first records agree with the
// header.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "clicks/cells/field_values.h"
#include "clicks/click_format.h"
#include "core/error.h"
#include "files/mapped_file.h"
#include "preprocess/click_reader.h"

namespace trifold {

namespace {

constexpr int64_t kNormPieceSamples = int64_t{1} << 14;
constexpr int64_t kTriedRecords = 1000;
constexpr int64_t kMostSlots = 1 << 16;
constexpr int64_t kMostDense = 1 << 20;

// A record of a file, or why there is none.
struct NormRecord {
  int64_t begin = 0;  // offset of its labels
  int64_t end = 0;    // end of the record, with its sum
  std::string problem;
  bool one_each = true;  // key in each slot
};

// The records of a file, one after the other.
class NormFile {
 public:
  explicit NormFile(const std::string& path) : file_(path) {
    read_header();
    // Of a damaged file the size with which most records are whole, so that the damage is reported.
    int64_t most = -1;
    int best = 4;
    for (const int bytes : {4, 8}) {
      key_bytes_ = bytes;
      if (const int64_t whole = whole_records(); whole > most) {
        most = whole;
        best = bytes;
      }
    }
    key_bytes_ = best;
  }

  const MappedFile& file() const { return file_; }
  int64_t records() const { return header_[1]; }
  int64_t dense() const { return header_[3]; }
  int64_t slots() const { return header_[4]; }
  int64_t first() const { return first_; }

  NormRecord record_at(int64_t at) const {
    NormRecord record;
    record.begin = at + (sums() ? 4 : 0);
    int64_t stop = file_.size();
    if (sums()) {
      const std::optional<int32_t> bytes = number<int32_t>(at);
      if (!bytes) return failed("the file ends");
      if (*bytes < 0 || *bytes > stop - record.begin - 1)
        return failed(
            fmt::format("its length is {} bytes, the file has {} more", *bytes, stop - record.begin - 1));
      stop = record.begin + *bytes;
    }
    int64_t place = record.begin + 4 * (1 + dense());
    for (int64_t slot = 0; slot < slots(); ++slot) {
      const std::optional<int32_t> keys = place + 4 <= stop ? number<int32_t>(place) : std::nullopt;
      if (!keys) return failed(fmt::format("it ends before slot {}", slot));
      if (*keys < 0 || *keys > ClickFolder::kMostBagIds || place + 4 + int64_t{*keys} * key_bytes_ > stop)
        return failed(fmt::format("slot {} has {} keys, which exceed the record", slot, *keys));
      record.one_each = record.one_each && *keys == 1;
      place += 4 + int64_t{*keys} * key_bytes_;
    }
    if (place > stop) return failed("the file ends");
    record.end = place;
    if (!sums()) return record;
    if (place != stop)
      return failed(fmt::format("its length is {} bytes, its slots end after {}", stop - record.begin,
                                place - record.begin));
    if (sum_of(record.begin, stop) != static_cast<uint8_t>(file_.bytes()[static_cast<size_t>(stop)]))
      return failed("its bytes do not match the checksum after them: it is damaged");
    ++record.end;
    return record;
  }

  // The same; BadInput if there is none.
  NormRecord sample_at(int64_t sample, int64_t at) const {
    NormRecord found = record_at(at);
    if (!found.problem.empty())
      bad_input("{}: sample {}, at byte {}: {}", file_.path(), sample, at, found.problem);
    return found;
  }

  // Calls body(slot, count, key) with a function of a key's place, for each slot of a record.
  template <class Body>
  void for_each_slot(const NormRecord& record, Body body) const {
    int64_t place = record.begin + 4 * (1 + dense());
    for (int64_t slot = 0; slot < slots(); ++slot) {
      const int32_t count = *number<int32_t>(place);
      place += 4;
      body(slot, count, [this, place](int64_t k) {
        return key_bytes_ == 4 ? uint64_t{*number<uint32_t>(place + 4 * k)}
                               : id_of_whole(*number<int64_t>(place + 8 * k));
      });
      place += int64_t{count} * key_bytes_;
    }
  }

  template <class T>
  std::optional<T> number(int64_t at) const {
    if (at < 0 || at + static_cast<int64_t>(sizeof(T)) > file_.size()) return std::nullopt;
    T value;
    std::memcpy(&value, file_.bytes().data() + at, sizeof(T));
    return value;
  }

 private:
  static NormRecord failed(std::string problem) {
    NormRecord record;
    record.problem = std::move(problem);
    return record;
  }

  bool sums() const { return header_[0] == 1; }

  uint8_t sum_of(int64_t begin, int64_t end) const {
    const auto bytes = file_.bytes().subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    return std::accumulate(bytes.begin(), bytes.end(), uint8_t{0}, [](uint8_t sum, std::byte byte) {
      return static_cast<uint8_t>(sum + static_cast<uint8_t>(byte));
    });
  }

  void read_header() {
    constexpr int64_t kBytes = 8 * sizeof(int64_t);
    const std::string& path = file_.path();
    const bool in_block = number<int32_t>(0) == kBytes && number<int64_t>(4) == 1;
    const int64_t at = in_block ? 4 : 0;
    for (size_t i = 0; i < header_.size(); ++i) {
      const auto value = number<int64_t>(at + static_cast<int64_t>(8 * i));
      if (!value) bad_input("{} has {} bytes, the header of a HugeCTR file has 64", path, file_.size());
      header_[i] = *value;
    }
    first_ = at + kBytes + at / 4;
    if (header_[0] != (in_block ? 1 : 0) || header_[1] < 1 || header_[2] < 0 || header_[3] < 0 ||
        header_[3] > kMostDense || header_[4] < 1 || header_[4] > kMostSlots)
      bad_input(
          "{} is not a Norm file of HugeCTR: its header says check {}, {} records, {} labels, {} dense "
          "features and {} slots",
          path, header_[0], header_[1], header_[2], header_[3], header_[4]);
    if (header_[2] != 1)
      bad_input("{} has {} labels per sample; only files with one are supported", path, header_[2]);
    if (in_block && sum_of(4, 4 + kBytes) != number<uint8_t>(4 + kBytes))
      bad_input("{}: its header does not match the checksum after it: it is damaged", path);
  }

  // How many of the first records are records, twice, with one more for each label of these that is 0 or 1, and for an
  // end where the file has it.
  int64_t whole_records() const {
    int64_t at = first_;
    const int64_t count = std::min(records(), kTriedRecords);
    int64_t points = 0;
    for (int64_t r = 0; r < count; ++r) {
      const NormRecord record = record_at(at);
      if (!record.problem.empty()) return points;
      const float label = *number<float>(record.begin);
      points += label == 0 || label == 1 ? 3 : 2;
      at = record.end;
    }
    return points + (count == records() && at == file_.size() ? 1 : 0);
  }

  MappedFile file_;
  std::array<int64_t, 8> header_{};
  int64_t first_ = 0;
  int key_bytes_ = 4;
};

class NormReader final : public ClickReader {
 public:
  NormReader(const std::string& path, const PreprocessOptions& options)
      : options_(options), file_(path), at_(file_.first()) {
    if (options.columns)
      bad_input("{}: a file of HugeCTR has no column names, so --label has no effect: leave it out", path);
    if (options.format != "auto")
      bad_input("{} is a file of HugeCTR, which --data-format {} does not read: leave it out", path,
                options.format);
    refuse_names(options, path);
    layout_.rules.need = label_need(options.needs_labels, options.unlabelled);
    layout_.base = IdBase::Decimal;
    layout_.dense = static_cast<int>(file_.dense());
    layout_.tables = static_cast<int>(file_.slots());
    layout_.bags = options.norm_bags ? layout_.tables : 0;
    layout_.columns.clear();
    for (int t = 0; t < layout_.tables; ++t)
      layout_.columns.push_back({TextColumn::Kind::Id, t, fmt::format("C{}", t + 1)});
  }

  const TextLayout& layout() const override { return layout_; }
  int64_t size() const override { return file_.file().size(); }
  int64_t first_line() const override { return 0; }
  double share() const override { return static_cast<double>(done_) / static_cast<double>(file_.records()); }

  bool next(std::span<ClickPiece> pieces, ThreadPool& pool, const DropRule& drop) override {
    if (done_ == file_.records()) {
      if (at_ != size())
        bad_input("{} has {} bytes after its {} records", file_.file().path(), size() - at_, file_.records());
      return false;
    }
    const int64_t count = std::min(file_.records() - done_, std::ssize(pieces) * kNormPieceSamples);
    std::vector<NormRecord> records;
    for (int64_t r = 0; r < count; ++r) {
      records.push_back(file_.sample_at(done_ + r, at_));
      at_ = records.back().end;
      if (layout_.bags == 0 && !records.back().one_each)
        bad_input("{}: sample {} has a slot without exactly one key: the file was changed",
                  file_.file().path(), done_ + r);
    }
    pool.run([&](int worker) {
      const int64_t first = std::min(count, worker * kNormPieceSamples);
      fill(records, first, std::min(count, first + kNormPieceSamples), drop,
           pieces[static_cast<size_t>(worker)]);
    });
    done_ += count;
    return true;
  }

 private:
  // Fills a piece with records [first, end) of `records`.
  void fill(const std::vector<NormRecord>& records, int64_t first, int64_t end, const DropRule& drop,
            ClickPiece& piece) const {
    PieceBuilder builder(layout_, options_, drop, piece);
    ClickRow row(layout_);
    for (int64_t r = first; r < end; ++r) {
      const NormRecord& record = records[static_cast<size_t>(r)];
      row.begin(builder.open());
      if (std::optional<LineProblem> problem = take_numbers(record, row)) {
        builder.reject(std::move(*problem));
        continue;
      }
      file_.for_each_slot(record, [&](int64_t slot, int32_t count, const auto& key) {
        if (row.bags.empty()) {
          row.ids[static_cast<size_t>(slot)] = key(0);
          return;
        }
        for (int32_t k = 0; k < count; ++k) row.bags[static_cast<size_t>(slot)].ids.push_back(key(k));
      });
      builder.close(row, done_ + r);
    }
  }

  // Puts label and dense numbers of a record into a row.
  std::optional<LineProblem> take_numbers(const NormRecord& record, ClickRow& row) const {
    const auto number = [&](int64_t n) { return *file_.number<float>(record.begin + 4 * n); };
    const std::optional<uint8_t> clicked = label_in(layout_.rules, 0, number(0));
    if (!clicked)
      return LineProblem{"the label is not 0 or 1", fmt::format("the label is {}, not 0 or 1", number(0))};
    row.labels[0] = *clicked;
    for (int d = 0; d < layout_.dense; ++d) {
      const std::optional<float> found = dense_in(layout_.rules, number(1 + d));
      if (!found)
        return LineProblem{fmt::format("dense feature {} is not a number", d),
                           fmt::format("dense feature {} is {}, not a number", d, number(1 + d))};
      row.dense[d] = *found;
    }
    return std::nullopt;
  }

  const PreprocessOptions& options_;
  NormFile file_;
  TextLayout layout_;
  int64_t at_;
  int64_t done_ = 0;
};

}  // namespace

bool has_norm_bags(const std::string& path) {
  const NormFile file(path);
  int64_t at = file.first();
  for (int64_t r = 0; r < file.records(); ++r) {
    const NormRecord found = file.sample_at(r, at);
    if (!found.one_each) return true;
    at = found.end;
  }
  return false;
}

std::unique_ptr<ClickReader> open_norm_reader(const std::string& path, const PreprocessOptions& options) {
  return std::make_unique<NormReader>(path, options);
}

}  // namespace trifold
