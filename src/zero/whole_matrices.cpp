#include "zero/whole_matrices.h"

#include <algorithm>

#include "comm/meet.h"
#include "optim/muon.h"

namespace trifold {

WholeMatrices::WholeMatrices(const FlatLayout& layout, const Mesh& mesh, const GradientBuffer& grads,
                             const UpdateRule& rule, const OpTable& ops, DType dtype, Stream& stream)
    : layout_(layout),
      mesh_(mesh),
      grads_(grads),
      rule_(rule),
      ops_(ops),
      dtype_(dtype),
      plan_(layout, mesh.sizes(), mesh.coords(), grads.is_sharded()),
      staging_(static_cast<size_t>(plan_.staging_elements()) * size_of(dtype), ops.device),
      work_(static_cast<size_t>(plan_.work_elements()) * size_of(dtype), ops.device),
      partials_(Buffer::shared(static_cast<size_t>(plan_.chunks()) * sizeof(double), ops.device)) {
  size_t most = 0;
  for (size_t unit = 0; unit < layout.units().size(); ++unit) {
    size_t count = 0;
    for (const MatrixPlan::Matrix& matrix : plan_.of_unit(unit)) count += matrix.parts.size();
    most = std::max(most, count);
  }
  transfers_.reserve(most);
  const std::vector<int> peers = plan_.peers();
  if (mesh.sizes().ranks(kStageAxes) > 1) meet(mesh.comm(kStageAxes), peers, peers, stream);
}

Tensor WholeMatrices::staged(int64_t begin, int64_t count) const {
  return Tensor{staging_.data(), dtype_, {plan_.staging_elements()}}.rows(begin, begin + count);
}

Tensor WholeMatrices::own(const FlatLayout::Unit& unit, ParamId id, const MatrixPlan::Part& part) const {
  FlatLayout::Segment segment{id, part.first, part.count, layout_.offset(id) + part.first, 0};
  if (grads_.is_sharded())
    segment.shard = unit.shard_begin + (segment.flat - unit.begin) % unit.slice_elements();
  return grads_.summed(segment);
}

// Both ends list the transfers of a pair in the order of matrices and parts.
void WholeMatrices::exchange(size_t unit, bool back, Stream& stream) {
  const FlatLayout::Unit& of = layout_.units()[unit];
  const int me = plan_.rank();
  transfers_.clear();
  int64_t taken = 0;
  for (const MatrixPlan::Matrix& matrix : plan_.of_unit(unit))
    for (const MatrixPlan::Part& part : matrix.parts) {
      if (part.rank == matrix.owner) continue;
      const bool sent = back || part.source;
      if (matrix.owner == me) {
        const Tensor values = staged(taken, part.count);
        taken += part.count;
        if (sent)
          transfers_.push_back(
              {back ? Transfer::Direction::Send : Transfer::Direction::Receive, part.rank, values});
      } else if (part.rank == me && sent) {
        transfers_.push_back({back ? Transfer::Direction::Receive : Transfer::Direction::Send, matrix.owner,
                              own(of, matrix.id, part)});
      }
    }
  if (!transfers_.empty()) mesh_.comm(kStageAxes).exchange(transfers_, stream);
}

void WholeMatrices::place(const MatrixPlan::Matrix& matrix, const MatrixPlan::Part& part, Tensor values,
                          Tensor x, bool back, Stream& stream) const {
  const bool turned = matrix.rows > matrix.columns;
  int64_t done = 0;
  for (const Rect& rect : part.rects) {
    const Box box{2, {rect.extent[0], rect.extent[1]}};
    const StridedView flat{done, {rect.extent[1], 1}};
    const StridedView whole =
        turned ? StridedView{rect.offset[1] * matrix.rows + rect.offset[0], {1, matrix.rows}}
               : StridedView{rect.offset[0] * matrix.columns + rect.offset[1], {matrix.columns, 1}};
    if (back)
      ops_.strided_copy(stream, values, flat, x.flat(), whole, box);
    else
      ops_.strided_copy(stream, x.flat(), whole, values, flat, box);
    done += rect.elements();
  }
}

void WholeMatrices::compute(const FlatLayout::Unit& unit, const MatrixPlan::Matrix& matrix, int64_t& taken,
                            Stream& stream) {
  const int64_t sides[2] = {std::min(matrix.rows, matrix.columns), std::max(matrix.rows, matrix.columns)};
  const int64_t elements = matrix.rows * matrix.columns;
  const Tensor work = work_.tensor(dtype_, {newton_schulz_elements(matrix.rows, matrix.columns)});
  const auto each_part = [&](Tensor x, bool back) {
    int64_t at = taken;
    for (const MatrixPlan::Part& part : matrix.parts) {
      const bool here = part.rank == plan_.rank();
      const Tensor values = here ? own(unit, matrix.id, part) : staged(at, part.count);
      if (!here) at += part.count;
      if (back || part.source) place(matrix, part, values, x, back, stream);
    }
    return at;
  };
  each_part(work.rows(0, elements), false);
  const Tensor chunks = partials_.tensor(DType::F64, {(elements + kNormChunk - 1) / kNormChunk});
  const Tensor result =
      trifold::orthogonalise(work, sides[0], sides[1], rule_.newton_schulz_steps(),
                             rule_.direction_scale(matrix.rows, matrix.columns), chunks, ops_, stream);
  taken = each_part(result, true);
}

void WholeMatrices::orthogonalise(size_t unit, Stream& stream) {
  exchange(unit, false, stream);
  int64_t taken = 0;
  for (const MatrixPlan::Matrix& matrix : plan_.of_unit(unit))
    if (matrix.owner == plan_.rank()) compute(layout_.units()[unit], matrix, taken, stream);
  exchange(unit, true, stream);
}

}  // namespace trifold
