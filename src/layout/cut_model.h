// CutModel: a model cut into the stages of a pipeline, as seen by all pipeline ranks at one position of the
// other axes. It is a value that needs no running rank: a run, a plan and a resharding construct the same
// one.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "config/fields/config.h"
#include "models/model.h"
#include "models/model_walk.h"
#include "models/stages.h"
#include "schedule/action.h"

namespace trifold {

// Where the tokens are looked up of an embedding that shares its weights with an output layer in parts.
enum class TokenLookups : uint8_t {
  AtHead,  // each part on the rank of its part of the output layer, in a stage before all others: no rank needs a copy
  AsPlanned,  // the same if the stages before the first one of rank 0 are on the ranks that this would take; otherwise
              // all in the first stage
  FirstStage,  // all there; ranks with parts of the output layer have copies of their rows
};

// The pipeline rank of every stage; empty: stage i is on rank i. For TokenLookups::AtHead, without the stages that are
// added.
struct StagePlaces {
  StagePlaces(std::vector<int> of_stages = {}, TokenLookups tokens = TokenLookups::AtHead)
      : ranks(std::move(of_stages)), lookups(tokens) {}
  std::vector<int> ranks;
  TokenLookups lookups;
};

struct CutModel {
  // The model of `config` at the position of `mesh`, which is not kept; see make_model. BadInput if the model has fewer
  // blocks than there are stages.
  CutModel(const ModelConfig& config, const MeshConfig& how, const Mesh& mesh, uint64_t seed,
           StagePlaces places);

  // The blocks of a stage, ascending.
  std::vector<int> blocks_of(size_t stage) const;
  // The stages that share a weight with an earlier one, ascending.
  std::vector<TiedStage> tied_stages() const;
  // The pipeline rank that uses a parameter.
  int rank_of(const ParamSpec& spec) const;
  // Whether it is a copy: a second use of a weight that is on another rank.
  bool is_copy(const ParamSpec& spec) const;
  // The stages before the others that only look up tokens, and the others.
  std::span<const StageRange> lookups() const { return std::span(stages).first(lookup_count()); }
  std::span<const StageRange> others() const { return std::span(stages).subspan(lookup_count()); }

  // Elements that a rank holds for a stage in its flat buffers, padding included. A tied use has its own gradient; its
  // weight counts if it is a copy.
  struct Elements {
    int64_t weights = 0;
    int64_t gradients = 0;
    int64_t experts = 0;  // of the weights, those that are cut over the expert axis
  };
  Elements elements_of(size_t stage) const;

  // By which stages are balanced, for each block.
  std::vector<double> block_costs() const { return trifold::block_costs(model, flops); }

  SampleFlops flops;
  Model model;
  std::vector<StageRange> stages;  // the blocks of each
  std::vector<int> rank_of_stage;
  int64_t width = 0;       // C of the activations [R, C] between stages
  bool on_device = false;  // that computes; otherwise a processor does

 private:
  struct Lookup {
    int rank;
    std::vector<int> parts;
  };
  size_t lookup_count() const { return static_cast<size_t>(model.lookups); }
  std::vector<Lookup> lookups_at_head() const;
};

}  // namespace trifold
