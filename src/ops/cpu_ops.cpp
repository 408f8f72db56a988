// The CPU tables, one per set of kernels, and the choice between them.
#include <array>
#include <span>

#include "ops/composed.h"
#include "ops/contract.h"
#include "ops/kernels.h"
#include "ops/launch.h"
#include "ops/ops.h"

namespace trifold {

namespace {

using cpu::KernelTable;

// Raw entries, without checks.
template <const KernelTable& Table>
const OpTable& raw_ops() {
  static const OpTable kTable = [] {
    OpTable ops{};
    ops.name = Table.name;
    cpu::add_attention(ops, Table);
    cpu::add_bags(ops, Table);
    cpu::add_elementwise(ops, Table);
    cpu::add_choices(ops, Table);
    cpu::add_experts(ops, Table);
    cpu::add_latent(ops, Table);
    cpu::add_llama(ops, Table);
    cpu::add_optimizer(ops, Table);
    cpu::add_products(ops, Table);
    cpu::add_recommender(ops, Table);
    cpu::add_rows(ops, Table);
    cpu::add_softmax(ops, Table);
    cpu::add_strided(ops, Table);
    cpu::add_sums(ops, Table);
    add_composed_products<raw_ops<Table>>(ops);
    add_composed_rows<raw_ops<Table>>(ops);
    return ops;
  }();
  return kTable;
}

#if defined(TRIFOLD_KERNELS_X86_64_V3) || defined(TRIFOLD_KERNELS_X86_64_V4)
bool runs_v3() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
}
#endif

#if defined(TRIFOLD_KERNELS_X86_64_V4)
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
#if defined(TRIFOLD_KERNELS_X86_64_V4)
    if (runs_v4()) put(with_contract<raw_ops<cpu::kKernelsV4>>());
#endif
#if defined(TRIFOLD_KERNELS_X86_64_V3)
    if (runs_v3()) put(with_contract<raw_ops<cpu::kKernelsV3>>());
#endif
#if defined(TRIFOLD_KERNELS_GENERIC)
    put(with_contract<raw_ops<cpu::kKernelsGeneric>>());
#endif
    if (count == 0)
      fail(
          "this program was built for the CPU of another host, with instructions that this one lacks; "
          "build it with -DTRIFOLD_HOST_KERNELS=OFF");
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
