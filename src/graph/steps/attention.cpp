// Rule of scaled_dot_product_attention: the engine's fused attention where it applies, and otherwise products and a
// softmax, one sample at a time, which backward repeats instead of keeping the probabilities.
#include <cmath>
#include <limits>

#include "core/error.h"
#include "graph/steps/matrices.h"
#include "graph/steps/rules.h"

namespace trifold::graph {

namespace {

// Arguments of the operation.
constexpr size_t kQuery = 0, kKey = 1, kValue = 2, kMask = 3, kProbability = 4, kCausal = 5, kScale = 6;

// Whether queries see the keys of the same positions, in heads of one width.
bool fuses(const std::vector<Extent>& q, const std::vector<Extent>& k, const std::vector<Extent>& v) {
  return q[2] == k[2] && q[3] == k[3] && k == v && q[0] == k[0];
}

double scale_of(const StepParts& parts) {
  const int64_t width = parts.operand(kQuery).view.dims.back().fixed;
  return parts.number(kScale, 1 / std::sqrt(static_cast<double>(width)));
}

// Attention of queries to the keys of the same positions, all of them or the earlier ones.
class FusedAttention final : public Step {
 public:
  explicit FusedAttention(const StepParts& parts)
      : parts_{parts.operand(kQuery), parts.operand(kKey), parts.operand(kValue)},
        probability_(parts.number(kProbability)),
        key_(parts.key()),
        lse_(parts.builder.slot()) {
    const View& q = parts_[0].view;
    attention_.seq = q.dims[2].fixed;
    attention_.heads = attention_.global_heads = q.dims[1].fixed;
    attention_.kv_heads = parts_[1].view.dims[1].fixed;
    attention_.head_dim = q.dims[3].fixed;
    attention_.causal = parts.flag(kCausal);
    attention_.scale = scale_of(parts);
    columns_ = (attention_.heads + 2 * attention_.kv_heads) * attention_.head_dim;
    packed_ = is_packed(parts);
  }

  static bool applies(const StepParts& parts) {
    const Operand q = parts.operand(kQuery), k = parts.operand(kKey), v = parts.operand(kValue);
    if (parts.operand(kMask).exists() || q.view.dims.size() != 4) return false;
    const int64_t heads = q.view.dims[1].fixed, kv_heads = k.view.dims[1].fixed;
    return q.view.dims[2] == k.view.dims[2] && q.view.dims[3] == k.view.dims[3] &&
           k.view.dims == v.view.dims && q.view.dims[0] == k.view.dims[0] && q.view.dims[2].per_sample == 0 &&
           kv_heads > 0 && heads % kv_heads == 0;
  }

  void take_saved(Frame& frame, Saved& saved) const override {
    const Attention attention = shape(frame);
    saved[lse_] = frame.run.keep->take(accumulate_type(frame.run.dtype),
                                       {attention.batch, attention.heads, attention.seq});
  }
  void forward(Frame& frame, Saved& saved, Tensor y) const override {
    const Attention attention = shape(frame);
    frame.run.ops.attention(frame.run.stream, output_rows(y), saved[lse_], packed(frame), attention);
  }

  void backward(Frame& frame, Saved& saved, Tensor dy) const override {
    const OpTable& ops = frame.run.ops;
    Stream& stream = frame.run.stream;
    const Attention attention = shape(frame);
    const Operand whole{parts_[0].base, packed_view()};
    const Frame::Target target =
        packed_ ? frame.gradient(whole)
                : Frame::Target{frame.temporary(frame.run.dtype, {rows(frame) * columns_})};
    const Tensor dqkv = target.tensor.reshape({rows(frame), columns_});
    ops.attention_backward(stream, dqkv, output_rows(dy), packed(frame), output_rows(frame.output()),
                           saved[lse_], attention);
    if (packed_) return frame.give(whole, target);
    for (size_t part = 0; part < parts_.size(); ++part) {
      if (!frame.wants(parts_[part])) continue;
      const Frame::Target dx = frame.gradient(parts_[part]);
      const Box box = parts_[part].view.box(frame.batch);
      ops.strided_copy(stream, dx.tensor, contiguous_view(box), dqkv, part_of_packed(part), box);
      frame.give(parts_[part], dx);
    }
  }

  std::vector<Operand> reads() const override { return {parts_[0], parts_[1], parts_[2]}; }
  bool reads_output() const override { return true; }

 private:
  // Where the heads of queries, keys and values begin in a row.
  int64_t first_column(size_t part) const {
    return (part == 0 ? 0 : attention_.heads + static_cast<int64_t>(part - 1) * attention_.kv_heads) *
           attention_.head_dim;
  }
  StridedView part_of_packed(size_t part) const {
    return {first_column(part), {attention_.seq * columns_, attention_.head_dim, columns_, 1}};
  }
  View packed_view() const {
    const Size samples = parts_[0].view.dims[0];
    return {{},
            {samples, {attention_.seq, 0}, {columns_, 0}},
            {{attention_.seq * columns_, 0}, {columns_, 0}, {1, 0}}};
  }
  // Whether queries, keys and values are already columns of one matrix.
  bool is_packed(const StepParts& parts) const {
    for (size_t part = 0; part < parts_.size(); ++part) {
      const Operand& operand = parts_[part];
      if (operand.base != parts_[0].base || operand.view.begin != Size{first_column(part), 0}) return false;
      const StridedView expected = part_of_packed(part);
      for (size_t axis = 0; axis < 4; ++axis)
        if (operand.view.strides[axis] != Size{expected.strides[axis], 0}) return false;
    }
    return packed_view().covers(parts.bases[static_cast<size_t>(parts_[0].base)].base->elements());
  }

  int64_t rows(const Frame& frame) const { return parts_[0].view.dims[0].at(frame.batch) * attention_.seq; }
  Tensor output_rows(Tensor tensor) const {
    const int64_t width = attention_.heads * attention_.head_dim;
    return tensor.reshape({tensor.elements() / width, width});
  }

  Tensor packed(Frame& frame) const {
    if (packed_) return frame.value(parts_[0].base).reshape({rows(frame), columns_});
    const Tensor qkv = frame.temporary(frame.run.dtype, {rows(frame), columns_});
    for (size_t part = 0; part < parts_.size(); ++part) {
      const StridedTensor from = frame.strided(parts_[part], qkv.dtype);
      frame.run.ops.strided_copy(frame.run.stream, qkv, part_of_packed(part), from.tensor, from.view,
                                 parts_[part].view.box(frame.batch));
    }
    return qkv;
  }

  Attention shape(const Frame& frame) const {
    const Batch& batch = *frame.run.batch;
    Attention attention = attention_;
    attention.batch = parts_[0].view.dims[0].at(frame.batch);
    attention.dropout = {frame.run.training ? probability_ : 0.0, key_, 0};
    attention.sample = batch.sample;
    attention.first_sample = batch.sample.data != nullptr ? 0 : batch.first_sample;
    return attention;
  }

  std::array<Operand, 3> parts_;
  double probability_;
  PhiloxKey key_;
  SlotId lse_;
  Attention attention_;
  int64_t columns_ = 0;
  bool packed_ = false;
};

// Any other attention: P = softmax(scale q k^T + mask), y = drop(P) v, of q [B, .., Tq, D], k [B, .., Tk, D] and
// v [B, .., Tk, Dv]. A mask is boolean or added, and may be trained. With fewer heads of keys, the axes between are
// [key heads, queries' heads for each], over which keys are repeated.
class MaskedAttention final : public Step {
 public:
  explicit MaskedAttention(const StepParts& parts)
      : scale_(scale_of(parts)), probability_(parts.number(kProbability)), key_(parts.key()) {
    q_ = parts.operand(kQuery), k_ = parts.operand(kKey), v_ = parts.operand(kValue),
    mask_ = parts.operand(kMask);
    const int64_t heads = q_.view.dims[1].fixed, kv_heads = k_.view.dims[1].fixed;
    grouped_ = heads != kv_heads;
    if (grouped_) {
      q_.view = split_heads(q_.view, heads / kv_heads);
      for (Operand* operand : {&k_, &v_}) {
        View one = split_heads(operand->view, 1);
        std::vector<Size> dims = one.dims;
        dims[2] = {heads / kv_heads, 0};
        operand->view = broadcast(one, dims);
      }
    }
    scores_ = q_.view;
    scores_.dims.back() = k_.view.dims[k_.view.dims.size() - 2];
    if (!mask_.exists()) return;
    is_boolean_ = parts.graph.at(std::get<ValueId>(parts.node.arguments[kMask])).type == ElementType::Bool;
    if (grouped_ && mask_.view.dims.size() >= 3) {
      const Size& mask_heads = mask_.view.dims[mask_.view.dims.size() - 3];
      mask_.view = split_heads(mask_.view, mask_heads == Size{1, 0} ? 1 : heads / kv_heads,
                               mask_.view.dims.size() - 3);
    }
    mask_.view = broadcast(mask_.view, scores_.dims);
  }

  void forward(Frame& frame, Saved&, Tensor y) const override {
    const Inputs in = inputs(frame, y.dtype);
    const Tensor p = frame.temporary(y.dtype, {in.scores.elements()});
    for (int64_t sample = 0; sample < in.samples; ++sample) {
      probabilities(frame, in, sample, p);
      drop(frame, p, p, sample);
      multiply(frame, rows_of(frame, y).at(sample), in_order(p, in.scores), in.v.at(sample));
    }
  }

  // With dP the gradient of the probabilities after dropout and dS that of the scores:
  //   dv = drop(P)^T dy, dP = dy v^T, dS = P (drop(dP) - sum), dq = scale dS k, dk = scale dS^T q, dmask = dS
  void backward(Frame& frame, Saved&, Tensor dy) const override {
    const OpTable& ops = frame.run.ops;
    Stream& stream = frame.run.stream;
    const Inputs in = inputs(frame, dy.dtype);
    std::array<Frame::Target, 3> targets;
    const std::array<const Operand*, 3> operands{&q_, &k_, &v_};
    for (size_t i = 0; i < 3; ++i)
      if (frame.wants(*operands[i])) targets[i] = frame.gradient(*operands[i]);
    const auto target = [&](size_t i, int64_t sample) {
      return in_order(targets[i].tensor, operands[i]->view.box(frame.batch)).at(sample);
    };
    const auto columns = in.scores.extents[static_cast<size_t>(in.scores.rank - 1)];
    const Tensor p = frame.temporary(dy.dtype, {in.scores.elements() / columns, columns});
    const Tensor ds = frame.temporary(dy.dtype, p.shape);
    const bool drops = frame.run.training && probability_ > 0;
    const Tensor dropped = drops ? frame.temporary(dy.dtype, p.shape) : p;
    for (int64_t sample = 0; sample < in.samples; ++sample) {
      probabilities(frame, in, sample, p);
      if (drops) drop(frame, dropped, p, sample);
      const Matrices out = rows_of(frame, dy).at(sample), scores = in_order(ds, in.scores);
      if (frame.wants(v_)) multiply(frame, target(2, sample), in_order(dropped, in.scores).transposed(), out);
      multiply(frame, scores, out, in.v.at(sample).transposed());
      drop(frame, ds, ds, sample);
      ops.softmax_backward(stream, ds, ds, p);
      if (frame.wants(mask_)) frame.give(mask_of(sample), {ds.flat()});
      if (frame.wants(q_)) multiply(frame, target(0, sample), scores, in.k.at(sample), scale_);
      if (frame.wants(k_)) multiply(frame, target(1, sample), scores.transposed(), in.q.at(sample), scale_);
    }
    for (size_t i = 0; i < 3; ++i)
      if (frame.wants(*operands[i])) frame.give(*operands[i], targets[i]);
  }

  std::vector<Operand> reads() const override {
    std::vector<Operand> all{q_, k_, v_};
    if (mask_.exists()) all.push_back(mask_);
    return all;
  }

 private:
  struct Inputs {
    Matrices q, k, v, mask;
    int64_t samples = 0;
    Box scores;  // [.., queries, keys] of one sample
  };

  // Axis `axis`, of heads, as [heads / each, each].
  static View split_heads(const View& view, int64_t each, size_t axis = 1) {
    View split = view;
    const auto at = static_cast<std::ptrdiff_t>(axis);
    const Size stride = view.strides[axis];
    split.dims[axis] = {view.dims[axis].fixed / each, 0};
    split.strides[axis] = {stride.fixed * each, stride.per_sample * each};
    split.dims.insert(split.dims.begin() + at + 1, Size{each, 0});
    split.strides.insert(split.strides.begin() + at + 1, stride);
    return split;
  }

  Inputs inputs(Frame& frame, DType dtype) const {
    Inputs in{matrices(frame, q_, dtype), matrices(frame, k_, dtype), matrices(frame, v_, dtype), {}, 0, {}};
    if (mask_.exists()) in.mask = matrices(frame, mask_, dtype);
    in.samples = in.q.box.extents[0];
    in.scores = in_order({}, scores_.box(frame.batch)).at(0).box;
    return in;
  }

  // y or dy, whose memory is [B, Tq, heads, Dv], as [B, .., Tq, Dv].
  Matrices rows_of(const Frame& frame, Tensor tensor) const {
    Box box = q_.view.box(frame.batch);
    const auto rank = static_cast<size_t>(box.rank);
    box.extents[rank - 1] = v_.view.dims.back().fixed;
    Matrices matrices{tensor, {}, box};
    int64_t stride = box.extents[rank - 1];
    matrices.view.strides[rank - 1] = 1;
    for (size_t axis = rank - 2; axis-- > 1;) {
      matrices.view.strides[axis] = stride;
      stride *= box.extents[axis];
    }
    matrices.view.strides[rank - 2] = stride;
    matrices.view.strides[0] = stride * box.extents[rank - 2];
    return matrices;
  }

  Operand mask_of(int64_t sample) const {
    View view = mask_.view;
    view.begin.fixed += sample * view.strides[0].fixed;
    view.begin.per_sample += sample * view.strides[0].per_sample;
    view.dims.erase(view.dims.begin());
    view.strides.erase(view.strides.begin());
    return {mask_.base, view};
  }

  void probabilities(const Frame& frame, const Inputs& in, int64_t sample, Tensor p) const {
    const OpTable& ops = frame.run.ops;
    Stream& stream = frame.run.stream;
    multiply(frame, in_order(p, in.scores), in.q.at(sample), in.k.at(sample).transposed(), scale_);
    if (mask_.exists()) {
      const StridedView rows = contiguous_view(in.scores), mask = in.mask.at(sample).view;
      const Tensor p_flat = p.flat();
      if (is_boolean_) {
        frame.map(p_flat, {in.mask.tensor, p_flat},
                  {MapOp::Select, -std::numeric_limits<double>::infinity(), 0, in.scores, {mask, rows}});
      } else {
        frame.map(p_flat, {p_flat, in.mask.tensor}, {MapOp::Add, 1, 0, in.scores, {rows, mask}});
      }
    }
    const int64_t columns = in.scores.extents[static_cast<size_t>(in.scores.rank - 1)];
    const Tensor rows = p.reshape({p.elements() / columns, columns});
    ops.softmax(stream, rows, rows);
  }

  // As the fused attention draws: element ((head * Tq) + query) * Tk + key of the sample.
  void drop(const Frame& frame, Tensor y, Tensor x, int64_t sample) const {
    if (!frame.run.training || probability_ == 0) return;
    const int64_t each = x.elements();
    frame.run.ops.dropout(frame.run.stream, y, x,
                          sample_dropout(frame.run, probability_, key_, sample * each, each));
  }

  Operand q_, k_, v_, mask_;
  double scale_, probability_;
  PhiloxKey key_;
  View scores_;  // its shape only
  bool grouped_ = false, is_boolean_ = false;
};

std::unique_ptr<Step> make_attention(const StepParts& parts) {
  if (FusedAttention::applies(parts)) return std::make_unique<FusedAttention>(parts);
  return std::make_unique<MaskedAttention>(parts);
}

// The result's memory is [B, T, heads, D], which the next product reads.
std::vector<size_t> attention_order(size_t rank) {
  return rank == 4 ? std::vector<size_t>{0, 2, 1, 3} : std::vector<size_t>{};
}

std::string attention_limit(const Graph& graph, const Node& node) {
  const auto dims = [&](size_t argument) {
    return graph.at(std::get<ValueId>(node.arguments.at(argument))).dims;
  };
  const std::vector<Extent> q = dims(kQuery), k = dims(kKey), v = dims(kValue);
  if (q.size() != 4 || k.size() != 4 || v.size() != 4)
    return fmt::format(
        "its queries, keys and values have the shapes {}, {} and {}, not [samples, heads, positions, width]",
        to_text(q), to_text(k), to_text(v));
  const auto number = [](const Extent& extent) { return extent.per_sample ? 0 : extent.value; };
  if (q[0] != k[0] || k[0] != v[0] || k[1] != v[1] || k[2] != v[2] || number(k[1]) < 1 || number(q[3]) < 1 ||
      number(q[2]) < 1 || number(k[2]) < 1 || number(v[3]) < 1 || number(q[1]) < 1 ||
      number(q[1]) % number(k[1]) != 0)
    return fmt::format("its queries {} do not fit its keys {} and values {}", to_text(q), to_text(k),
                       to_text(v));
  const auto* const mask = std::get_if<ValueId>(&node.arguments[kMask]);
  if (std::get<bool>(node.arguments[kCausal]) && mask != nullptr && mask->index >= 0)
    return "it is causal and has a mask, and only one of them is possible";
  if (std::get<bool>(node.arguments[kCausal]) && !fuses(q, k, v))
    return fmt::format(
        "it is causal with queries {}, keys {} and values {}, which need equal positions and widths",
        to_text(q), to_text(k), to_text(v));
  if (graph.has_batch && q[0] != Extent{1, true} && std::get<double>(node.arguments[kProbability]) > 0)
    return fmt::format("it has dropout and queries {}, whose first axis has to be the samples", to_text(q));
  return {};
}

}  // namespace

void add_attention_rules(std::vector<Rule>& rules) {
  rules.push_back(
      {"scaled_dot_product_attention", make_attention, 0, 0, false, attention_order, attention_limit});
}

}  // namespace trifold::graph
