#include "graph/steps/class_counter.h"

#include <algorithm>
#include <array>

#include "nn/class_reports.h"

namespace trifold::graph {

namespace {

constexpr int64_t kMarks = int64_t{1} << 22;  // elements that are compared at a time

constexpr Box vector_box(int64_t rows) { return {1, {rows}}; }
constexpr Box matrix_box(int64_t rows, int64_t columns) { return {2, {rows, columns}}; }
constexpr StridedView kEachRow{0,
                               {1, 0}};  // in a matrix_box: a vector, repeated along rows or summed over them

// counts f64 [R]: how many scores of the row are in the relation to its label's score.
void count_scores(const Frame& frame, Tensor counts, Tensor logits, Tensor label, MapOp relation) {
  const int64_t rows = logits.dim(0), columns = logits.dim(1), each = std::max<int64_t>(1, kMarks / columns);
  for (int64_t begin = 0; begin < rows; begin += each) {
    const int64_t end = std::min(rows, begin + each);
    const Arena::Mark mark = frame.run.scratch.mark();
    const Box box = matrix_box(end - begin, columns);
    const Tensor marks = frame.temporary(logits.dtype, {end - begin, columns});
    frame.map(marks, {logits.rows(begin, end), label.rows(begin, end)},
              {relation, 0, 0, box, {contiguous_view(box), kEachRow}});
    frame.run.ops.strided_sum(frame.run.stream, counts.rows(begin, end), kEachRow, marks,
                              contiguous_view(box), box, 1.0, false);
    frame.run.scratch.release(mark);
  }
}

}  // namespace

ClassCounter::ClassCounter(const StepParts& parts)
    : counter_(
          parts.builder.counter(ClassReports::kCounter + parts.node.origin.node, ClassReports::kNumbers)),
      top_k_(parts.builder.batch_value(ClassReports::kTopK)) {}

// A label with g larger scores and e equal ones, its own included, has the places g + 1 to g + e: of the first k places
// it has a share of (k - g) / e, at least 0 and at most 1.
void ClassCounter::add(const Frame& frame, Tensor logits, Tensor target, Tensor weights) const {
  const Run& run = frame.run;
  if (run.grads != nullptr || run.counters.rank() == 0) return;
  const Arena::Mark mark = run.scratch.mark();
  const int64_t rows = logits.dim(0);
  const Box box = vector_box(rows);
  const StridedView in_order = contiguous_view(box);
  const auto each = [&] { return frame.temporary(DType::F64, {rows}); };
  const Tensor larger = each(), equal = each(), counts = each(), share = each();
  const Tensor label = frame.converted(target, logits.dtype);
  count_scores(frame, larger, logits, label, MapOp::Greater);
  count_scores(frame, equal, logits, label, MapOp::Equal);
  run.ops.convert(run.stream, counts, weights);
  frame.map(counts, {counts}, {MapOp::IsZero, 0, 0, box, {in_order}});
  const Tensor numbers = run.counter(counter_);
  const auto sum = [&](int64_t number, double factor, Tensor x) {
    run.ops.strided_sum(run.stream, numbers.rows(number, number + 1), {}, x, in_order, box, factor, true);
  };
  const std::array<double, 2> places{1, run.batch_value(top_k_)};
  for (size_t i = 0; i < places.size(); ++i) {
    frame.map(share, {larger}, {MapOp::Linear, -1, places[i], box, {in_order}});
    frame.map(share, {share, equal}, {MapOp::Div, 0, 0, box, {in_order, in_order}});
    frame.map(share, {share}, {MapOp::Clamp, 0, 1, box, {in_order}});
    // Rows that do not count have no label's score, so their shares mean nothing and may be NaN.
    frame.map(share, {counts, share}, {MapOp::SelectNot, 0, 0, box, {in_order, in_order}});
    sum(static_cast<int64_t>(i) + 1, 1.0, share);
  }
  frame.map(counts, {counts}, {MapOp::IsZero, 0, 0, box, {in_order}});
  sum(0, 1.0, counts);
  run.scratch.release(mark);
}

}  // namespace trifold::graph
