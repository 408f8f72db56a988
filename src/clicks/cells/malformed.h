// Reports malformed lines or rows of raw clicks: counts them by kind, shows the first ones, and limits them to a share
// of the input.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "config/fields/recommend_choices.h"

namespace trifold {

struct LineProblem {
  std::string kind;  // "column x is not a number": lines with the same problem are counted together
  std::string text;  // "column x: 'abc' is not a number"
};

// Share of malformed lines above which an input is rejected, unless an option says otherwise.
constexpr double kMaxMalformed = 0.01;

struct TextReport {
  static constexpr int64_t kShown = 10;
  int64_t lines = 0;                     // total, without the header and blank lines
  int64_t malformed = 0;                 // malformed lines, which were skipped
  int64_t unlabelled = 0;                // valid lines without a label
  std::map<std::string, int64_t> kinds;  // lines of each kind of problem
  std::vector<std::string> shown;        // the first ten: "file:line: column ...: what is wrong"

  std::vector<std::string> files_left_out;  // files of the input folders that were not read

  // Rows of the input that are no samples, ascending, counted from 0 over all files; only filled with note_left_out.
  std::vector<int64_t> left_out;

  void add(const std::string& file, int64_t line_number, const LineProblem& problem);
  // Appends the report of a later piece of text.
  void append(const TextReport& other);
  // "3 of 1000 lines are malformed and left out (column x is not a number: 2, too few fields: 1)"; empty if none are.
  std::string summary() const;
  // The summary and the first problem, in one line.
  std::string line() const;
  // The summary and the first ten problems, a line each.
  std::string text() const;
  // "3 of 1000 rows have no label and are left out"; empty if all have one, or are samples without one.
  std::string unlabelled_text(Unlabelled treatment) const;
  // "not read: README.md, notes.doc"; empty if every file of the folders was read.
  std::string files_text() const;
};

// BadInput with the report's text if more than the share `most` of the lines are malformed.
void check_malformed(const TextReport& report, double most);

}  // namespace trifold
