// BadRecords: records of the data that cannot be read, skipped and counted up to a limit. A record counts
// once, however often it is met.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "config/fields/config.h"

namespace trifold {

// All functions may be called from several threads at a time.
class BadRecords {
 public:
  // As --on-bad-record and --max-bad-records say.
  explicit BadRecords(const DataConfig& config)
      : skips_(config.on_bad_record == OnBadRecord::Skip), most_(config.max_bad_records) {}

  bool skips() const { return skips_; }
  // Whether the number of the record's line is worth reading its file again up to there.
  bool wants_line() const;
  // Counts the record at byte `offset` of `file`; `why` is what is wrong with it, its place included.
  // BadInput when that is one more than the limit.
  void add(const std::string& file, int64_t offset, const std::string& why);
  // A message about the records skipped since the last call; a long list is cut.
  std::vector<std::string> take_news();

 private:
  bool skips_;
  int64_t most_;
  mutable std::mutex mutex_;
  std::set<std::pair<std::string, int64_t>> places_;
  std::vector<std::string> news_;
  int64_t untold_ = 0;  // more than news_ has room for
};

}  // namespace trifold
