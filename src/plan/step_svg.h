// A drawing of a simulated step: one row a pipeline rank, or a line of work of each rank, time to the right.
//
// Every action is one <rect> with a <title> (its text form and its times) that viewers show under the
// pointer; computation stands in the row, messages and reductions in a thin band below it. Where there are
// too many to be seen one by one, the boxes of a row and colour become one <path>, and messages are left out.
// Colours: schedule/action_colors.h.
#pragma once

#include <string>
#include <vector>

#include "schedule/simulate.h"

namespace trifold {

struct PictureText {
  std::string title;                    // one line
  std::string subtitle;                 // one line
  std::vector<std::string> lines = {};  // what the rows are instead of ranks
};

// The text of an SVG file, complete with title, legend and time axis.
std::string timeline_svg(const Simulation& simulation, const PictureText& text);

struct Timeline {
  Simulation simulation;
  PictureText text;
};

// The same of several steps, one below the other on one scale of time, so that their lengths compare.
std::string timelines_svg(const std::vector<Timeline>& timelines);

}  // namespace trifold
