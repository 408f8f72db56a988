// Workload: the parameters of a training step on which its time depends: the shape of the model, the mesh, the batch
// and what is recomputed. It is a plain value; make_workload derives one from a configuration.
#pragma once

#include <cstdint>
#include <vector>

#include "config/fields/choices.h"
#include "config/fields/config.h"
#include "config/fields/schedule.h"
#include "layout/run_spec.h"
#include "models/model.h"
#include "models/stage_cut.h"
#include "plan/forecast/software.h"

namespace trifold {

struct Workload {
  // The model.
  double layers = 0;
  double hidden = 0;
  double heads = 0;
  double key_heads = 0;
  double head_width = 0;  // as attention computes it
  bool latent = false;    // latent attention
  double inner = 0;       // width inside the MLP, or inside each expert
  double experts = 0;     // per block; 0: one MLP
  bool gated = false;     // SwiGLU: two products into the inner width
  bool rms_norm = false;  // instead of LayerNorm
  bool hidden_dropout = false;
  bool attention_dropout = false;
  double sequence = 0;
  double vocabulary = 0;        // padded
  bool tied = true;             // the head multiplies with the token embedding
  bool tokens_at_head = false;  // the head's ranks also hold the token embedding

  // The mesh. `context` ranks shard the rows of a sample.
  double tensor = 1;
  double context = 1;
  double data = 1;
  double expert = 1;         // ranks that share the experts of a layer
  double expert_parts = 1;   // neighbouring ranks that cut each expert
  bool takes_turns = false;  // halves of DualPipe-V's pairs alternate (--overlap-moe-expert-parallel-comm)
  int pipeline = 1;
  int chunks = 1;  // stages per pipeline rank
  bool sequence_parallel = false;

  // The step.
  double micro_batch = 1;
  double micros = 1;  // micro-batches of a step on one pipeline
  Schedule schedule = Schedule::OneFOneB;
  int zero_stage = 0;
  double zero_groups = 1;     // groups of data-parallel ranks, each with a full copy of ZeRO's state
  bool reduces_each = false;  // gradients are summed after each micro-batch, not once per step
  RecomputeGranularity recompute = RecomputeGranularity::None;
  bool products_in_8bit = false;
  double element_bytes = 2;     // per weight and per activation
  double gradient_bytes = 4;    // per gradient on the network
  bool copy_of_weights = true;  // the update works on 32-bit master weights

  StageCounts stages;  // pipeline * chunks; kinds of layers as in BlockCosts::layers

  double rows() const { return micro_batch * sequence / context; }  // rows of a micro-batch on one rank
  // The numbers of ranks that sum gradients of the same weights (data_ranks) or of the same experts
  // (expert_data_ranks), and that share the experts of a layer (expert_ranks).
  double data_ranks() const { return data * context; }
  double expert_ranks() const { return expert * expert_parts; }
  double expert_data_ranks() const { return tensor * data * context / expert_ranks(); }
  // The number of ZeRO groups among `ranks` ranks with the same weights; `ranks`, so that nothing is sharded, if they
  // cannot be divided evenly.
  double groups_among(double ranks) const;
};

// Rounds in which a rank receives its experts' rows if it gets `load` times the mean (--moe-buffer-factor).
int64_t expert_rounds(const MeshConfig& mesh, double load);

// `run` must be resolved. `stages` stays empty.
Workload make_workload(const RunSpec& run, double padded_vocabulary);

// If `software` describes another program with context parallelism, adapts `work` to it.
void assume_context(const Software& software, Workload& work);

}  // namespace trifold
