#include "ops/cuda/attention_graphs.cuh"

#include <optional>

#include "core/error.h"

namespace trifold::cuda {

namespace {

cudnnDataType_t cudnn_type_of(DType dtype) {
  if (dtype == DType::BF16) return CUDNN_DATA_BFLOAT16;
  if (dtype == DType::F16) return CUDNN_DATA_HALF;
  fail("cuDNN's attention is for bf16 and f16, not {}", name_of(dtype));
}

// The layouts of all tensors of one shape: b batch, h heads, k key heads, s positions, n keys, d width.
struct Layouts {
  explicit Layouts(const AttentionShape& shape)
      : b(shape.batch),
        h(shape.heads),
        k(shape.kv_heads),
        s(shape.seq),
        n(shape.keys > 0 ? shape.keys : shape.seq),
        d(shape.width),
        all(shape.all_heads > 0 ? shape.all_heads : shape.heads),
        row((all + 2 * (shape.all_heads > 0 ? shape.all_kv_heads : shape.kv_heads)) * shape.width),
        block(shape.keys > 0),
        held(block ? shape.query_rows : s),
        key_row(block ? 2 * shape.given_heads * d : row),
        held_keys(block ? shape.key_rows : s),
        block_heads(block ? shape.given_heads * (h / k) : all) {}

  Layout4 query() const { return {{b, h, s, d}, {row * held, d, row, 1}}; }
  Layout4 key_rows() const { return {{b, k, n, d}, {key_row * held_keys, d, key_row, 1}}; }
  Layout4 key_columns() const { return {{b, k, d, n}, {key_row * held_keys, d, 1, key_row}}; }
  Layout4 out() const { return {{b, h, s, d}, {all * d * held, d, all * d, 1}}; }
  // Results, which are dense in a block.
  Layout4 block_out() const {
    return block ? Layout4{{b, h, s, d}, {block_heads * d * s, d, block_heads * d, 1}} : out();
  }
  Layout4 dquery() const { return block ? block_out() : query(); }
  Layout4 dkey() const { return block ? Layout4{{b, k, n, d}, {key_row * n, d, key_row, 1}} : key_rows(); }
  Layout4 rows() const { return {{b, h, s, 1}, {h * s, s, 1, 1}}; }
  Layout4 scores() const { return {{b, h, s, n}, {h * s * n, s * n, n, 1}}; }
  Layout4 scores_transposed() const { return {{b, h, n, s}, {h * s * n, s * n, 1, n}}; }
  Layout4 dense() const { return {{b, h, s, d}, {h * s * d, s * d, d, 1}}; }
  Layout4 dense_keys() const { return {{b, h, n, d}, {h * n * d, n * d, d, 1}}; }

  int64_t b, h, k, s, n, d, all, row;
  bool block;
  int64_t held, key_row, held_keys, block_heads;
};

// The operands of the masks that the shape needs. Keys of other documents get a finite score, because they precede a
// query's own: in the first tiles of keys a query may see none, and its running maximum must be a number.
struct Masks {
  Masks(Graph& graph, const AttentionShape& shape) {
    if (shape.causal || shape.lengths) low = graph.scalar(kMasked);
    if (shape.documents) {
      first = graph.per_row(shape.batch, shape.seq, kFirstKeys);
      hidden = graph.scalar(kHidden);
    }
    if (!shape.lengths) return;
    queries = graph.per_sample(shape.batch, kQueryLengths);
    keys = graph.per_sample(shape.batch, kKeyLengths);
  }
  std::optional<Node> low, queries, keys;  // score of masked keys; numbers of queries and keys of each sample
  std::optional<Node> first, hidden;       // first key of each query; score of keys before it
};

Node index_of(Graph& graph, const Layouts& at, Node scores, int64_t axis) {
  const Node index = graph.virtual_tensor(at.scores(), CUDNN_DATA_INT32);
  graph.index(scores, index, axis);
  return index;
}

Node compared(Graph& graph, const Layouts& at, cudnnPointwiseMode_t comparison, Node left, Node right) {
  const Node result = graph.virtual_tensor(at.scores(), CUDNN_DATA_BOOLEAN);
  graph.pointwise(comparison, left, result, &right, nullptr, CUDNN_DATA_BOOLEAN);
  return result;
}

Node masked_where_not(Graph& graph, const Layouts& at, Node low, Node scores, Node seen) {
  const Node masked = graph.virtual_tensor(at.scores());
  graph.pointwise(CUDNN_POINTWISE_BINARY_SELECT, scores, masked, &low, &seen);
  return masked;
}

// Sets the scores of keys after the query to kMasked.
Node causal_mask(Graph& graph, const Layouts& at, const Masks& masks, Node scores) {
  const Node row = index_of(graph, at, scores, 2);
  const Node column = index_of(graph, at, scores, 3);
  const Node seen = compared(graph, at, CUDNN_POINTWISE_CMP_GE, row, column);
  return masked_where_not(graph, at, *masks.low, scores, seen);
}

// Sets the scores of keys before the query's document to kHidden.
Node document_mask(Graph& graph, const Layouts& at, const Masks& masks, Node scores) {
  const Node column = index_of(graph, at, scores, 3);
  const Node seen = compared(graph, at, CUDNN_POINTWISE_CMP_GE, column, *masks.first);
  return masked_where_not(graph, at, *masks.hidden, scores, seen);
}

// The masks that depend on the position of a query.
Node masked_by_row(Graph& graph, const Layouts& at, const Masks& masks, bool causal, Node scores) {
  if (masks.first) scores = document_mask(graph, at, masks, scores);
  return causal ? causal_mask(graph, at, masks, scores) : scores;
}

// Sets the scores of keys after a sample's end to kMasked. No query is after the end, but cuDNN's engines
// only recognise the graph with the check of queries.
Node padding_mask(Graph& graph, const Layouts& at, const Masks& masks, Node scores) {
  const Node row = index_of(graph, at, scores, 2);
  const Node column = index_of(graph, at, scores, 3);
  const Node query = compared(graph, at, CUDNN_POINTWISE_CMP_LT, row, *masks.queries);
  const Node key = compared(graph, at, CUDNN_POINTWISE_CMP_LT, column, *masks.keys);
  const Node seen = compared(graph, at, CUDNN_POINTWISE_LOGICAL_AND, query, key);
  return masked_where_not(graph, at, *masks.low, scores, seen);
}

// cuDNN's engines expect keys after a sample's end to be masked first.
Node scaled_scores(Graph& graph, const Layouts& at, const Masks& masks, Node query, Node key, Node scale) {
  const Node product = graph.virtual_tensor(at.scores());
  const Node scores = graph.virtual_tensor(at.scores());
  graph.matmul(query, key, product, {masks.queries, masks.keys, {}});
  graph.pointwise(CUDNN_POINTWISE_MUL, product, scores, &scale);
  return masks.keys ? padding_mask(graph, at, masks, scores) : scores;
}

Node product(Graph& graph, const Layouts& at, Node scores, Node factor) {
  const Node result = graph.virtual_tensor(at.scores());
  graph.pointwise(CUDNN_POINTWISE_MUL, scores, result, &factor);
  return result;
}

// The dropout mask of the weights: 1 for kept weights, 0 for dropped weights.
Node dropout_mask(Graph& graph, const Layouts& at, double dropout) {
  const Node seed = graph.single(CUDNN_DATA_INT64, kSeed);
  const Node offset = graph.single(CUDNN_DATA_INT64, kOffset);
  const Node mask = graph.virtual_tensor(at.scores());
  graph.bernoulli(1 - dropout, seed, offset, mask);
  return mask;
}

// weights * mask / (1 - dropout), in `type`.
Node dropped(Graph& graph, const Layouts& at, cudnnDataType_t type, Node weights, Node mask, Node grow) {
  const Node kept = graph.virtual_tensor(at.scores(), type);
  const Node grown = graph.virtual_tensor(at.scores(), type);
  graph.pointwise(CUDNN_POINTWISE_MUL, weights, kept, &mask);
  graph.pointwise(CUDNN_POINTWISE_MUL, kept, grown, &grow);
  return grown;
}

// The gradient of keys or values: a product for each query head, summed over the heads that share a key head.
void key_gradient(Graph& graph, const Layouts& at, const Masks& masks, cudnnDataType_t type, Node left,
                  Node right, Node result) {
  const Extents extents{masks.keys, {}, masks.queries};
  if (at.h == at.k) return graph.matmul(left, right, result, extents);
  const Node of_heads = graph.virtual_tensor(at.dense_keys(), type);
  graph.matmul(left, right, of_heads, extents);
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, of_heads, result);
}

}  // namespace

// max and exp as in the definition of softmax, in the order of operations that cuDNN's engines recognise.
Graph attention_forward_graph(const AttentionShape& shape) {
  const Layouts at(shape);
  const cudnnDataType_t type = cudnn_type_of(shape.dtype);
  Graph graph;
  const Node query = graph.tensor(at.query(), type, kQuery);
  const Node key = graph.tensor(at.key_columns(), type, kKey);
  const Node value = graph.tensor(at.key_rows(), type, kValue);
  const Node out = graph.tensor(at.block_out(), type, kOut);
  const Node lse = graph.tensor(at.rows(), CUDNN_DATA_FLOAT, kLse);

  const Masks masks(graph, shape);
  const Node scaled = scaled_scores(graph, at, masks, query, key, graph.scalar(kScale));
  const Node scores = masked_by_row(graph, at, masks, shape.causal, scaled);
  const Node most = graph.virtual_tensor(at.rows());
  const Node below = graph.virtual_tensor(at.scores());
  const Node powers = graph.virtual_tensor(at.scores());
  const Node sum = graph.virtual_tensor(at.rows());
  const Node log_sum = graph.virtual_tensor(at.rows());
  const bool drops = shape.dropout > 0;
  Node weights = graph.virtual_tensor(at.scores(), drops ? CUDNN_DATA_FLOAT : type);
  graph.reduce(CUDNN_REDUCE_TENSOR_MAX, scores, most);
  graph.pointwise(CUDNN_POINTWISE_SUB, scores, below, &most);
  graph.pointwise(CUDNN_POINTWISE_EXP, below, powers);
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, powers, sum);
  graph.pointwise(CUDNN_POINTWISE_LOG, sum, log_sum);
  graph.pointwise(CUDNN_POINTWISE_ADD, most, lse, &log_sum);
  graph.pointwise(CUDNN_POINTWISE_DIV, powers, weights, &sum);
  if (drops)
    weights = dropped(graph, at, type, weights, dropout_mask(graph, at, shape.dropout), graph.scalar(kGrow));
  graph.matmul(weights, value, out, {masks.queries, {}, masks.keys});
  return graph;
}

// With P the weights, dP = dO V^T and delta = rowsum(dO * O): dV = P^T dO, dS = P * (dP - delta) * scale,
// dK = dS^T Q, dQ = dS K. With dropout, of mask M and g = 1 / (1 - dropout): dV = (P * M * g)^T dO and
// dS = P * (dP * M - delta / g) * g * scale.
Graph attention_backward_graph(const AttentionShape& shape) {
  const Layouts at(shape);
  const cudnnDataType_t type = cudnn_type_of(shape.dtype);
  Graph graph;
  const Node query = graph.tensor(at.query(), type, kQuery);
  const Node key = graph.tensor(at.key_columns(), type, kKey);
  const Node value = graph.tensor(at.key_columns(), type, kValue);
  const Node out = graph.tensor(at.out(), type, kOut);
  const Node lse = graph.tensor(at.rows(), CUDNN_DATA_FLOAT, kLse);
  const Node dout = graph.tensor(at.out(), type, kDout);
  const Node dquery = graph.tensor(at.dquery(), type, kDquery);
  const Node dkey = graph.tensor(at.dkey(), type, kDkey);
  const Node dvalue = graph.tensor(at.dkey(), type, kDvalue);
  const Node delta = graph.tensor(at.rows(), CUDNN_DATA_FLOAT, kDelta);
  const Node scale = graph.scalar(kScale);

  const Node products = graph.virtual_tensor(at.dense());
  const Node sums = graph.virtual_tensor(at.rows());
  const Node keep = graph.scalar(kKeep);
  graph.pointwise(CUDNN_POINTWISE_MUL, dout, products, &out);
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, products, sums);
  graph.pointwise(CUDNN_POINTWISE_MUL, sums, delta, &keep);

  const Masks masks(graph, shape);
  const Node scores = scaled_scores(graph, at, masks, query, key, scale);
  const Node relative = graph.virtual_tensor(at.scores());
  graph.pointwise(CUDNN_POINTWISE_SUB, scores, relative, &lse);
  const Node below = masked_by_row(graph, at, masks, shape.causal, relative);
  const Node weights = graph.virtual_tensor(at.scores());
  graph.pointwise(CUDNN_POINTWISE_EXP, below, weights);
  const bool drops = shape.dropout > 0;
  const Node grow = drops ? graph.scalar(kGrow) : Node{};
  const Node kept = drops ? dropout_mask(graph, at, shape.dropout) : Node{};
  const Node used = drops ? dropped(graph, at, type, weights, kept, grow) : weights;
  const Node weights_transposed = graph.virtual_tensor(at.scores_transposed(), type);
  graph.reshape(used, weights_transposed);
  key_gradient(graph, at, masks, type, weights_transposed, dout, dvalue);

  Node dweights = graph.virtual_tensor(at.scores());
  const Node centred = graph.virtual_tensor(at.scores());
  Node weighted = graph.virtual_tensor(at.scores());
  const Node dscores = graph.virtual_tensor(at.scores());
  graph.matmul(dout, value, dweights, {masks.queries, masks.keys, {}});
  if (drops) dweights = product(graph, at, dweights, kept);
  graph.pointwise(CUDNN_POINTWISE_SUB, dweights, centred, &delta);
  graph.pointwise(CUDNN_POINTWISE_MUL, centred, weighted, &weights);
  if (drops) weighted = product(graph, at, weighted, grow);
  graph.pointwise(CUDNN_POINTWISE_MUL, weighted, dscores, &scale);
  const Node dscores_transposed = graph.virtual_tensor(at.scores_transposed(), type);
  graph.reshape(dscores, dscores_transposed);
  key_gradient(graph, at, masks, type, dscores_transposed, query, dkey);

  const Node key_rows = graph.virtual_tensor(at.key_rows(), type);
  graph.reshape(key, key_rows);
  const Extents extents{masks.queries, {}, masks.keys};
  if (shape.deterministic) {
    graph.matmul(dscores, key_rows, dquery, extents);
    return graph;
  }
  const Node sum = graph.tensor(at.dense(), CUDNN_DATA_FLOAT, kDqSum);
  graph.matmul(dscores, key_rows, sum, extents);
  graph.pointwise(CUDNN_POINTWISE_IDENTITY, sum, dquery);
  return graph;
}

}  // namespace trifold::cuda
