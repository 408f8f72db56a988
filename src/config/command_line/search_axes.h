// The space in which a search for a layout looks (`trifold plan --search`, `pretrain --auto-layout`): one
// table of its axes, each with the options it chooses, its candidates and the rule that narrows them. Another
// axis (context or expert ranks) is another value of SearchAxis and another entry.
//
// Axes are chosen in the order of the table, so a rule may look at what was chosen before it. Rules keep out
// what cannot run and what nobody wants, such as tensor ranks on several nodes; they need not be complete,
// because `problems` has the last word on a configuration.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/fields/config.h"
#include "config/fields/problems.h"

namespace trifold {

inline constexpr size_t kSearchAxes = std::size(Names<SearchAxis>::kAll);

// A value for each axis: a number, or the number of a choice.
class Layout {
 public:
  int64_t& operator[](SearchAxis axis) { return values_[static_cast<size_t>(axis)]; }
  int64_t operator[](SearchAxis axis) const { return values_[static_cast<size_t>(axis)]; }
  bool operator==(const Layout&) const = default;

 private:
  std::array<int64_t, kSearchAxes> values_{};
};

// What is to be laid out. `run` may be unresolved, but its model, --ranks and --global-batch-size count.
struct SearchJob {
  const PretrainConfig& run;
  int64_t devices_per_node = 1;
  std::vector<Schedule> schedules = {};

  // Those that the axes divide among them: the context axis is as the options say.
  int64_t ranks() const { return run.mesh.ranks / run.mesh.context_parallel_size; }
  int64_t data(const Layout& layout) const {
    return ranks() / (layout[SearchAxis::Tensor] * layout[SearchAxis::Pipeline]);
  }
  int64_t micros(const Layout& layout) const {
    return *run.batch.global_batch_size / (data(layout) * layout[SearchAxis::MicroBatch]);
  }
};

struct SearchAxisInfo {
  SearchAxis axis;
  std::vector<std::string_view> options;  // canonical names
  int64_t neutral;                        // stands for the axis while nothing is chosen
  // The values to try after what `before` has for the axes before this one; none: a dead end.
  std::vector<int64_t> (*candidates)(const SearchJob& job, const Layout& before);
  void (*write)(const Layout& layout, PretrainConfig& run);
  int64_t (*read)(const PretrainConfig& run);
};

// In the order of SearchAxis.
std::span<const SearchAxisInfo> search_axes();
// The axes that `config` leaves to the search.
std::vector<SearchAxis> axes_searched(const PlanConfig& config);
std::vector<SearchAxis> all_search_axes();
// The schedules it may choose among: those that --search-schedules names, or else 1f1b, interleaved, zb-h1,
// zb-h2 and zb-v. gpipe keeps more than 1f1b and is no faster; the pairs of dualpipe-v need a device that
// computes two things at once.
std::vector<Schedule> schedules_searched(const PlanConfig& config);

// Forgets what the options of these axes say, and the data-parallel size, which follows from the others.
void open_axes(PretrainConfig& run, std::span<const SearchAxis> axes);
// The values that a run has on all axes.
Layout layout_of(const PretrainConfig& run);
// Sets the options of these axes, and the data-parallel size. `run` is not resolved.
void write_layout(const Layout& layout, std::span<const SearchAxis> axes, PretrainConfig& run);
// The same as words of a command line.
std::vector<std::string> layout_words(const Layout& layout, std::span<const SearchAxis> axes,
                                      PretrainConfig run);

// Adds what a search over these axes cannot work with: a missing global batch, a schedule from a file, stages
// that are given one by one. `option` asks for the search: "search" or "auto-layout".
void check_search(const PretrainConfig& run, std::span<const SearchAxis> axes, std::string_view option,
                  Problems& problems);

}  // namespace trifold
