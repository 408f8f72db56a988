#include "zero/matrix_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "data_parallel/shared_sums.h"
#include "optim/muon.h"

namespace trifold {

bool is_matrix(const ParamSpec& spec) {
  const Shape& shape = spec.shard.global;
  const int dims = shape.rank();
  return spec.decay && !spec.frozen && !spec.is_table && !spec.is_buffer && dims >= 2 &&
         shape[dims - 1] > 1 && shape[dims - 2] > 1;
}

namespace {

// A rank's local box of a parameter, and whether it is the first rank with this box in its group.
struct HeldBox {
  Rect box;
  bool first = true;
};

// `local` is the box of another rank of the stage, which has the same extent. Experts are cut along their first dim over
// the expert axis, and along another over the tensor axis of experts; other parameters along one dim over the tensor
// axis.
HeldBox box_on(const ShardSpec& spec, const MeshCoords& coords) {
  HeldBox held{spec.local, true};
  const bool of_experts = spec.data_axes() == kExpertDataAxes;
  bool inner_cut = false;
  for (int dim = 0; dim < spec.global.rank(); ++dim) {
    const int64_t extent = spec.local.extent[dim];
    if (extent == spec.global[dim]) continue;
    const bool over_experts = of_experts && dim == 0;
    const int copies = of_experts ? 1 : std::max(spec.tensor_copies, 1);
    const int place = over_experts ? coords[Axis::Ep] : coords[of_experts ? Axis::Etp : Axis::Tp];
    held.box.offset[dim] = place / copies * extent;
    if (over_experts) continue;
    inner_cut = true;
    held.first = place % copies == 0;
  }
  if (!inner_cut) held.first = coords[of_experts ? Axis::Etp : Axis::Tp] == 0;
  return held;
}

// The elements of a parameter's local box that a rank owns.
std::pair<int64_t, int64_t> owned_range(const FlatLayout& layout, const FlatLayout::Unit& unit, ParamId id,
                                        std::optional<int> slice) {
  const int64_t elements = layout.params()[id].shard.local.elements();
  if (!slice) return {0, elements};
  const int64_t at = layout.offset(id);
  const int64_t begin = std::clamp<int64_t>(layout.slice_begin(unit, *slice) - at, 0, elements);
  const int64_t end = std::clamp<int64_t>(layout.slice_begin(unit, *slice + 1) - at, 0, elements);
  return {begin, end};
}

// The index among the parameter's matrices of each matrix of a local box, in the order of the box.
std::vector<int64_t> matrices_of(const Shape& global, const Rect& box) {
  const int leading = global.rank() - 2;
  std::vector<int64_t> found{0};
  for (int dim = 0; dim < leading; ++dim) {
    std::vector<int64_t> next;
    for (const int64_t outer : found)
      for (int64_t i = 0; i < box.extent[dim]; ++i) next.push_back(outer * global[dim] + box.offset[dim] + i);
    found = std::move(next);
  }
  return found;
}

class Planner {
 public:
  Planner(const FlatLayout& layout, const MeshSizes& sizes, const MeshCoords& coords, bool sharded)
      : layout_(layout),
        sizes_(sizes),
        sharded_(sharded),
        load_(static_cast<size_t>(sizes.ranks(kStageAxes))) {
    const int stage = sizes.ranks(kStageAxes);
    for (int rank = 0; rank < stage; ++rank)
      ranks_.push_back(coords_of(coords[Axis::Pp] * stage + rank, sizes));
  }

  // The matrices of a unit with their owners, on all ranks of the stage.
  std::vector<MatrixPlan::Matrix> plan(const FlatLayout::Unit& unit) {
    std::vector<MatrixPlan::Matrix> matrices;
    for (const ParamId id : unit.params)
      if (is_matrix(layout_.params()[id])) add(unit, id, matrices);
    std::vector<size_t> order(matrices.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    const auto flops = [&](size_t i) {
      return newton_schulz_flops(matrices[i].rows, matrices[i].columns, 1);
    };
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return flops(a) > flops(b); });
    for (const size_t i : order) choose_owner(matrices[i], flops(i));
    return matrices;
  }

  double most_load() const { return *std::max_element(load_.begin(), load_.end()); }

 private:
  void add(const FlatLayout::Unit& unit, ParamId id, std::vector<MatrixPlan::Matrix>& matrices) {
    const ShardSpec& spec = layout_.params()[layout_.params()[id].tied_to.value_or(id)].shard;
    const int dims = spec.global.rank();
    const int64_t rows = spec.local.extent[dims - 2], columns = spec.local.extent[dims - 1];
    const int slices = sharded_ ? unit.slices : 1;
    std::map<std::pair<int, int64_t>, size_t> index_of;  // by group and matrix
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      const int place = place_along(unit.data, ranks_[rank], sizes_);
      const HeldBox held = box_on(spec, ranks_[rank]);
      const auto [begin, end] =
          owned_range(layout_, unit, id, sharded_ ? std::optional(place % slices) : std::nullopt);
      const std::vector<int64_t> numbers = matrices_of(spec.global, held.box);
      for (size_t i = 0; i < numbers.size(); ++i) {
        const auto [at, is_new] = index_of.try_emplace({place / slices, numbers[i]}, matrices.size());
        if (is_new) matrices.push_back({id, numbers[i], spec.global[dims - 2], spec.global[dims - 1], 0, {}});
        const int64_t first = static_cast<int64_t>(i) * rows * columns;
        const int64_t from = std::max(begin, first), to = std::min(end, first + rows * columns);
        MatrixPlan::Part part{static_cast<int>(rank), from, std::max<int64_t>(to - from, 0), held.first, {}};
        const Rect box{{held.box.offset[dims - 2], held.box.offset[dims - 1]}, {rows, columns}};
        if (part.count > 0) part.rects = rects_of_range(box, from - first, to - first);
        matrices[at->second].parts.push_back(std::move(part));
      }
    }
  }

  void choose_owner(MatrixPlan::Matrix& matrix, double flops) {
    const MatrixPlan::Part* best = &matrix.parts.front();
    for (const MatrixPlan::Part& part : matrix.parts) {
      const double load = load_[static_cast<size_t>(part.rank)];
      const double least = load_[static_cast<size_t>(best->rank)];
      if (load < least || (load == least && part.count > best->count)) best = &part;
    }
    matrix.owner = best->rank;
    load_[static_cast<size_t>(best->rank)] += flops;
    std::erase_if(matrix.parts, [](const MatrixPlan::Part& part) { return part.count == 0; });
  }

  const FlatLayout& layout_;
  const MeshSizes& sizes_;
  bool sharded_;
  std::vector<MeshCoords> ranks_;  // the ranks of the stage
  std::vector<double> load_;       // operations of each rank so far
};

}  // namespace

MatrixPlan::MatrixPlan(const FlatLayout& layout, const MeshSizes& sizes, const MeshCoords& coords,
                       bool sharded)
    : rank_(place_along(kStageAxes, coords, sizes)) {
  Planner planner(layout, sizes, coords, sharded);
  for (const FlatLayout::Unit& unit : layout.units()) {
    std::map<int, int64_t> staging;  // by owner
    std::vector<Matrix>& mine = units_.emplace_back();
    for (Matrix& matrix : planner.plan(unit)) {
      bool takes_part = matrix.owner == rank_;
      for (const Part& part : matrix.parts) {
        if (part.rank != matrix.owner) staging[matrix.owner] += part.count;
        takes_part = takes_part || part.rank == rank_;
      }
      work_elements_ = std::max(work_elements_, newton_schulz_elements(matrix.rows, matrix.columns));
      chunks_ = std::max(chunks_, ChunkedSquares::chunks_of(matrix.rows * matrix.columns));
      if (takes_part) mine.push_back(std::move(matrix));
    }
    for (const auto& [owner, elements] : staging) staging_elements_ = std::max(staging_elements_, elements);
  }
  most_flops_ = planner.most_load();
}

std::vector<int> MatrixPlan::peers() const {
  std::set<int> found;
  for (const std::vector<Matrix>& unit : units_)
    for (const Matrix& matrix : unit) {
      if (matrix.owner != rank_) found.insert(matrix.owner);
      if (matrix.owner != rank_) continue;
      for (const Part& part : matrix.parts)
        if (part.rank != rank_) found.insert(part.rank);
    }
  return {found.begin(), found.end()};
}

int64_t MatrixPlan::sent_elements() const {
  int64_t sent = 0;
  for (const std::vector<Matrix>& unit : units_)
    for (const Matrix& matrix : unit)
      for (const Part& part : matrix.parts) {
        if (part.rank == matrix.owner) continue;
        if (matrix.owner == rank_ || (part.rank == rank_ && part.source)) sent += part.count;
      }
  return sent;
}

size_t MatrixPlan::bytes(DType dtype) const {
  return static_cast<size_t>(staging_elements_ + work_elements_) * size_of(dtype) +
         static_cast<size_t>(chunks_) * sizeof(double);
}

}  // namespace trifold
