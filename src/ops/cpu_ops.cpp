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
template <const KernelTable& table, auto launcher>
struct Bound;
template <const KernelTable& table, class... Args, void (*launcher)(const KernelTable&, Stream&, Args...)>
struct Bound<table, launcher> {
  static void call(Stream& stream, Args... args) { launcher(table, stream, args...); }
};

template <const KernelTable& table>
OpTable make_table() {
  return {
      .name = table.name,
      .fill = Bound<table, cpu::fill>::call,
      .copy = Bound<table, cpu::copy>::call,
      .scale = Bound<table, cpu::scale>::call,
      .add = Bound<table, cpu::add>::call,
      .reduce = Bound<table, cpu::reduce>::call,
      .fill_rows = Bound<table, cpu::fill_rows>::call,
      .gemm = Bound<table, cpu::gemm>::call,
      .gelu = Bound<table, cpu::gelu>::call,
      .gelu_backward = Bound<table, cpu::gelu_backward>::call,
      .dropout = Bound<table, cpu::dropout>::call,
      .dropout_add = Bound<table, cpu::dropout_add>::call,
      .layer_norm = Bound<table, cpu::layer_norm>::call,
      .layer_norm_backward = Bound<table, cpu::layer_norm_backward>::call,
      .layer_norm_backward_weight = Bound<table, cpu::layer_norm_backward_weight>::call,
      .column_sum = Bound<table, cpu::column_sum>::call,
      .embedding = Bound<table, cpu::embedding>::call,
      .embedding_backward = Bound<table, cpu::embedding_backward>::call,
      .attention = Bound<table, cpu::attention>::call,
      .attention_backward = Bound<table, cpu::attention_backward>::call,
      .softmax_stats = Bound<table, cpu::softmax_stats>::call,
      .softmax_rescale = Bound<table, cpu::softmax_rescale>::call,
      .cross_entropy = Bound<table, cpu::cross_entropy>::call,
      .cross_entropy_backward = Bound<table, cpu::cross_entropy_backward>::call,
      .sum_squares = Bound<table, cpu::sum_squares>::call,
      .weighted_sum = Bound<table, cpu::weighted_sum>::call,
      .adamw = Bound<table, cpu::adamw>::call,
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
    if (runs_v4()) put(make_table<cpu::kernels_x86_64_v4>());
    if (runs_v3()) put(make_table<cpu::kernels_x86_64_v3>());
#endif
    put(make_table<cpu::kernels_generic>());
  }

  void put(const OpTable& ops) {
    table[count] = ops;
    best_first[count] = &table[count];
    ++count;
  }
};

const Tables& tables() {
  static const Tables all;
  return all;
}

}  // namespace

const OpTable& cpu_ops() { return *tables().best_first[0]; }

std::span<const OpTable* const> all_cpu_ops() { return {tables().best_first.data(), tables().count}; }

}  // namespace trifold
