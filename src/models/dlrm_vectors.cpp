#include "models/dlrm_vectors.h"

#include <algorithm>

namespace trifold {

namespace {

// The first column in the features of the vector of a column of ids.
int64_t feature_column(const DlrmShape& shape, int64_t column) {
  return (column + (shape.has_bottom() ? 1 : 0)) * shape.row();
}

// A group's vectors, a row for each sample.
Tensor of_samples(const Tensor& looked_up, int64_t samples) {
  return looked_up.reshape({samples, looked_up.elements() / samples});
}

}  // namespace

DlrmVectors::DlrmVectors(BlockBuilder& builder, const DlrmShape& shape) : width_(shape.width) {
  if (shape.places.empty()) return;
  check(std::ssize(shape.places) == shape.tables, "{} positions of vectors are given for {} columns of ids",
        shape.places.size(), shape.tables);
  add_pooled(shape);
  for (const AttendedBag& bag : shape.attended) add_bag(builder, shape, bag);
}

void DlrmVectors::add_pooled(const DlrmShape& shape) {
  for (const VectorColumns& source : shape.places)
    while (groups_.size() <= source.group) groups_.push_back({groups_.size(), {}, {}});
  for (int64_t c = 0; c < shape.tables; ++c) {
    const bool attended = std::any_of(shape.attended.begin(), shape.attended.end(),
                                      [&](const AttendedBag& bag) { return bag.column == c; });
    if (attended) continue;
    const VectorColumns& source = shape.places[static_cast<size_t>(c)];
    const int64_t column = feature_column(shape, c);
    groups_[source.group].take.push_back(column_copy(column, source.column, shape.row()));
    groups_[source.group].give.push_back(column_copy(source.column, column, shape.row()));
  }
}

void DlrmVectors::add_bag(BlockBuilder& builder, const DlrmShape& shape, const AttendedBag& bag) {
  const VectorColumns& source = shape.places[static_cast<size_t>(bag.column)];
  const int64_t pooled = feature_column(shape, bag.column);
  const int64_t candidate = feature_column(shape, bag.candidate);
  const int64_t weights = shape.row() - shape.width;
  Bag entry{source.group,
            {},
            {},
            {},
            {},
            {},
            {},
            {},
            {},
            BagAttention(builder, "attention." + bag.name, shape.width, source.bags, shape.attention)};
  entry.candidate = {column_copy(0, candidate, shape.width)};
  entry.candidate_back = {column_copy(candidate, 0, shape.width, true)};
  entry.pooled = {column_copy(pooled, 0, shape.width)};
  entry.back = {column_copy(0, pooled, shape.width)};
  for (int64_t k = 0; k < source.bags; ++k) {
    const int64_t column = source.column + k * source.stride;
    entry.take.push_back(column_copy((1 + k) * shape.width, column, shape.width));
    entry.give.push_back(column_copy(column, (1 + k) * shape.width, shape.width));
    if (weights == 0) continue;
    entry.weights.push_back(column_copy(pooled + shape.width, column + shape.width, weights, k > 0));
    entry.weights_back.push_back(column_copy(column + shape.width, pooled + shape.width, weights));
  }
  bags_.push_back(std::move(entry));
}

void DlrmVectors::forward(Run& run, const DlrmBatch& batch, Saved& saved) const {
  const int64_t samples = batch.features.row_count();
  for (const Group& group : groups_)
    if (!group.take.empty())
      run.ops.copy_columns(run.stream, batch.features, of_samples(batch.looked_up[group.index], samples),
                           group.take);
  for (const Bag& bag : bags_) {
    const Tensor looked_up = of_samples(batch.looked_up[bag.group], samples);
    const Tensor x =
        run.keep->take(looked_up.dtype, {samples, (1 + static_cast<int64_t>(bag.take.size())) * width_});
    run.ops.copy_columns(run.stream, x, batch.features, bag.candidate);
    run.ops.copy_columns(run.stream, x, looked_up, bag.take);
    run.ops.copy_columns(run.stream, batch.features, bag.attention.forward(run, x, saved), bag.pooled);
    if (!bag.weights.empty()) run.ops.copy_columns(run.stream, batch.features, looked_up, bag.weights);
  }
}

// Adds the attention's gradients of a candidate to the feature gradients before these are copied to the looked-up
// gradients.
void DlrmVectors::backward_input(Run& run, const DlrmBatch& batch, Saved& saved) const {
  if (groups_.empty()) return;
  const Tensor& gradients = batch.feature_gradients;
  const int64_t samples = gradients.row_count();
  for (size_t b = bags_.size(); b-- > 0;) {
    const Bag& bag = bags_[b];
    const Tensor dlooked_up = of_samples(batch.looked_up_gradients[bag.group], samples);
    const Tensor dpooled = run.flow->take(gradients.dtype, {samples, width_});
    run.ops.copy_columns(run.stream, dpooled, gradients, bag.back);
    const Tensor dx = bag.attention.backward_input(run, dpooled, saved);
    run.ops.copy_columns(run.stream, gradients, dx, bag.candidate_back);
    run.ops.copy_columns(run.stream, dlooked_up, dx, bag.give);
    if (!bag.weights.empty()) run.ops.copy_columns(run.stream, dlooked_up, gradients, bag.weights_back);
  }
  for (const Group& group : groups_)
    if (!group.give.empty())
      run.ops.copy_columns(run.stream, of_samples(batch.looked_up_gradients[group.index], samples), gradients,
                           group.give);
}

void DlrmVectors::backward_weight(Run& run, Saved& saved) const {
  for (const Bag& bag : bags_) bag.attention.backward_weight(run, saved);
}

}  // namespace trifold
