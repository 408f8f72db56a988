// The weights of the paths of a blend over a run, --data-schedule: a JSON object, in a file or as the option's value,
// whose members give the weights from a number of consumed tokens on:
//
//   {"0": {"web": 8, "code": 2}, "1e9": {"web": 5, "code": 5}, "between": "lines"}
//
// Weights of a point are divided by their sum; a path that a point does not name has the weight 0. A path is named as in
// --data-path, or by its file name, with or without its endings (web or web.jsonl for web.jsonl.gz), where only one path
// has that name.
// Between points the weights stay ("steps", the default) or change in a line ("lines"); after the last point they stay.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/blend/blend_shares.h"

namespace trifold {

class DataSchedule {
 public:
  // `option` is the option's value. BadInput for mistakes in it.
  DataSchedule(const std::string& option, const std::vector<std::string>& paths);

  // The shares of samples of `seq_length` tokens: a point applies to the samples that begin at or after it.
  BlendShares shares(int64_t seq_length) const;
  // The shares of the last point.
  const std::vector<double>& last() const { return points_.back().shares; }
  // [path] The names of the paths in the schedule.
  const std::vector<std::string>& names() const { return names_; }
  // A text that is equal for schedules with equal weights, to compare the data of runs.
  std::string text() const;

 private:
  struct Point {
    int64_t tokens = 0;
    std::vector<double> shares;  // [path], sum 1
  };

  std::vector<std::string> names_;
  std::vector<Point> points_;  // by tokens
  BlendShares::Between between_ = BlendShares::Between::Steps;
};

}  // namespace trifold
