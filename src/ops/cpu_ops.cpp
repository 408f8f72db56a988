// The CPU tables, one per set of kernels, and the choice between them.
#include <array>
#include <span>

#include "ops/kernels.h"
#include "ops/launch.h"
#include "ops/ops.h"

namespace trifold {

namespace {

using cpu::KernelTable;

// A launcher with its first argument, the kernels, fixed: what an OpTable entry can point to.
template <const KernelTable& Table, auto Launcher>
struct Bound;
template <const KernelTable& Table, class... Args, void (*Launcher)(const KernelTable&, Stream&, Args...)>
struct Bound<Table, Launcher> {
  static void call(Stream& stream, Args... args) { Launcher(Table, stream, args...); }
};

template <const KernelTable& Table>
OpTable make_table() {
  return {
      .name = Table.name,
      .device = nullptr,
      .fill = Bound<Table, cpu::fill>::call,
      .copy = Bound<Table, cpu::copy>::call,
      .convert = Bound<Table, cpu::convert>::call,
      .scale = Bound<Table, cpu::scale>::call,
      .add = Bound<Table, cpu::add>::call,
      .reduce = Bound<Table, cpu::reduce>::call,
      .fill_rows = Bound<Table, cpu::fill_rows>::call,
      .gemm = Bound<Table, cpu::gemm>::call,
      .affine = Bound<Table, cpu::affine>::call,
      .affine_add = Bound<Table, cpu::affine_add>::call,
      .affine_gelu = Bound<Table, cpu::affine_gelu>::call,
      .affine_backward_input = Bound<Table, cpu::affine_backward_input>::call,
      .affine_backward_gelu = Bound<Table, cpu::affine_backward_gelu>::call,
      .affine_backward_weight = Bound<Table, cpu::affine_backward_weight>::call,
      .gelu = Bound<Table, cpu::gelu>::call,
      .gelu_backward = Bound<Table, cpu::gelu_backward>::call,
      .gelu_erf = Bound<Table, cpu::gelu_erf>::call,
      .gelu_erf_backward = Bound<Table, cpu::gelu_erf_backward>::call,
      .tanh = Bound<Table, cpu::tanh>::call,
      .tanh_backward = Bound<Table, cpu::tanh_backward>::call,
      .swiglu = Bound<Table, cpu::swiglu>::call,
      .swiglu_backward = Bound<Table, cpu::swiglu_backward>::call,
      .dropout = Bound<Table, cpu::dropout>::call,
      .dropout_add = Bound<Table, cpu::dropout_add>::call,
      .layer_norm = Bound<Table, cpu::layer_norm>::call,
      .layer_norm_backward = Bound<Table, cpu::layer_norm_backward>::call,
      .layer_norm_backward_add = Bound<Table, cpu::layer_norm_backward_add>::call,
      .layer_norm_backward_weight = Bound<Table, cpu::layer_norm_backward_weight>::call,
      .layer_norm_backward_all = Bound<Table, cpu::layer_norm_backward_all>::call,
      .rms_norm = Bound<Table, cpu::rms_norm>::call,
      .rms_norm_backward = Bound<Table, cpu::rms_norm_backward>::call,
      .rms_norm_backward_add = Bound<Table, cpu::rms_norm_backward_add>::call,
      .rms_norm_backward_weight = Bound<Table, cpu::rms_norm_backward_weight>::call,
      .rms_norm_backward_all = Bound<Table, cpu::rms_norm_backward_all>::call,
      .column_sum = Bound<Table, cpu::column_sum>::call,
      .rotary = Bound<Table, cpu::rotary>::call,
      .embedding = Bound<Table, cpu::embedding>::call,
      .embedding_backward = Bound<Table, cpu::embedding_backward>::call,
      .attention = Bound<Table, cpu::attention>::call,
      .attention_backward = Bound<Table, cpu::attention_backward>::call,
      .softmax_stats = Bound<Table, cpu::softmax_stats>::call,
      .softmax_rescale = Bound<Table, cpu::softmax_rescale>::call,
      .cross_entropy = Bound<Table, cpu::cross_entropy>::call,
      .cross_entropy_backward = Bound<Table, cpu::cross_entropy_backward>::call,
      .sum_squares = Bound<Table, cpu::sum_squares>::call,
      .weighted_sum = Bound<Table, cpu::weighted_sum>::call,
      .chunk_squares = Bound<Table, cpu::chunk_squares>::call,
      .exact_sum = Bound<Table, cpu::exact_sum>::call,
      .adamw = Bound<Table, cpu::adamw>::call,
      .sgd = Bound<Table, cpu::sgd>::call,
      .adagrad = Bound<Table, cpu::adagrad>::call,
      .lamb_moments = Bound<Table, cpu::lamb_moments>::call,
      .lamb = Bound<Table, cpu::lamb>::call,
      .linear = Bound<Table, cpu::linear>::call,
      .relu_backward = Bound<Table, cpu::relu_backward>::call,
      .embedding_bags = Bound<Table, cpu::embedding_bags>::call,
      .sort_lookups = Bound<Table, cpu::sort_lookups>::call,
      .update_rows = Bound<Table, cpu::update_rows>::call,
      .row_squares = Bound<Table, cpu::row_squares>::call,
      .row_gradients = Bound<Table, cpu::row_gradients>::call,
      .dot_interaction = Bound<Table, cpu::dot_interaction>::call,
      .dot_interaction_backward = Bound<Table, cpu::dot_interaction_backward>::call,
      .cross = Bound<Table, cpu::cross>::call,
      .cross_backward = Bound<Table, cpu::cross_backward>::call,
      .sigmoid = Bound<Table, cpu::sigmoid>::call,
      .click_loss = Bound<Table, cpu::click_loss>::call,
      .click_loss_backward = Bound<Table, cpu::click_loss_backward>::call,
      .copy_columns = Bound<Table, cpu::copy_columns>::call,
  };
}

#if defined(__x86_64__)
bool runs_v3() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
}

bool runs_v4() {
  return runs_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}
#endif

struct Tables {
  std::array<OpTable, 3> table;
  std::array<const OpTable*, 3> best_first;
  size_t count = 0;

  Tables() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (runs_v4()) put(make_table<cpu::kKernelsV4>());
    if (runs_v3()) put(make_table<cpu::kKernelsV3>());
#endif
    put(make_table<cpu::kKernelsGeneric>());
  }

  void put(const OpTable& ops) {
    table[count] = ops;
    best_first[count] = &table[count];
    ++count;
  }
};

const Tables& tables() {
  static const Tables kAll;
  return kAll;
}

}  // namespace

const OpTable& cpu_ops() { return *tables().best_first[0]; }

std::span<const OpTable* const> all_cpu_ops() { return {tables().best_first.data(), tables().count}; }

}  // namespace trifold
