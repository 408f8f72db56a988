#include "plan/pictures/step_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "core/markup_text.h"
#include "schedule/action_colors.h"

namespace trifold {

namespace {

// Up to this number every action is a separate box.
constexpr size_t kMostBoxes = 12'000;

struct TimeUnit {
  double seconds;
  const char* name;
};

TimeUnit unit_for(double makespan) {
  if (makespan >= 2) return {1, "s"};
  if (makespan >= 2e-3) return {1e-3, "ms"};
  return {1e-6, "µs"};
}

// 1, 2 or 5 times a power of ten such that about `count` of them make up `span`.
double tick_step(double span, int count) {
  const double raw = span / count;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (raw <= factor * power) return factor * power;
  return 10 * power;
}

class Picture {
 public:
  // `scope` prefixes its styles if it shares a document: a selector of an enclosing element.
  Picture(const Simulation& simulation, const PictureText& text, std::string scope = "")
      : simulation_(simulation), text_(text), scope_(std::move(scope)) {
    for (const TimelineEntry& entry : simulation.timeline) {
      stages_[entry.rank].insert(entry.action.stage);
      looks_.insert(look_of(entry.action.kind));
    }
    for (const auto& [rank, stages] : stages_) chunks_ = std::max(chunks_, stages.size());
    detailed_ = simulation.timeline.size() <= kMostBoxes;
    lay_out();
  }

  double width() const { return kLeft + plot_ + kRight; }
  double height() const { return bottom() + kBelow; }
  double makespan() const { return std::max(simulation_.makespan, 1e-12); }
  double most() const { return detailed_ ? 2000.0 : 2800.0; }  // width of the time axis in pixels
  double scale() const { return scale_; }                      // pixels per second
  void use_scale(double scale) {
    scale_ = scale;
    plot_ = scale * makespan();
    place_rows();
  }

  // Draws everything but the background.
  std::string draw() {
    styles();
    titles();
    rows();
    axis();
    if (detailed_)
      boxes();
    else
      paths();
    legend();
    return std::move(out_);
  }

 private:
  template <class... Args>
  void print(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }

  size_t ranks() const { return simulation_.ranks.size(); }
  double x(double seconds) const { return kLeft + seconds * scale_; }
  double y(size_t rank) const { return top_ + static_cast<double>(rank) * (row_ + band_ + gap_); }
  double bottom() const { return y(ranks()) - gap_; }

  // Rows become thinner the more there are. The width leaves the typical box room for its number, within limits.
  void lay_out() {
    row_ = ranks() <= 16 ? 26 : ranks() <= 40 ? 18 : std::max(4.0, 720.0 / static_cast<double>(ranks()));
    band_ = !detailed_ ? 0 : ranks() <= 16 ? 5 : 3;
    gap_ = ranks() <= 16 ? 9 : ranks() <= 40 ? 5 : row_ > 8 ? 2 : 1;
    std::vector<double> lengths;
    for (const TimelineEntry& entry : simulation_.timeline)
      if (is_compute(entry.action.kind) && entry.action.block == Action::kAll)
        lengths.push_back(entry.end - entry.begin);
    std::sort(lengths.begin(), lengths.end());
    const double typical =
        lengths.empty() ? makespan() : std::max(lengths[lengths.size() / 3], makespan() / 1e6);
    use_scale(std::clamp(25 * makespan() / typical, 860.0, most()) / makespan());
  }

  // Places the rows below the legend, which may take several lines.
  void place_rows() {
    top_ = kTop + kLegendLine * (lay_out_legend([](const LegendItem&, double, int) {}) - 1);
  }

  void styles() {
    print("<style>");
    print("{}text{{font-family:Helvetica,Arial,'DejaVu Sans',sans-serif;fill:#333}}", scope_);
    print("{}.n{{font-size:11px;text-anchor:middle}}", scope_);
    print("{}.t{{font-size:11px;text-anchor:middle;fill:#666}}", scope_);
    print("{}.r{{font-size:{}px;text-anchor:end}}", scope_, row_ >= 12 ? 12 : 9);
    print("{}.s{{font-size:9px;text-anchor:end;fill:#888}}", scope_);
    print("{}.l{{font-size:12px}}", scope_);
    for (const Look look : looks_)
      for (size_t chunk = 0; chunk < chunks_; ++chunk) {
        const std::string color = hex(shade(look, chunk, chunks_));
        print("{3}.{0}{1}{{fill:{2}}}{3}.p{0}{1}{{stroke:{2};fill:none}}", look_info(look).name, chunk, color,
              scope_);
      }
    print("</style>\n");
  }

  void titles() {
    print("<text x=\"{}\" y=\"27\" style=\"font-size:17px;font-weight:bold\">{}</text>\n", kMargin,
          markup_text(text_.title));
    print("<text x=\"{}\" y=\"47\" class=\"l\" style=\"fill:#555\">{}</text>\n", kMargin,
          markup_text(text_.subtitle));
  }

  void rows() {
    const size_t every = row_ + gap_ >= 11 ? 1 : static_cast<size_t>(std::ceil(11 / (row_ + gap_)));
    for (size_t rank = 0; rank < ranks(); ++rank) {
      const bool named = rank < text_.lines.size();
      print("<path d=\"M{:.1f} {:.1f}h{:.1f}\" stroke=\"#eeeeec\" stroke-width=\"{:.1f}\"/>\n", kLeft,
            y(rank) + row_ / 2, plot_, row_);
      if (rank % every != 0) continue;
      const bool two_lines = row_ >= 24 && !named;
      print("<text class=\"r\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", kLeft - 10,
            y(rank) + (two_lines ? row_ / 2 - 1 : row_ / 2 + 4),
            named ? markup_text(text_.lines[rank]) : fmt::format("rank {}", rank));
      if (two_lines)
        print("<text class=\"s\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", kLeft - 10, y(rank) + row_ / 2 + 11,
              stages_text(static_cast<int>(rank)));
    }
  }

  std::string stages_text(int rank) {
    const std::set<int>& stages = stages_[rank];
    if (stages.size() <= 3)
      return fmt::format("stage{} {}", stages.size() == 1 ? "" : "s", fmt::join(stages, ", "));
    return fmt::format("stages {} .. {}", *stages.begin(), *stages.rbegin());
  }

  void axis() {
    const TimeUnit unit = unit_for(simulation_.makespan);
    const double span = simulation_.makespan / unit.seconds;
    const double step = tick_step(span, static_cast<int>(plot_ / 110));
    const int digits = std::max(0, static_cast<int>(-std::floor(std::log10(step) + 1e-9)));
    const double base = bottom() + 6;
    for (int i = 0; i * step <= span * (1 + 1e-9); ++i) {
      const double at = x(i * step * unit.seconds);
      print("<path d=\"M{0:.1f} {1:.1f}V{2:.1f}\" stroke=\"#c9c9c6\" stroke-width=\"1\"/>\n", at, top_ - 4,
            base);
      print("<text class=\"t\" x=\"{:.1f}\" y=\"{:.1f}\">{:.{}f}</text>\n", at, base + 14, i * step, digits);
    }
    print("<path d=\"M{:.1f} {:.1f}h{:.1f}\" stroke=\"#888888\" stroke-width=\"1\"/>\n", kLeft, base, plot_);
    print("<text class=\"t\" x=\"{:.1f}\" y=\"{:.1f}\">time ({})</text>\n", kLeft + plot_ / 2, base + 32,
          unit.name);
  }

  size_t chunk_of(const TimelineEntry& entry) {
    const std::set<int>& stages = stages_[entry.rank];
    return static_cast<size_t>(std::distance(stages.begin(), stages.find(entry.action.stage)));
  }

  void boxes() {
    const TimeUnit unit = unit_for(simulation_.makespan);
    for (const TimelineEntry& entry : simulation_.timeline) {
      const Look look = look_of(entry.action.kind);
      const size_t chunk = chunk_of(entry);
      const double left = x(entry.begin);
      const double width = std::max((entry.end - entry.begin) * scale_, in_band(look) ? 1.5 : 0.5);
      const double gap = width > 3 ? 0.8 : 0;  // a hairline between neighbours
      const double height = in_band(look) ? band_ : entry.half > 0 ? row_ / 2 : row_;
      const double above = y(static_cast<size_t>(entry.rank)) + (in_band(look)     ? row_ + 1
                                                                 : entry.half == 2 ? height
                                                                                   : 0);
      print("<rect class=\"{}{} box\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\"{}>",
            look_info(look).name, chunk, left, above, width - gap, height,
            in_band(look) || width < 6 ? "" : " rx=\"1.5\"");
      print("<title>{}: {:.4g} to {:.4g} {}</title></rect>\n", to_string(entry.action),
            entry.begin / unit.seconds, entry.end / unit.seconds, unit.name);
      if (!in_band(look)) number(entry, look, chunk, left, above + height / 2, width);
    }
  }

  // The micro-batch's number in its box, if it fits.
  void number(const TimelineEntry& entry, Look look, size_t chunk, double left, double middle, double width) {
    if (entry.action.micro == Action::kAll || row_ < 14) return;
    const std::string micro = std::to_string(entry.action.micro);
    if (width < 6.4 * static_cast<double>(micro.size()) + 3) return;
    print("<text class=\"n\" x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", left + width / 2, middle + 4,
          is_dark(shade(look, chunk, chunks_)) ? " style=\"fill:#fff\"" : "", micro);
  }

  // Coordinates are tenths of a pixel in whole numbers, so that a box takes about ten characters; touching boxes of one
  // colour are merged.
  void paths() {
    struct Line {
      std::string text;
      double begin = -1, end = -1;
    };
    std::map<std::tuple<int, Look, size_t, uint8_t>, Line> lines;
    const auto flush = [&](Line& line) {
      if (line.end < 0) return;
      const auto from = std::lround(10 * line.begin);
      line.text += fmt::format("M{} 0h{}", from, std::max(1L, std::lround(10 * line.end) - from));
    };
    for (const TimelineEntry& entry : simulation_.timeline) {
      const Look look = look_of(entry.action.kind);
      if (in_band(look)) continue;
      Line& line = lines[{entry.rank, look, chunk_of(entry), entry.half}];
      const double begin = entry.begin * scale_;
      const double end = entry.end * scale_;
      if (line.end < 0 || begin > line.end + 0.05) {
        flush(line);
        line.begin = begin;
      }
      line.end = std::max(line.end, end);
    }
    for (auto& [key, line] : lines) {
      flush(line);
      const auto& [rank, look, chunk, half] = key;
      const double height = half > 0 ? row_ / 2 : row_;
      const double above = y(static_cast<size_t>(rank)) + (half == 2 ? height : 0);
      print(
          "<path class=\"p{}{}\" transform=\"translate({} {:.1f}) scale(.1)\" stroke-width=\"{:.0f}\" "
          "d=\"{}\"/>\n",
          look_info(look).name, chunk, kLeft, above + height / 2, 10 * height, line.text);
    }
  }

  // A text (which may be empty), colours, and a text after them.
  struct LegendItem {
    std::string before;
    std::vector<std::string> colors;
    std::string behind;

    double colors_at() const { return before.empty() ? 0 : 9 + kLetter * static_cast<double>(before.size()); }
    double behind_at() const { return colors_at() + 16 * static_cast<double>(colors.size()) + 3; }
    double width() const { return behind_at() + kLetter * static_cast<double>(behind.size()); }
  };

  std::vector<LegendItem> legend_items() const {
    std::vector<LegendItem> items;
    for (const Look look : looks_)
      if (detailed_ || !in_band(look))
        items.push_back({"", {hex(shade(look, 0, chunks_))}, look_info(look).legend});
    items.push_back({"", {"#eeeeec"}, "idle"});
    if (chunks_ < 2) return items;
    LegendItem stages{"stages of a rank:", {}, "first to last"};
    for (size_t chunk = 0; chunk < std::min<size_t>(chunks_, 8); ++chunk)
      stages.colors.push_back(hex(shade(Look::F, chunk, chunks_)));
    items.push_back(stages);
    return items;
  }

  // Calls place(item, x, line) for every item; starts a new line at the edge of the picture. Returns the number of
  // lines.
  template <class Place>
  int lay_out_legend(Place place) const {
    double at = kMargin;
    int line = 0;
    for (const LegendItem& item : legend_items()) {
      if (at > kMargin && at + item.width() > kLeft + plot_ + kRight - kMargin) {
        at = kMargin;
        ++line;
      }
      place(item, at, line);
      at += item.width() + 16;
    }
    return line + 1;
  }

  void legend() {
    lay_out_legend([&](const LegendItem& item, double at, int line) {
      const double y = 66 + kLegendLine * line;
      if (!item.before.empty())
        print("<text class=\"l\" x=\"{:.0f}\" y=\"{:.0f}\">{}</text>\n", at, y + 4, item.before);
      double color_at = at + item.colors_at();
      for (const std::string& color : item.colors) {
        print("<path d=\"M{:.0f} {:.0f}h14\" stroke=\"{}\" stroke-width=\"12\"/>\n", color_at, y, color);
        color_at += 16;
      }
      print("<text class=\"l\" x=\"{:.0f}\" y=\"{:.0f}\">{}</text>\n", at + item.behind_at(), y + 4,
            item.behind);
    });
  }

  static constexpr double kMargin = 16;
  static constexpr double kLeft = 92;
  static constexpr double kRight = 26;
  static constexpr double kLetter = 6.6;  // mean width of a letter in the legend
  static constexpr double kLegendLine = 18;
  static constexpr double kTop = 92;
  static constexpr double kBelow = 58;

  const Simulation& simulation_;
  const PictureText& text_;
  std::string scope_;
  std::map<int, std::set<int>> stages_;  // [rank]
  std::set<Look> looks_;
  size_t chunks_ = 1;
  bool detailed_ = true;
  double top_ = kTop, row_ = 26, band_ = 5, gap_ = 9, plot_ = 860, scale_ = 1;
  std::string out_;
};

std::string document(double width, double height, const std::string& content) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\">\n"
      "<rect class=\"paper\" width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{2}</svg>\n",
      width, height, content);
}

}  // namespace

std::string timeline_svg(const Simulation& simulation, const PictureText& text) {
  Picture picture(simulation, text);
  return document(picture.width(), picture.height(), picture.draw());
}

std::string timelines_svg(const std::vector<Timeline>& timelines) {
  std::vector<Picture> pictures;
  double scale = 0, most = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < timelines.size(); ++i) {
    pictures.emplace_back(timelines[i].simulation, timelines[i].text, fmt::format(".timeline{} ", i));
    scale = std::max(scale, pictures.back().scale());
    most = std::min(most, pictures.back().most() / pictures.back().makespan());
  }
  std::string content;
  double width = 0, height = 0;
  for (size_t i = 0; i < pictures.size(); ++i) {
    pictures[i].use_scale(std::min(scale, most));
    content += fmt::format("<g class=\"timeline{}\" transform=\"translate(0 {:.1f})\">\n{}</g>\n", i, height,
                           pictures[i].draw());
    width = std::max(width, pictures[i].width());
    height += pictures[i].height();
  }
  return document(width, height, content);
}

}  // namespace trifold
