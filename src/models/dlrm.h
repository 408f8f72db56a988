// DLRM (Naumov et al., arXiv 1906.00091): a bottom MLP turns the dense numbers into a vector, embedding bags turn each
// table's ids into vectors; their interaction and a top MLP give the logit of a click. Everything is data parallel but
// the tables, which are elsewhere (room embedding): this model takes the bags' vectors as input.
//
// B = samples of this rank, F = tables, D = width of the vectors. `features` [B, (F + 1) D] holds for each sample the
// bottom MLP's vector and then those of the tables in order. Without dense numbers there is no bottom MLP: features are
// [B, F D], and only the tables' vectors interact.
//
// It has two blocks, or only the second, each a stage of the step's plan (schedule/table_step.h), so that communication
// overlaps with them:
//
//   bottom   F      while the bags' vectors arrive
//            B      while the bags' gradients travel
//   top      F, I   interaction, top MLP and loss; I gives the gradients of the features
//            W      while the bags' gradients travel
//
// Features, logits and their gradients are in f32 or f64. With Run::dtype bf16 the MLPs and the cross network compute
// in bf16 on inputs that are rounded once; pairwise products stay in the type of the features.
#pragma once

#include <cstdint>
#include <vector>

#include "config/fields/recommend_choices.h"
#include "models/model.h"
#include "ops/recommender.h"

namespace trifold {

struct DlrmShape {
  int64_t dense = 13;
  int64_t tables = 0;
  int64_t width = 0;            // D
  std::vector<int64_t> bottom;  // widths after the input; the last is D
  std::vector<int64_t> top;     // widths after the interaction; the last is 1
  InteractionKind interaction = InteractionKind::Dot;
  bool self = false;     // Dot: also products of vectors with themselves
  int cross_layers = 3;  // Cross
  int64_t cross_rank = 512;
  ClickLoss loss = ClickLoss::Logistic;

  bool has_bottom() const { return dense > 0; }
  int64_t vectors() const { return tables + (has_bottom() ? 1 : 0); }
  int64_t features() const { return vectors() * width; }
  int64_t interaction_width() const;
};

// The inputs of the blocks (Batch::part), and where they leave results that are not activations.
struct DlrmBatch : BatchPart {
  Tensor dense = {};              // f32 [B, dense]
  Tensor labels = {};             // f32 [B]
  Tensor weights = {};            // f32 [B], 0 for a sample that is padding
  Tensor features = {};           // must hold the tables' vectors before the top's F
  Tensor feature_gradients = {};  // complete after the top's I
  Tensor scores = {};             // [B, 1]: the logits, if no backward pass follows
  Event* summed = nullptr;        // set when the losses are summed, if a backward pass follows
};

// Results have the type of DlrmBatch::features. Failure if widths do not match, or if there are too few vectors for
// pairwise products. The last block returns the logits.
Model make_dlrm(const DlrmShape& shape, const Mesh& mesh, uint64_t seed);

// Flops of the matrix products for one sample, forward and backward.
double train_flops(const Model& dlrm);

}  // namespace trifold
