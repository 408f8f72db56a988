// Products of 16-bit factors: through oneDNN if the processor has instructions for them, otherwise through
// f32.
#include <dnnl.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "core/error.h"
#include "ops/gemm.h"

namespace trifold::cpu {

namespace {

constexpr size_t kMostProducts = 512;    // maximum cached per thread; a model has far fewer shapes
constexpr int64_t kWidenedDepth = 1024;  // depth of the factors that is converted at a time
constexpr size_t kScratchAlignment = 64;

void succeed(dnnl_status_t status, const char* what) {
  check(status == dnnl_success, "oneDNN could not {} (status {})", what, static_cast<int>(status));
}

template <class Handle, dnnl_status_t (*Destroy)(Handle*)>
struct Destroyer {
  void operator()(Handle* handle) const { Destroy(handle); }
};
template <class Handle, dnnl_status_t (*Destroy)(Handle*)>
using Owned = std::unique_ptr<Handle, Destroyer<Handle, Destroy>>;
using Engine = Owned<dnnl_engine, dnnl_engine_destroy>;
using Queue = Owned<dnnl_stream, dnnl_stream_destroy>;
using Attributes = Owned<dnnl_primitive_attr, dnnl_primitive_attr_destroy>;
using PostOps = Owned<dnnl_post_ops, dnnl_post_ops_destroy>;
using Description = Owned<dnnl_primitive_desc, dnnl_primitive_desc_destroy>;
using Primitive = Owned<dnnl_primitive, dnnl_primitive_destroy>;
using Memory = Owned<dnnl_memory, dnnl_memory_destroy>;

template <class T>
constexpr dnnl_data_type_t kDataType = dnnl_f32;
template <>
constexpr dnnl_data_type_t kDataType<Bfloat16> = dnnl_bf16;
template <>
constexpr dnnl_data_type_t kDataType<Float16> = dnnl_f16;

bool has_instructions(dnnl_data_type_t type) {
#if defined(__x86_64__)
  // Without AMX, Intel's processors multiply bf16 at little more than half of their f32 rate; AMD's at twice that rate.
  if (type == dnnl_bf16)
    return __builtin_cpu_supports("avx512bf16") != 0 &&
           (__builtin_cpu_is("intel") == 0 || dnnl_get_effective_cpu_isa() >= dnnl_cpu_isa_avx512_core_amx);
#endif
  return type == dnnl_f16;  // only the library knows; see `vectorised`
}

// All parameters of a product except its data.
struct ProductKey {
  dnnl_data_type_t c_type, type;
  int64_t m, n, k, c_stride, a_stride, b_stride;
  bool a_transposed, b_transposed;
  float alpha, beta;

  auto tie() const {
    return std::tie(c_type, type, m, n, k, c_stride, a_stride, b_stride, a_transposed, b_transposed, alpha,
                    beta);
  }
  bool operator<(const ProductKey& other) const { return tie() < other.tie(); }
};

dnnl_memory_desc_t matrix(int64_t rows, int64_t columns, dnnl_data_type_t type, int64_t stride,
                          bool transposed) {
  const dnnl_dims_t extents = {rows, columns};
  const dnnl_dims_t strides = {transposed ? 1 : stride, transposed ? stride : 1};
  dnnl_memory_desc_t description;
  succeed(dnnl_memory_desc_init_by_strides(&description, 2, extents, type, strides), "describe a matrix");
  return description;
}

Attributes attributes(float alpha, float beta) {
  dnnl_primitive_attr_t made = nullptr;
  succeed(dnnl_primitive_attr_create(&made), "make attributes");
  Attributes result(made);
  succeed(dnnl_primitive_attr_set_scratchpad_mode(made, dnnl_scratchpad_mode_user), "set scratch memory");
  if (alpha != 1) succeed(dnnl_primitive_attr_set_output_scales(made, 1, 0, &alpha), "set a scale");
  if (beta == 0) return result;
  dnnl_post_ops_t ops = nullptr;
  succeed(dnnl_post_ops_create(&ops), "make an addition");
  const PostOps owner(ops);
  succeed(dnnl_post_ops_append_sum(ops, beta), "add to a matrix");
  succeed(dnnl_primitive_attr_set_post_ops(made, ops), "add to a matrix");
  return result;
}

// One prepared product. Without a primitive, there is no fast implementation.
struct Product {
  Primitive primitive;
  std::array<Memory, 4> memories;  // a, b, c, scratch
  size_t scratch_bytes = 0;
};

// The library's reference code would be slower than converting.
bool vectorised(const dnnl_primitive_desc* description) {
  const char* name = nullptr;
  succeed(dnnl_primitive_desc_query(description, dnnl_query_impl_info_str, 0, &name), "name a product");
  return std::string_view(name).find("ref") == std::string_view::npos;
}

// A thread's engine, prepared products and scratch memory. A prepared product belongs to the thread, because
// it points to the data of its last use.
class Products {
 public:
  Products() {
    dnnl_engine_t engine = nullptr;
    succeed(dnnl_engine_create(&engine, dnnl_cpu, 0), "make an engine");
    engine_.reset(engine);
    dnnl_stream_t queue = nullptr;
    succeed(dnnl_stream_create(&queue, engine, dnnl_stream_default_flags), "make a stream");
    queue_.reset(queue);
  }

  const Product& get(const ProductKey& key) {
    const auto found = products_.find(key);
    if (found != products_.end()) return found->second;
    if (products_.size() >= kMostProducts) products_.clear();
    return products_.emplace(key, make(key)).first->second;
  }

  void run(const Product& product, const void* a, const void* b, void* c) {
    if (scratch_.size() < product.scratch_bytes + kScratchAlignment)
      scratch_.resize(product.scratch_bytes + kScratchAlignment);
    void* aligned = scratch_.data();
    size_t space = scratch_.size();
    std::align(kScratchAlignment, product.scratch_bytes, aligned, space);
    // oneDNN takes pointers to mutable data even for inputs.
    const std::array<void*, 4> data{const_cast<void*>(a), const_cast<void*>(b), c, aligned};
    constexpr std::array<int, 4> kRoles{DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD};
    std::array<dnnl_exec_arg_t, 4> arguments{};
    for (size_t i = 0; i < data.size(); ++i) {
      succeed(dnnl_memory_set_data_handle(product.memories[i].get(), data[i]), "take a matrix");
      arguments[i] = {kRoles[i], product.memories[i].get()};
    }
    succeed(dnnl_primitive_execute(product.primitive.get(), queue_.get(), 4, arguments.data()),
            "multiply matrices");
    succeed(dnnl_stream_wait(queue_.get()), "multiply matrices");
  }

 private:
  Product make(const ProductKey& key) {
    const dnnl_memory_desc_t a = matrix(key.m, key.k, key.type, key.a_stride, key.a_transposed);
    const dnnl_memory_desc_t b = matrix(key.k, key.n, key.type, key.b_stride, key.b_transposed);
    const dnnl_memory_desc_t c = matrix(key.m, key.n, key.c_type, key.c_stride, false);
    dnnl_matmul_desc_t operation;
    succeed(dnnl_matmul_desc_init(&operation, &a, &b, nullptr, &c), "describe a product");
    dnnl_primitive_desc_t described = nullptr;
    const Attributes attrs = attributes(key.alpha, key.beta);
    Product product;
    if (dnnl_primitive_desc_create(&described, &operation, attrs.get(), engine_.get(), nullptr) !=
        dnnl_success)
      return product;
    const Description description(described);
    if (!vectorised(described)) return product;
    const dnnl_memory_desc_t* scratch = dnnl_primitive_desc_query_md(described, dnnl_query_scratchpad_md, 0);
    product.scratch_bytes = dnnl_memory_desc_get_size(scratch);
    const std::array<const dnnl_memory_desc_t*, 4> descriptions{&a, &b, &c, scratch};
    for (size_t i = 0; i < descriptions.size(); ++i) {
      dnnl_memory_t memory = nullptr;
      succeed(dnnl_memory_create(&memory, descriptions[i], engine_.get(), DNNL_MEMORY_NONE),
              "describe memory");
      product.memories[i].reset(memory);
    }
    dnnl_primitive_t primitive = nullptr;
    succeed(dnnl_primitive_create(&primitive, described), "prepare a product");
    product.primitive.reset(primitive);
    return product;
  }

  Engine engine_;
  Queue queue_;
  std::map<ProductKey, Product> products_;
  std::vector<std::byte> scratch_;
};

// A thread's memory for operand `index` of a widened product.
float* widening_memory(size_t index, int64_t count) {
  static thread_local std::array<std::vector<float>, 3> memory;
  if (memory[index].size() < static_cast<size_t>(count)) memory[index].resize(static_cast<size_t>(count));
  return memory[index].data();
}

// Converts rows [0, rows) of `columns` elements into a dense f32 matrix.
template <class T>
Matrix<float> widen(const StorageKernels<T>& kernels, const T* from, int64_t stride, int64_t rows,
                    int64_t columns, bool transposed, size_t memory) {
  float* to = widening_memory(memory, rows * columns);
  for (int64_t r = 0; r < rows; ++r) kernels.to_f32(to + r * columns, from + r * stride, columns);
  return {to, columns, transposed};
}

// Converts columns [begin, end) of op(matrix) if `along_rows`, otherwise its rows: a part of the products'
// depth. `extent` is the size of the other dim.
template <class T>
Matrix<float> widen_depth(const StorageKernels<T>& kernels, Matrix<T> matrix, bool along_rows, int64_t extent,
                          int64_t begin, int64_t end, size_t memory) {
  if (along_rows != matrix.transposed)
    return widen(kernels, matrix.data + begin, matrix.stride, extent, end - begin, matrix.transposed, memory);
  return widen(kernels, matrix.data + begin * matrix.stride, matrix.stride, end - begin, extent,
               matrix.transposed, memory);
}

}  // namespace

template <class C, class T>
bool gemm_block_native(C* c, int64_t c_stride, Matrix<T> a, Matrix<T> b, int64_t m, int64_t n, int64_t k,
                       double alpha, double beta) {
  if (k == 0 || !has_instructions(kDataType<T>)) return false;
  use_one_openmp_thread();
  static thread_local Products products;
  const Product& product =
      products.get({kDataType<C>, kDataType<T>, m, n, k, c_stride, a.stride, b.stride, a.transposed,
                    b.transposed, static_cast<float>(alpha), static_cast<float>(beta)});
  if (!product.primitive) return false;
  products.run(product, a.data, b.data, c);
  return true;
}

template <class C, class T>
void gemm_block_widened(const StorageKernels<T>& kernels, C* c, int64_t c_stride, Matrix<T> a, Matrix<T> b,
                        int64_t m, int64_t n, int64_t k, double alpha, double beta) {
  float* sum = nullptr;
  int64_t stride = n;
  if constexpr (std::is_same_v<C, float>) {
    sum = c;
    stride = c_stride;
  } else {
    sum = widening_memory(2, m * n);
    if (beta != 0)
      for (int64_t r = 0; r < m; ++r) kernels.to_f32(sum + r * n, c + r * c_stride, n);
  }
  int64_t begin = 0;
  do {
    const int64_t end = std::min(k, begin + kWidenedDepth);
    const Matrix<float> left = widen_depth(kernels, a, true, m, begin, end, 0);
    const Matrix<float> right = widen_depth(kernels, b, false, n, begin, end, 1);
    gemm_block(sum, stride, left, right, m, n, end - begin, alpha, begin == 0 ? beta : 1);
    begin = end;
  } while (begin < k);
  if constexpr (!std::is_same_v<C, float>)
    for (int64_t r = 0; r < m; ++r) kernels.from_f32(c + r * c_stride, sum + r * n, n);
}

// NOLINTBEGIN(bugprone-macro-parentheses): the arguments are types
#define TRIFOLD_GEMM(C, T)                                                                            \
  template bool gemm_block_native<C, T>(C*, int64_t, Matrix<T>, Matrix<T>, int64_t, int64_t, int64_t, \
                                        double, double);                                              \
  template void gemm_block_widened<C, T>(const StorageKernels<T>&, C*, int64_t, Matrix<T>, Matrix<T>, \
                                         int64_t, int64_t, int64_t, double, double);
TRIFOLD_GEMM(Bfloat16, Bfloat16)
TRIFOLD_GEMM(float, Bfloat16)
TRIFOLD_GEMM(Float16, Float16)
TRIFOLD_GEMM(float, Float16)
#undef TRIFOLD_GEMM
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace trifold::cpu
