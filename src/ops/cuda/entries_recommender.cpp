// Entries of the CUDA table: recommender models. Lists of views are read when the launch is enqueued, and
// passed in the launch's arguments.
#include <algorithm>
#include <vector>

#include "ops/cuda/entries.h"
#include "ops/cuda/entries_support.h"
#include "ops/cuda/workspace.h"

namespace trifold::cuda {

namespace {

template <class T>
T* numbers(const Tensor& t) {
  return t.data == nullptr ? nullptr : t.as<T>();
}

}  // namespace

void bias_relu(Stream& stream, Tensor y, Tensor bias, bool relu) {
  dispatch_float(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "linear",
            [out = y.as<T>(), shift = bias.as<T>(), rows = y.row_count(), columns = y.last_dim(),
             relu](CudaStream on) { bias_relu<T>(on, out, shift, rows, columns, relu); });
  });
}

void relu_backward(Stream& stream, Tensor dx, Tensor db, Tensor dy, Tensor y, bool accumulate) {
  const int64_t rows = y.row_count();
  const int64_t columns = y.last_dim();
  dispatch_float(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue_with_scratch(stream, "relu_backward", column_scratch(rows, columns, sizeof(T)),
                         [=, to = dx.as<T>(), sums = db.as<Accumulate<T>>(), from = dy.as<T>(),
                          saved = y.as<T>()](CudaStream on, void* scratch) {
                           relu_backward<T>(on, scratch, to, sums, from, saved, rows, columns, accumulate);
                         });
  });
}

void embedding_bags(Stream& stream, Tensor y, std::span<const BagLookup> lookups) {
  dispatch_wide_float(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(
        stream, "embedding_bags",
        [=, out = y.as<T>(), bags = y.row_count(), stride = y.last_dim()](CudaStream on) {
          std::vector<BagTask<T>> tasks;
          tasks.reserve(lookups.size());
          for (const BagLookup& lookup : lookups)
            tasks.push_back({lookup.table.as<T>(), lookup.ids.as<int32_t>(), lookup.offsets.as<int32_t>(),
                             numbers<float>(lookup.weights), out + lookup.column, lookup.table.last_dim()});
          embedding_bags<T>(on, tasks, bags, stride);
        });
  });
}

void sort_lookups(Stream& stream, std::span<const LookupOrder> orders, std::span<const BagLookup> lookups) {
  std::vector<SortTask> tasks;
  tasks.reserve(orders.size());
  for (size_t i = 0; i < orders.size(); ++i) {
    const LookupOrder& order = orders[i];
    const BagLookup& lookup = lookups[i];
    const int64_t n = lookup.ids.elements();
    auto* keys = reinterpret_cast<uint64_t*>(order.scratch.as<int64_t>());
    tasks.push_back({.keys = keys,
                     .spare = keys + n,
                     .ids = lookup.ids.as<int32_t>(),
                     .offsets = lookup.offsets.as<int32_t>(),
                     .weights = numbers<float>(lookup.weights),
                     .row = order.row.as<int32_t>(),
                     .begin = order.begin.as<int32_t>(),
                     .bag = order.bag.as<int32_t>(),
                     .weight = numbers<float>(order.weight),
                     .count = order.count.as<int64_t>(),
                     .n = n,
                     .bags = lookup.offsets.elements() - 1,
                     .rows = order.rows});
  }
  const size_t bytes = sort_scratch(tasks);
  enqueue_with_scratch(
      stream, "sort_lookups", bytes,
      [tasks = std::move(tasks)](CudaStream on, void* scratch) { sort_lookups(on, scratch, tasks); });
}

namespace {

template <class T>
UpdateTask<T> task_of(const RowUpdate& update, const Tensor& dy) {
  const LookupOrder& order = *update.order;
  const int64_t width = update.table.last_dim();
  return {{.table = update.table.as<T>(),
           .state = numbers<T>(update.state),
           .second = numbers<T>(update.second),
           .row = order.row.as<int32_t>(),
           .begin = order.begin.as<int32_t>(),
           .bag = order.bag.as<int32_t>(),
           .weight = numbers<float>(order.weight),
           .dy = dy.as<T>() + update.column,
           .squares = numbers<T>(update.squares),
           .touched = numbers<T>(update.touched),
           .dy_stride = dy.last_dim(),
           .width = width,
           .whole_width = update.squares.data == nullptr ? width : update.whole_width},
          order.count.as<int64_t>(),
          order.row.elements()};
}

size_t update_scratch_of(std::span<const RowUpdate> updates, size_t size_of_number) {
  int64_t lookups = 0;
  int64_t widest = 0;
  for (const RowUpdate& update : updates) {
    lookups = std::max(lookups, update.order->row.elements());
    widest = std::max(widest, update.table.last_dim());
  }
  return update_workspace(static_cast<int64_t>(updates.size()), lookups, widest, size_of_number);
}

void over_touched_rows(const char* op, Stream& stream, Tensor dy, std::span<const RowUpdate> updates,
                       cpu::RowAction action, const cpu::LateRule<cpu::RowRule>& rule) {
  dispatch_wide_float(dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue_with_scratch(stream, op, update_scratch_of(updates, sizeof(T)),
                         [=](CudaStream on, void* scratch) {
                           std::vector<UpdateTask<T>> tasks;
                           tasks.reserve(updates.size());
                           for (const RowUpdate& update : updates) tasks.push_back(task_of<T>(update, dy));
                           update_rows<T>(on, scratch, tasks, action, rule);
                         });
  });
}

}  // namespace

void update_rows(Stream& stream, Tensor dy, std::span<const RowUpdate> updates, const SparseRule& rule) {
  over_touched_rows("update_rows", stream, dy, updates, cpu::action_of(rule.kind),
                    cpu::late("update_rows", rule));
}

void row_squares(Stream& stream, Tensor dy, std::span<const RowUpdate> updates, double grad_scale) {
  cpu::LateRule<cpu::RowRule> rule;
  rule.rule.moments.grad_scale = grad_scale;
  over_touched_rows("row_squares", stream, dy, updates, cpu::RowAction::Squares, rule);
}

void row_gradients(Stream& stream, Tensor dy, std::span<const RowUpdate> updates) {
  over_touched_rows("row_gradients", stream, dy, updates, cpu::RowAction::Store, {});
}

void dot_interaction(Stream& stream, Tensor y, Tensor x, int64_t width, bool self) {
  const int64_t vectors = x.last_dim() / width;
  dispatch_wide_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "dot_interaction",
            [=, out = y.as<T>(), in = x.as<T>(), rows = x.row_count()](CudaStream on) {
              dot_interaction<T>(on, out, in, rows, vectors, width, self);
            });
  });
}

void dot_interaction_backward(Stream& stream, Tensor dx, Tensor dy, Tensor x, int64_t width, bool self) {
  const int64_t vectors = x.last_dim() / width;
  dispatch_wide_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "dot_interaction_backward",
            [=, out = dx.as<T>(), grad = dy.as<T>(), in = x.as<T>(), rows = x.row_count()](CudaStream on) {
              dot_interaction_backward<T>(on, out, grad, in, rows, vectors, width, self);
            });
  });
}

void cross(Stream& stream, Tensor y, Tensor x0, Tensor u, Tensor x) {
  const int64_t n = y.elements();
  dispatch_float(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "cross",
            [=, out = y.as<T>(), start = x0.as<T>(), part = u.as<T>(), in = x.as<T>()](CudaStream on) {
              cross<T>(on, out, start, part, in, n);
            });
  });
}

void cross_backward(Stream& stream, Tensor du, Tensor dx0, Tensor dy, Tensor x0, Tensor u) {
  const int64_t n = dy.elements();
  dispatch_float(dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "cross_backward",
            [=, to = du.as<T>(), sum = dx0.as<T>(), grad = dy.as<T>(), start = x0.as<T>(),
             part = u.as<T>()](CudaStream on) { cross_backward<T>(on, to, sum, grad, start, part, n); });
  });
}

void sigmoid(Stream& stream, Tensor p, Tensor z) {
  dispatch_wide_float(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "sigmoid", [out = p.as<T>(), in = z.as<T>(), n = p.elements()](CudaStream on) {
      sigmoid<T>(on, out, in, n);
    });
  });
}

void click_loss(Stream& stream, Tensor loss, Tensor z, Tensor labels, ClickLoss kind) {
  const int64_t n = loss.elements();
  dispatch_wide_float(loss.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "click_loss",
            [=, out = loss.as<T>(), in = z.as<T>(), label = labels.as<float>()](CudaStream on) {
              click_loss<T>(on, out, in, label, n, kind == ClickLoss::Squared);
            });
  });
}

void click_loss_backward(Stream& stream, Tensor dz, Tensor z, Tensor labels, Tensor weight,
                         const Factor& scale, ClickLoss kind) {
  const int64_t n = dz.elements();
  const cpu::LateFactor factor = cpu::late("click_loss_backward", scale);
  dispatch_wide_float(dz.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "click_loss_backward",
            [=, out = dz.as<T>(), in = z.as<T>(), label = labels.as<float>(),
             weights = weight.as<float>()](CudaStream on) {
              click_loss_backward<T>(on, out, in, label, weights, factor, n, kind == ClickLoss::Squared);
            });
  });
}

void copy_columns(Stream& stream, Tensor y, Tensor x, std::span<const ColumnCopy> copies) {
  const int64_t rows = x.row_count();
  dispatch_wide_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "copy_columns",
            [=, out = y.as<T>(), in = x.as<T>(), to = y.last_dim(), from = x.last_dim()](CudaStream on) {
              for (const ColumnCopy& copy : copies)
                copy_columns<T>(on, out + copy.to, to, in + copy.from, from, numbers<T>(copy.row_scale), rows,
                                copy.width, copy.add);
            });
  });
}

void copy_rows(Stream& stream, Tensor y, Tensor to, Tensor x, Tensor from) {
  dispatch_wide_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "copy_rows",
            [out = y.as<T>(), rows = to.as<int32_t>(), in = x.as<T>(), sources = from.as<int32_t>(),
             n = from.elements(),
             width = x.last_dim()](CudaStream on) { copy_rows<T>(on, out, rows, in, sources, n, width); });
  });
}

void inverse_root(Stream& stream, Tensor y, Tensor x, double eps) {
  dispatch_wide_float(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "inverse_root", [out = y.as<T>(), in = x.as<T>(), eps, n = y.elements()](CudaStream on) {
      inverse_root<T>(on, out, in, eps, n);
    });
  });
}

void add_recommender(OpTable& ops) {
  ops.relu_backward = relu_backward;
  ops.embedding_bags = embedding_bags;
  ops.sort_lookups = sort_lookups;
  ops.update_rows = update_rows;
  ops.row_squares = row_squares;
  ops.row_gradients = row_gradients;
  ops.dot_interaction = dot_interaction;
  ops.dot_interaction_backward = dot_interaction_backward;
  ops.cross = cross;
  ops.cross_backward = cross_backward;
  ops.sigmoid = sigmoid;
  ops.click_loss = click_loss;
  ops.click_loss_backward = click_loss_backward;
  ops.copy_columns = copy_columns;
  ops.copy_rows = copy_rows;
  ops.inverse_root = inverse_root;
}

}  // namespace trifold::cuda
