// BadRecords counts records of the data that cannot be read and are skipped, up to a limit. A record counts once,
// however often it is read.
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
  // The values of --on-bad-record and --max-bad-records.
  BadRecords(OnBadRecord reaction, int64_t most) : skips_(reaction == OnBadRecord::Skip), most_(most) {}
  explicit BadRecords(const DataConfig& config) : BadRecords(config.on_bad_record, config.max_bad_records) {}

  bool skips() const { return skips_; }
  // Whether a message about the next record needs its line number, for which the file must be read again.
  bool wants_line() const;
  // Counts the record at `offset` of `file`, a byte or a line; `why` says where and what is wrong. BadInput if the
  // limit is exceeded.
  void add(const std::string& file, int64_t offset, const std::string& why);
  // Messages about the records skipped since the last call; a long list is cut.
  std::vector<std::string> take_news();

 private:
  bool skips_;
  int64_t most_;
  mutable std::mutex mutex_;
  std::set<std::pair<std::string, int64_t>> places_;
  std::vector<std::string> news_;
  int64_t unreported_ = 0;  // records that did not fit into news_
};

}  // namespace trifold
