// Draws a simulated step: one row per pipeline rank, or one per line of work of a rank, with time to the right.
//
// Every action is a <rect> with a <title> (its text form and its times) that viewers show under the pointer.
// Computation is drawn in the row, messages and reductions in a thin band below it. If there are too many actions to
// tell apart, the boxes of a row and colour become one <path>, and messages are left out. Colours:
// schedule/action_colors.h.
#pragma once

#include <string>
#include <vector>

#include "schedule/simulate.h"

namespace trifold {

struct PictureText {
  std::string title;                    // one line
  std::string subtitle;                 // one line
  std::vector<std::string> lines = {};  // labels of the rows; empty: ranks
};

// The text of an SVG file, complete with title, legend and time axis.
std::string timeline_svg(const Simulation& simulation, const PictureText& text);

struct Timeline {
  Simulation simulation;
  PictureText text;
};

// Draws several steps, one below the other on a common time scale, so that their lengths can be compared.
std::string timelines_svg(const std::vector<Timeline>& timelines);

}  // namespace trifold
