// Values of options that are more than one number or one name. Each is made from its text once, when the
// command line or a file is read, and has `text` to be shown; parse throws Error(BadInput) with what stands
// behind the name of the option in a message: "'x' is not possible: ...".
#pragma once

#include <string>
#include <string_view>

#include "config/fields/schedule.h"

namespace trifold {

// --schedule: one of the schedules, or a file of actions, whose name ends in .csv.
struct ScheduleChoice {
  Schedule schedule = Schedule::OneFOneB;  // where `file` is empty
  std::string file;

  ScheduleChoice(Schedule chosen)
      : schedule(chosen) {}  // NOLINT(google-explicit-constructor): the usual case
  static ScheduleChoice parse(std::string_view text);
  std::string text() const;
  bool from_file() const { return !file.empty(); }
};

// --zero-group-size: a number of ranks, or those of a node.
struct GroupSize {
  int ranks = 0;  // 0: those of a node (run/nodes.h)

  static GroupSize parse(std::string_view text);
  std::string text() const;
  bool follows_nodes() const { return ranks == 0; }
};

// --offload: nowhere, the host's memory while a CUDA device computes, or files in a folder
// (files/file_memory.h).
struct Offload {
  enum class To { None, Host, Files };
  To to = To::None;
  std::string folder;  // of Files

  static Offload parse(std::string_view text);
  std::string text() const;
};

}  // namespace trifold
