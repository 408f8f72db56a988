// JsonLog appends records to a file, one JSON object per line with numbers at full precision, and flushes each.
#pragma once

#include <fstream>
#include <string>

#include "monitor/record.h"

namespace trifold {

class JsonLog final : public RecordSink {
 public:
  // Removes an incomplete last line, which a kill has left. BadInput if the file cannot be opened.
  explicit JsonLog(const std::string& path);
  void write(const RunRecord& record) override;

 private:
  std::string path_;
  std::ofstream file_;
};

}  // namespace trifold
