#include "monitor/report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <utility>

#include "core/markup_text.h"

namespace trifold {

namespace {

constexpr double kWidth = 560, kHeight = 250, kLeft = 64, kRight = 12, kTop = 30, kBottom = 34;
constexpr int kColumns = 400;

// The values of a curve in one column of the picture.
struct Column {
  double step = 0, mean = 0, least = 0, most = 0;
};

std::vector<Column> columns_of(const Curve& curve) {
  std::vector<Column> columns;
  const size_t count = curve.size();
  const size_t most = std::min<size_t>(count, kColumns);
  for (size_t i = 0; i < most; ++i) {
    const size_t begin = i * count / most, end = (i + 1) * count / most;
    Column column{0, 0, std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
    for (size_t j = begin; j < end; ++j) {
      const double share = 1 / static_cast<double>(end - begin);
      column.step += share * static_cast<double>(curve[j].step);
      column.mean += share * curve[j].value;
      column.least = std::min(column.least, curve[j].value);
      column.most = std::max(column.most, curve[j].value);
    }
    columns.push_back(column);
  }
  return columns;
}

// A scale from values to pixels, with ticks.
class Scale {
 public:
  Scale(double low, double high, double begin, double end, bool logarithmic)
      : low_(low), high_(high), begin_(begin), end_(end), logarithmic_(logarithmic) {
    if (high_ > low_) return;
    const double margin = low_ == 0 ? 1 : std::abs(low_) / 10;
    high_ = low_ + margin;
    low_ -= logarithmic_ ? 0 : margin;
  }
  double at(double value) const {
    const double share = logarithmic_ ? std::log(value / low_) / std::log(high_ / low_)
                                      : value / (high_ - low_) - low_ / (high_ - low_);
    return begin_ + (end_ - begin_) * std::clamp(share, 0.0, 1.0);
  }
  std::vector<double> ticks(int count) const {
    std::vector<double> found;
    if (logarithmic_) {
      const double decades = std::log10(high_ / low_);
      const double stride = std::max(1.0, std::ceil(decades / count));
      for (double power = std::ceil(std::log10(low_)); power <= std::log10(high_); power += stride)
        found.push_back(std::pow(10, power));
      return found;
    }
    const double step = step_for((high_ - low_) / count);
    const double first = std::ceil(low_ / step);
    // Adding the step again and again would not end where it is too small to change a large value.
    for (int i = 0; i <= 2 * count; ++i)
      if (const double tick = (first + i) * step; tick <= high_) found.push_back(tick);
    return found;
  }

 private:
  // 1, 2 or 5 times a power of ten, not below `raw`.
  static double step_for(double raw) {
    const double power = std::pow(10, std::floor(std::log10(raw)));
    for (const double factor : {1.0, 2.0, 5.0})
      if (raw <= factor * power) return factor * power;
    return 10 * power;
  }

  double low_, high_, begin_, end_;
  bool logarithmic_;
};

struct Limits {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

std::string number_text(double value) { return fmt::format("{:.4g}", std::abs(value) < 1e-300 ? 0 : value); }

class Chart {
 public:
  Chart(const std::string& title, const std::vector<ChartLine>& lines) : title_(title), lines_(lines) {
    Limits steps, values;
    for (const ChartLine& line : lines)
      for (const CurvePoint& point : *line.curve) {
        steps.add(static_cast<double>(point.step));
        values.add(point.value);
      }
    empty_ = values.high < values.low;
    if (empty_) return;
    logarithmic_ = values.low > 0 && values.high / values.low > 1000;
    x_ = {steps.low, steps.high, kLeft, kWidth - kRight, false};
    y_ = {values.low, values.high, kHeight - kBottom, kTop, logarithmic_};
    steps_ = steps;
  }

  std::string svg(const std::vector<ChartMark>& marks) {
    if (empty_) return {};
    print("<svg viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\" aria-label=\"{2}\">\n",
          kWidth, kHeight, markup_text(title_));
    print("<text x=\"{}\" y=\"18\" class=\"title\">{}{}</text>\n", kLeft, markup_text(title_),
          logarithmic_ ? " (logarithmic)" : "");
    axes();
    draw(marks);
    for (const ChartLine& line : lines_) draw(line);
    print("</svg>\n");
    return std::move(text_);
  }

 private:
  // Of marks that fall on the same pixel in the same color, the first is drawn and tells how many more there are.
  void draw(const std::vector<ChartMark>& marks) {
    struct Drawn {
      const ChartMark* mark;
      double x;
      int64_t more;
    };
    std::vector<Drawn> drawn;
    std::map<std::pair<int64_t, std::string>, size_t> places;  // by pixel and color
    for (const ChartMark& mark : marks) {
      if (static_cast<double>(mark.step) < steps_.low) continue;
      const double x = x_.at(static_cast<double>(mark.step));
      const auto [place, is_new] = places.try_emplace({std::llround(x), mark.color}, drawn.size());
      if (is_new)
        drawn.push_back({&mark, x, 0});
      else
        ++drawn[place->second].more;
    }
    for (const Drawn& one : drawn)
      print(
          "<line class=\"mark\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" stroke=\"{3}\"><title>{4}{5}"
          "</title></line>\n",
          one.x, kTop, kHeight - kBottom, one.mark->color, markup_text(one.mark->text),
          one.more > 0 ? fmt::format(" (and {} more here)", one.more) : "");
  }

  template <class... Args>
  void print(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }

  void axes() {
    for (const double tick : y_.ticks(5)) {
      print("<line class=\"grid\" x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/>", kLeft,
            kWidth - kRight, y_.at(tick));
      print("<text x=\"{}\" y=\"{:.1f}\" class=\"left\">{}</text>\n", kLeft - 6, y_.at(tick) + 4,
            number_text(tick));
    }
    for (const double tick : x_.ticks(6))
      if (tick == std::floor(tick))
        print("<text x=\"{:.1f}\" y=\"{}\" class=\"below\">{:.0f}</text>", x_.at(tick),
              kHeight - kBottom + 16, tick);
    print("<line class=\"axis\" x1=\"{0}\" x2=\"{1}\" y1=\"{2}\" y2=\"{2}\"/>\n", kLeft, kWidth - kRight,
          kHeight - kBottom);
  }

  void draw(const ChartLine& line) {
    const std::vector<Column> columns = columns_of(*line.curve);
    if (columns.empty()) return;
    print("<g stroke=\"{0}\" fill=\"{0}\"><title>{1}</title>", line.color, markup_text(line.name));
    if (line.curve->size() > columns.size()) {
      print("<polygon class=\"band\" points=\"");
      for (const Column& column : columns) print("{:.1f},{:.1f} ", x_.at(column.step), y_.at(column.most));
      for (auto column = columns.rbegin(); column != columns.rend(); ++column)
        print("{:.1f},{:.1f} ", x_.at(column->step), y_.at(column->least));
      print("\"/>");
    }
    print("<polyline class=\"curve\"{} points=\"", line.dashed ? " stroke-dasharray=\"6 3\"" : "");
    for (const Column& column : columns) print("{:.1f},{:.1f} ", x_.at(column.step), y_.at(column.mean));
    print("\"/>");
    if (columns.size() <= 40)
      for (const Column& column : columns)
        print("<circle r=\"2.5\" cx=\"{:.1f}\" cy=\"{:.1f}\"><title>{}, step {:.0f}: {}</title></circle>",
              x_.at(column.step), y_.at(column.mean), markup_text(line.name), column.step,
              number_text(column.mean));
    print("</g>\n");
  }

  std::string title_;
  const std::vector<ChartLine>& lines_;
  bool empty_ = true, logarithmic_ = false;
  Limits steps_;
  Scale x_{0, 1, 0, 1, false}, y_{0, 1, 0, 1, false};
  std::string text_;
};

}  // namespace

std::string chart_svg(const std::string& title, const std::vector<ChartLine>& lines,
                      const std::vector<ChartMark>& marks) {
  return Chart(title, lines).svg(marks);
}

}  // namespace trifold
