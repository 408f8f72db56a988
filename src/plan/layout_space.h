// LayoutSpace enumerates the candidates of a search (plan/layout_search.h): every layout of a run that can run, with
// its cut into stages.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "config/commands/search_axes.h"
#include "models/model_walk.h"
#include "plan/layout_memory.h"

namespace trifold {

struct LayoutCandidate {
  Layout layout;
  const StageCounts* stages = nullptr;  // owned by the LayoutSpace
};

class LayoutSpace {
 public:
  // `config` is the search's configuration without the search's own options; `axes` are the axes to choose.
  // `devices_per_node` and `schedules` as in SearchJob. All references must outlive the space.
  LayoutSpace(const PlanConfig& config, const std::vector<SearchAxis>& axes, int64_t devices_per_node,
              std::vector<Schedule> schedules);

  // All candidates, in the order of the axes and their values.
  std::vector<LayoutCandidate> candidates();
  // The number of data-parallel ranks of a layout.
  int64_t data(const Layout& layout) const { return job_.data(layout); }
  // The reason why nothing can run, if there are no candidates.
  std::string problem() const;

 private:
  using RunKey = std::array<int64_t, 11>;
  using CutKey = std::array<int, 5>;    // tensor, context, pipeline ranks, stages per rank, parts of the head
  using ModelKey = std::array<int, 5>;  // tensor, context, expert, expert tensor ranks, parts of the head

  void visit(size_t depth, Layout& layout);
  bool is_a_mesh(const Layout& layout) const;
  void consider(const Layout& layout);
  bool can_run(const Layout& layout);
  bool has_idle_parts(const PretrainConfig& run, const StageCounts& stages) const;
  struct CostedModel {
    Model model;
    std::vector<double> costs;  // cost of each block
  };
  const CostedModel& model_of(const PretrainConfig& run);
  const StageCounts* stages_of(const PretrainConfig& run);

  const PlanConfig& config_;
  const std::vector<SearchAxis>& axes_;
  SearchJob job_;
  std::map<RunKey, bool> can_run_;
  std::map<ModelKey, CostedModel> models_;
  std::map<CutKey, StageCounts> cuts_;
  std::vector<LayoutCandidate> candidates_;
  std::string first_problem_;
  std::string_view unmet_need_;  // need of the first axis that had no candidates
  bool is_divided_ = true;       // whether every rejected layout lacked such a need
};

}  // namespace trifold
