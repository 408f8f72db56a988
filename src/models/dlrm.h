// DLRM (Naumov et al., arXiv 1906.00091): a bottom MLP makes a vector of the dense numbers, an embedding bag
// one of each table's ids; their interaction and a top MLP make the logit of a click. Data parallel all of it
// but the tables, which are elsewhere (room embedding): the model here takes the bags' vectors as given.
//
// B = samples of this rank, F = tables, D = width of the vectors. `features` [B, (F + 1) D] holds for each
// sample the bottom MLP's vector and then the tables' in their order. Without dense numbers there is no
// bottom MLP: features are [B, F D], and the tables' vectors meet each other alone.
//
// It has two blocks, or the second alone, each a stage of the step's plan (schedule/table_step.h), so that
// what travels between ranks hides behind them:
//
//   bottom   F      while the bags' vectors arrive
//            B      while the bags' gradients travel
//   top      F, I   interaction, top MLP and loss; I gives the gradients of the features
//            W      while the bags' gradients travel
//
// Features, logits and their gradients are in f32 or f64. With Run::dtype bf16 the MLPs and the cross network
// compute in that, from what was rounded once; products of pairs stay in the type of the features.
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
  bool self = false;     // Dot: products of vectors with themselves too
  int cross_layers = 3;  // Cross
  int64_t cross_rank = 512;
  ClickLoss loss = ClickLoss::Logistic;

  bool has_bottom() const { return dense > 0; }
  int64_t vectors() const { return tables + (has_bottom() ? 1 : 0); }
  int64_t features() const { return vectors() * width; }
  int64_t interaction_width() const;
};

// What the blocks read of a batch (Batch::part), and where they leave what is not an activation.
struct DlrmBatch : BatchPart {
  Tensor dense = {};              // f32 [B, dense]
  Tensor labels = {};             // f32 [B]
  Tensor weights = {};            // f32 [B], 0 for a sample that is padding
  Tensor features = {};           // the tables' vectors are there before the top goes forward
  Tensor feature_gradients = {};  // complete after the top's I
  Tensor scores = {};             // [B, 1]: the logits, where no backward follows
  Event* summed = nullptr;        // becomes that of the sum of the losses, where one follows
};

// The type and size of a sample's features decide those of `features` and `scores`, [B, 1]. Failure where
// widths do not fit, or there are too few vectors for products. The last block returns the logits.
Model make_dlrm(const DlrmShape& shape, const Mesh& mesh, uint64_t seed);

// Multiplications and additions of its matrix products for one sample, forward and backward.
double train_flops(const Model& dlrm);

}  // namespace trifold
