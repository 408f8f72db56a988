// CutModel: a model cut into pipeline stages, for all pipeline ranks at one position of the other axes. It is a value
// that needs no running rank: runs, plans and resharding construct the same CutModel.
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

// Where tokens are looked up if the embedding is tied to an output layer in parts.
enum class TokenLookups : uint8_t {
  // Each part of the embedding on the rank of the same part of the output layer, in additional stages before all
  // others, so no rank needs a copy.
  AtHead,
  // AtHead if the given ranks already have those stages before the first stage of rank 0; otherwise FirstStage.
  AsPlanned,
  // All parts in the first stage; ranks with parts of the output layer have copies of their rows.
  FirstStage,
};

// The pipeline rank of every stage; empty: stage i is on rank i. With TokenLookups::AtHead, `ranks` does not include
// the additional stages.
struct StageRanks {
  StageRanks(std::vector<int> of_stages = {}, TokenLookups tokens = TokenLookups::AtHead)
      : ranks(std::move(of_stages)), lookups(tokens) {}
  std::vector<int> ranks;
  TokenLookups lookups;
};

struct CutModel {
  // Makes the model of `config` for the position of `mesh` (make_model); keeps no reference to `mesh`. BadInput if the
  // model has fewer blocks than there are stages.
  CutModel(const ModelConfig& config, const MeshConfig& layout, const Mesh& mesh, uint64_t seed,
           StageRanks stage_ranks);

  // The blocks of a stage, ascending.
  std::vector<int> blocks_of(size_t stage) const;
  // The stages that share a trained weight with an earlier stage, ascending.
  std::vector<TiedStage> tied_stages() const;
  // The pipeline rank that uses a parameter.
  int rank_of(const ParamSpec& spec) const;
  // Whether a parameter is a copy: a second use of a weight that is on another rank.
  bool is_copy(const ParamSpec& spec) const;
  // The first stages, which only look up tokens, and the other stages.
  std::span<const StageRange> lookups() const { return std::span(stages).first(lookup_count()); }
  std::span<const StageRange> others() const { return std::span(stages).subspan(lookup_count()); }

  // Elements that a rank holds for a stage in its flat buffers, with padding. A tied use has its own gradient; its
  // weight is included only if it is a copy.
  struct Elements {
    int64_t weights = 0;
    int64_t gradients = 0;
    int64_t trained = 0;          // weights that are not frozen, included in `weights`
    int64_t experts = 0;          // weights that are cut over the expert axis, included in `weights`
    int64_t trained_experts = 0;  // weights of experts that are not frozen
    // Weights that memory holds quantized, included in `weights`, and their bytes.
    int64_t quantized = 0, quantized_bytes = 0;
  };
  Elements elements_of(size_t stage) const;

  // The costs of all blocks by which stages are balanced.
  std::vector<double> block_costs() const { return trifold::block_costs(model, flops); }

  SampleFlops flops;
  Model model;
  std::vector<StageRange> stages;  // each stage's blocks
  std::vector<int> rank_of_stage;
  bool on_device = false;  // whether a device computes; otherwise the CPU

 private:
  void check_ties() const;
  struct Lookup {
    int rank;
    std::vector<int> parts;
  };
  size_t lookup_count() const { return static_cast<size_t>(model.lookups); }
  std::vector<Lookup> lookups_at_head() const;
};

}  // namespace trifold
