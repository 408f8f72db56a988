// MatrixPlan: which rank computes with each whole matrix of a stage, and which elements are sent for it. It is derived
// from the layout, the same on all ranks of the stage, before anything is allocated.
//
// A parameter is a matrix, or several: the last two dims of its global tensor are a matrix, and the dims before them
// count matrices. So the packed projections of queries, keys and values are three matrices, gate and up of a gated
// network are two, and every expert has its own.
//
//   part     the elements of a matrix that a rank owns: its tensor part, as far as it lies in its slice (ZeRO)
//   group    the ranks among which a matrix is cut: one sharding group, with all parts of the tensor axes; other groups
//            have the same matrices and compute them again, as they update the same elements
//   owner    the rank of the group that computes with the whole matrix. Owners are chosen unit by unit, the most
//            expensive matrix first, for the rank with the fewest operations so far; of equal ones, for the rank with
//            the largest part
//   source   a part that is sent to the owner; of equal parts of several ranks only the first
//   sink     a part that the owner sends back; every rank that holds it gets it
#pragma once

#include <span>
#include <vector>

#include "data_parallel/flat_layout.h"

namespace trifold {

// Whether rules for matrices (optim/muon.h) take the parameter: it is trained, it has weight decay, as biases and norms do not, two dims
// of more than one element, and is no table.
bool is_matrix(const ParamSpec& spec);

class MatrixPlan {
 public:
  // The plan of the rank at `coords`. `sharded`: every rank owns its slices of the units, instead of whole units.
  MatrixPlan(const FlatLayout& layout, const MeshSizes& sizes, const MeshCoords& coords, bool sharded);

  struct Part {
    int rank = 0;       // among the ranks of the stage (kStageAxes)
    int64_t first = 0;  // element of the rank's local box of the parameter
    int64_t count = 0;
    bool source = false;
    std::vector<Rect> rects;  // its boxes of the matrix, in memory order
  };
  struct Matrix {
    ParamId id;
    int64_t index = 0;  // among the parameter's matrices
    int64_t rows = 0, columns = 0;
    int owner = 0;
    std::vector<Part> parts;  // by rank
  };

  // This rank among the ranks of the stage.
  int rank() const { return rank_; }
  // The matrices of a unit that this rank owns or has a part of, in the same order on all ranks.
  std::span<const Matrix> of_unit(size_t unit) const { return units_[unit]; }
  bool empty() const { return work_elements_ == 0; }
  // The ranks to which this rank sends, from which it also receives, ascending.
  std::vector<int> peers() const;
  // Elements of memory for parts of other ranks, and for the computation: the most that any rank of the stage needs.
  int64_t staging_elements() const { return staging_elements_; }
  int64_t work_elements() const { return work_elements_; }
  // Chunks of kNormChunk elements of the largest matrix.
  int64_t chunks() const { return chunks_; }
  // Elements that this rank sends in a step: its parts to their owners, and parts of its own matrices back.
  int64_t sent_elements() const;
  // Bytes of these buffers.
  size_t bytes(DType dtype) const;
  // The most floating-point operations that a rank of the stage has in one step, in `iterations` of orthogonalise.
  double most_flops(int64_t iterations) const { return most_flops_ * static_cast<double>(iterations); }

 private:
  int rank_ = 0;
  std::vector<std::vector<Matrix>> units_;
  int64_t staging_elements_ = 0, work_elements_ = 0, chunks_ = 0;
  double most_flops_ = 0;  // operations of one iteration
};

}  // namespace trifold
