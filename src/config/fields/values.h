// Option values that are more than a number or a name. Each is parsed once, when the command line or a file is read;
// `text` returns its text form. parse throws Error(BadInput) with the part of the message that follows the option's
// name: "'x' is not possible: ...".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "config/fields/schedule.h"

namespace trifold {

// --schedule: one of the schedules, or a file of actions with a name that ends in .csv.
struct ScheduleChoice {
  Schedule schedule = Schedule::OneFOneB;  // used if `file` is empty
  std::string file;

  ScheduleChoice(Schedule chosen)
      : schedule(chosen) {}  // NOLINT(google-explicit-constructor): the usual case
  static ScheduleChoice parse(std::string_view text);
  std::string text() const;
  bool from_file() const { return !file.empty(); }
};

// The number of a step, counted from 1.
struct StepNumber {
  static constexpr std::string_view kBounds = "at least 1";

  int64_t step = 1;

  bool operator==(const StepNumber&) const = default;
  static StepNumber parse(std::string_view text);
  std::string text() const { return std::to_string(step); }
};

// An element of a list of counts.
struct WholeNumber {
  static constexpr std::string_view kBounds = "at least 1";

  int64_t value = 1;

  bool operator==(const WholeNumber&) const = default;
  static WholeNumber parse(std::string_view text);
  std::string text() const { return std::to_string(value); }
};

// --window-size LEFT,RIGHT: the keys before and after a position that it attends to; -1: all.
struct WindowSize {
  int64_t left = -1, right = -1;

  bool operator==(const WindowSize&) const = default;
  bool covers_all() const { return left < 0 && right < 0; }
  static WindowSize parse(std::string_view text);
  std::string text() const { return std::to_string(left) + "," + std::to_string(right); }
};

// --lr-mult and --wd-mult PATTERN=FACTOR: a factor for the parameters whose names match a pattern of the shell.
struct ParamFactor {
  std::string pattern;
  double factor = 1;

  bool operator==(const ParamFactor&) const = default;
  static ParamFactor parse(std::string_view text);
  std::string text() const;
};

// --rope-short-factor, --rope-long-factor: how many times as slowly a pair of channels rotates.
struct RopeFactor {
  static constexpr std::string_view kBounds = "above 0";

  double factor = 1;

  bool operator==(const RopeFactor&) const = default;
  static RopeFactor parse(std::string_view text);
  std::string text() const;
};

// --zero-group-size: a number of ranks, or the ranks of a node.
struct GroupSize {
  static constexpr std::string_view kBounds = "at least 1";
  int ranks = 0;  // 0: the ranks of a node (run/nodes.h)

  static GroupSize parse(std::string_view text);
  std::string text() const;
  bool follows_nodes() const { return ranks == 0; }
};

// --offload: nowhere, the host's memory while a CUDA device computes, or files in a folder
// (files/file_memory.h).
struct Offload {
  enum class To { None, Host, Files };
  To to = To::None;
  std::string folder;  // for Files

  static Offload parse(std::string_view text);
  std::string text() const;
};

// A day of the calendar, as 2026-03-09.
struct Day {
  std::string iso;  // valid

  static Day parse(std::string_view text);
  std::string text() const { return iso; }
  bool operator==(const Day&) const = default;
};

}  // namespace trifold
