// DLRM (Naumov et al., arXiv 1906.00091) and related models. A bottom MLP turns dense features into a vector, embedding
// bags turn each table's ids into vectors; the vectors' interaction and a top MLP give the logit of a click. The model
// is data parallel. The tables are not part of it (room embedding): their pooled vectors are its input.
//
//   interaction   input of the top MLP                    added to its logit                    model
//   Dot           [first vector, pairwise dot products]                                         DLRM
//   Cat           all vectors, concatenated
//   Cross         the output of a cross network                                                 DCN V2
//   Fm            all vectors, concatenated               the sum of all pairwise products
//
// With `wide` the logit also has a first-order term: the sum of one weight per id, pooled like the vectors of its bag,
// and a linear function of the dense features. With it, Cat is Wide & Deep (Cheng et al., DLRS 2016), and Fm is DeepFM
// (Guo et al., IJCAI 2017), whose second-order term is a factorization machine over all vectors, including the bottom
// MLP's.
//
// Samples may have several labels (`labels`), each with its own logit. The hidden layers of the top MLP are then shared
// by a tower for each label, or each expert has such layers (nn/clicks/label_towers.h). Each label has its own first-order
// term; the sum of pairwise products is added to every logit.
//
// B = samples of this rank, F = columns of ids, which usually have a table each, L = labels, D = width of the vectors;
// E = D, or D + L with `wide`: a row of a table is the vector of its id, then the weights. For each sample, `features`
// [B, (F + 1) E] holds the output of the bottom block and then the tables' rows in order. Without dense features there
// is no bottom block: features are [B, F E], and only the tables' vectors interact.
//
// A bag may be pooled by attention to the vector of another column (`attended`: DIN, Zhou et al., KDD 2018) instead of
// summed: its ids are looked up one by one and pooled in the top block. Vectors are then gathered from the looked-up
// vectors (`places`, models/dlrm_vectors.h), and also if tables have several columns of ids.
//
// The model has two blocks, or only the second. Each is a stage of the step's plan (schedule/table_step.h), so that
// communication overlaps with computation:
//
//   bottom   F      while the bags' vectors arrive
//            B      while the bags' gradients are sent
//   top      F, I   interaction, top MLP and loss; I computes the gradients of the features
//            W      while the bags' gradients are sent
//
// Features, logits and their gradients are in f32 or f64. If Run::dtype is bf16, the MLPs and the cross network compute
// in bf16 on inputs that are rounded once; pairwise products stay in the type of the features.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/fields/recommend_choices.h"
#include "models/model.h"
#include "nn/batch_norm.h"
#include "ops/recommender.h"

namespace trifold {

// A column of ids whose bag is pooled by attention to the vector of the column `candidate`.
struct AttendedBag {
  int64_t column = 0, candidate = 0;
  std::string name;  // the column's name
};

// A hidden layer that has batch normalisation.
struct NormedLayer {
  std::string name;   // prefix of its parameters: "bottom.0.norm"
  int64_t first = 0;  // its first column in the statistics of all layers
  int64_t columns = 0;
};

// Where the looked-up vectors of a column of ids are: in each sample's row of DlrmBatch::looked_up[group], `bags`
// vectors that start at `column` and are `stride` elements apart.
struct VectorColumns {
  size_t group = 0;
  int64_t column = 0, stride = 0, bags = 1;
};

struct DlrmShape {
  int64_t dense = 13;
  int64_t tables = 0;           // columns of ids
  int64_t width = 0;            // D
  std::vector<int64_t> bottom;  // widths after the input; the last is D
  std::vector<int64_t> top;     // widths after the interaction; the last is 1
  InteractionKind interaction = InteractionKind::Dot;
  bool self = false;  // Dot: also products of vectors with themselves
  bool wide = false;  // a first-order term
  // Names of the labels if there are several; otherwise empty, and `tower` and `experts` are not used.
  std::vector<std::string> labels = {};
  std::vector<int64_t> tower = {};  // widths of a label's tower; the last is 1
  int experts = 0;       // experts of LabelTowers; 0: labels share the hidden layers of the top MLP
  int cross_layers = 3;  // Cross
  int64_t cross_rank = 512;
  ClickLoss loss = ClickLoss::Logistic;
  double dropout = 0;       // for the hidden layers of both MLPs
  bool batch_norm = false;  // in the hidden layers of both MLPs (nn/batch_norm.h); not with several labels
  std::vector<AttendedBag> attended = {};
  std::vector<int64_t> attention = {};  // widths of the attention's MLP after its input; the last is 1
  std::vector<VectorColumns> places =
      {};  // for each column of ids; empty: vectors are looked up into the features

  bool has_bottom() const { return dense > 0; }
  std::vector<NormedLayer> normed() const;
  int64_t layers() const;  // layers of all MLPs and the cross network
  int64_t vectors() const { return tables + (has_bottom() ? 1 : 0); }
  int64_t logits() const { return labels.empty() ? 1 : static_cast<int64_t>(labels.size()); }  // L
  int64_t row() const { return width + (wide ? logits() : 0); }                                // E
  int64_t features() const { return vectors() * row(); }
  int64_t side_by_side() const { return vectors() * width; }  // columns of all vectors
  int64_t pairs() const;                                      // pairwise products; Dot and Fm
  int64_t interaction_width() const;                          // columns of the top MLP's input
};

// The inputs of the blocks (Batch::part), and the outputs that are not activations.
struct DlrmBatch : WholeBatch {
  Tensor dense = {};     // f32 [B, dense]
  Tensor labels = {};    // f32 [B, L]
  Tensor weights = {};   // f32 [B, L], 0 for a sample that is padding and for a label that is missing
  Tensor features = {};  // must hold the tables' rows before the top's F
  Tensor feature_gradients = {};  // complete after the top's I
  // With DlrmShape::places: vectors by group, which must be complete before the top's F, and their gradients, which are
  // complete after its I.
  std::vector<Tensor> looked_up = {}, looked_up_gradients = {};
  Tensor scores = {};       // [B, L]: the logits, if no backward pass follows
  Event* summed = nullptr;  // set when the losses are summed, if a backward pass follows
};

// Makes the model. Its outputs have the type of DlrmBatch::features; the last block returns the logits. Throws if
// widths do not match or if there are too few vectors for pairwise products.
Model make_dlrm(const DlrmShape& shape, const Mesh& mesh, uint64_t seed);

}  // namespace trifold
