// Products of matrices, by plain loops: what does not depend on parameters is small, such as the angles of rotary
// positions.
#include "core/error.h"
#include "graph/host/rows.h"

namespace trifold::graph {

namespace {

// c [batch, m, n] = a [batch, m, k] b [batch, k, n]; c is zero before.
template <class T>
void multiply(const T* a, const T* b, T* c, int64_t batch, int64_t m, int64_t k, int64_t n) {
  for (int64_t row = 0; row < batch * m; ++row, c += n) {
    const T* const matrix = b + row / m * k * n;
    for (int64_t j = 0; j < k; ++j) {
      const T factor = *a++;
      for (int64_t i = 0; i < n; ++i) c[i] += factor * matrix[j * n + i];
    }
  }
}

// matmul, mm and bmm: arrays of one dim count as a row on the left and as a column on the right; dims before the last
// two are repeated.
Array matmul(const Call& call) {
  const ElementType type = call.type(), computed = computed_type(type);
  if (computed == ElementType::Bool) bad_input("a product of matrices of bools is not supported");
  Array a = converted(call.tensor(0), computed), b = converted(call.tensor(1), computed);
  if (a.dims.empty() || b.dims.empty()) bad_input("matrices are needed, not numbers");
  const bool row = a.dims.size() == 1, column = b.dims.size() == 1;
  if (row) a.dims.insert(a.dims.begin(), 1);
  if (column) b.dims.push_back(1);
  const int64_t m = a.dims.end()[-2], k = a.dims.back(), n = b.dims.back();
  if (b.dims.end()[-2] != k)
    bad_input("matrices of shapes {} and {} cannot be multiplied", dims_text(a.dims), dims_text(b.dims));
  Dims dims =
      broadcast_dims(std::span(a.dims).first(a.dims.size() - 2), std::span(b.dims).first(b.dims.size() - 2));
  int64_t batch = 1;
  for (const int64_t extent : dims) batch *= extent;
  const auto repeated = [&](const Array& matrix, int64_t height, int64_t width) {
    Dims whole = dims;
    whole.insert(whole.end(), {height, width});
    return matrix.dims == whole ? matrix : broadcast_to(matrix, whole);
  };
  a = repeated(a, m, k);
  b = repeated(b, k, n);
  if (!row) dims.push_back(m);
  if (!column) dims.push_back(n);
  Array c = zero_array(computed, dims);
  if (c.elements() == 0 || k == 0) return converted(std::move(c), type);
  if (computed == ElementType::I64)  // integers wrap
    multiply(a.as<uint64_t>(), b.as<uint64_t>(), c.as<uint64_t>(), batch, m, k, n);
  else if (computed == ElementType::F64)
    multiply(a.as<double>(), b.as<double>(), c.as<double>(), batch, m, k, n);
  else
    multiply(a.as<float>(), b.as<float>(), c.as<float>(), batch, m, k, n);
  return converted(std::move(c), type);
}

}  // namespace

void add_product_rows(std::vector<HostRow>& rows) {
  const std::vector<HostRow> own{{"matmul", matmul}, {"mm", matmul}, {"bmm", matmul}};
  rows.insert(rows.end(), own.begin(), own.end());
}

}  // namespace trifold::graph
