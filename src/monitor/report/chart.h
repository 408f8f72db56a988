// chart_svg draws curves over the steps of runs as an SVG element for an HTML page.
//
// A curve with more points than the picture has columns is drawn by column: a light band from the smallest to the
// largest value, and a line through the means. The vertical axis is logarithmic if all values are positive and differ
// by more than a factor of a thousand.
#pragma once

#include <string>
#include <vector>

#include "monitor/report/run_log.h"

namespace trifold {

struct ChartLine {
  std::string name;   // for the pointer
  std::string color;  // a color of SVG
  bool dashed = false;
  const Curve* curve = nullptr;
};

// A mark at a step: a vertical line with a text for the pointer. Later marks are drawn over earlier ones; of marks of one
// color that fall on the same pixel, one is drawn.
struct ChartMark {
  int64_t step = 0;
  std::string color;
  std::string text;
};

// Empty if no line has a point.
std::string chart_svg(const std::string& title, const std::vector<ChartLine>& lines,
                      const std::vector<ChartMark>& marks = {});

}  // namespace trifold
