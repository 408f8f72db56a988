// CutModel: a model cut into the stages of a pipeline, as seen by all pipeline ranks at one position of the
// other axes. It is a value that needs no running rank: a run, a plan and a resharding construct the same
// one.
#pragma once

#include <cstdint>
#include <vector>

#include "config/fields/config.h"
#include "models/model.h"
#include "models/stages.h"
#include "schedule/action.h"

namespace trifold {

struct CutModel {
  // The model of `config` at the position of `mesh`, which is not kept; see make_model. `ranks` gives the
  // pipeline rank of every stage; empty: stage i is on rank i. BadInput if the model has fewer blocks than
  // there are stages.
  CutModel(const ModelConfig& config, const MeshConfig& how, const Mesh& mesh, uint64_t seed,
           std::vector<int> ranks);

  // The blocks of a stage, ascending.
  std::vector<int> blocks_of(size_t stage) const;
  // The stages that share a weight with the first one, ascending.
  std::vector<TiedStage> tied_stages() const;
  // The pipeline rank that uses a parameter.
  int rank_of(const ParamSpec& spec) const;

  // Elements that a rank would hold for a stage in its flat buffers, padding included, if it had no other
  // stage. A tied use has its own gradient; its weight counts unless the original is in the stage.
  struct Elements {
    int64_t weights = 0;
    int64_t gradients = 0;
    int64_t experts = 0;  // of the weights, those that are cut over the expert axis
  };
  Elements elements_of(size_t stage) const;

  Model model;
  std::vector<StageRange> stages;  // the blocks of each
  std::vector<int> rank_of_stage;
  int64_t width = 0;       // C of the activations [R, C] between stages
  bool on_device = false;  // that computes; otherwise a processor does
};

}  // namespace trifold
