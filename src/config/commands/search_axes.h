// The search space for layouts (`trifold plan --search`, `pretrain --auto-layout`): one table of axes, each with the
// options it sets, its candidates and the rule that narrows them. A new axis is a new value of SearchAxis and a new
// entry.
//
// Axes are chosen in the order of the table, so a rule may depend on earlier axes. Rules exclude layouts that cannot
// run or are never worthwhile, such as tensor ranks on several nodes; they need not be complete, because `problems`
// checks every resulting configuration.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/fields/config.h"
#include "config/options/problems.h"

namespace trifold {

inline constexpr size_t kSearchAxes = std::size(Names<SearchAxis>::kAll);

// A value for each axis: a number, or the index of a choice.
class Layout {
 public:
  int64_t& operator[](SearchAxis axis) { return values_[static_cast<size_t>(axis)]; }
  int64_t operator[](SearchAxis axis) const { return values_[static_cast<size_t>(axis)]; }
  bool operator==(const Layout&) const = default;

 private:
  std::array<int64_t, kSearchAxes> values_{};
};

// The number of ranks that hold one replica of the model; each sample is sharded over the context ranks among them.
inline int64_t ranks_of_copy(const Layout& layout) {
  return layout[SearchAxis::Tensor] * layout[SearchAxis::Context] * layout[SearchAxis::Pipeline];
}

// The run to lay out. `run` may be unresolved; its model, --ranks and --global-batch-size are used.
struct SearchJob {
  const PretrainConfig& run;
  int64_t devices_per_node = 1;
  std::vector<Schedule> schedules = {};

  int64_t data(const Layout& layout) const { return run.mesh.ranks / ranks_of_copy(layout); }
  int64_t micros(const Layout& layout) const {
    return *run.batch.global_batch_size / (data(layout) * layout[SearchAxis::MicroBatch]);
  }
};

struct SearchAxisInfo {
  SearchAxis axis;
  std::vector<std::string_view> options;  // canonical names
  int64_t neutral;                        // value while nothing is chosen
  // The values to try, given the values of earlier axes in `before`; empty: a dead end.
  std::vector<int64_t> (*candidates)(const SearchJob& job, const Layout& before);
  void (*write)(const Layout& layout, PretrainConfig& run);
  int64_t (*read)(const PretrainConfig& run);
  bool is_rare = false;        // its options are omitted if neutral, unless the run had another value
  std::string_view need = {};  // condition on earlier axes for it to have candidates, for messages
};

// In the order of SearchAxis.
std::span<const SearchAxisInfo> search_axes();
// The axes that `config` leaves to the search.
std::vector<SearchAxis> axes_searched(const PlanConfig& config);
std::vector<SearchAxis> all_search_axes();
// The candidate schedules: the schedules of --search-schedules, or else 1f1b, interleaved, zb-h1, zb-h2 and zb-v. gpipe
// needs more memory than 1f1b and is no faster; the pairs of dualpipe-v need a device that computes two things at once.
std::vector<Schedule> schedules_searched(const PlanConfig& config);

// Resets the options of these axes, and the data-parallel size, which follows from the other sizes.
void open_axes(PretrainConfig& run, std::span<const SearchAxis> axes);
// The values of a run on all axes.
Layout layout_of(const PretrainConfig& run);
// Sets the options of these axes, and the data-parallel size. `run` is not resolved.
void write_layout(const Layout& layout, std::span<const SearchAxis> axes, PretrainConfig& run);
// The options that write_layout sets, as command-line words.
std::vector<std::string> layout_words(const Layout& layout, std::span<const SearchAxis> axes,
                                      PretrainConfig run);

// Adds a problem for each setting that a search over these axes cannot handle: a missing global batch, a schedule from
// a file, stages whose layers are given. `option` is the option that starts the search: "search" or "auto-layout".
void check_search(const PretrainConfig& run, std::span<const SearchAxis> axes, std::string_view option,
                  Problems& problems);

}  // namespace trifold
