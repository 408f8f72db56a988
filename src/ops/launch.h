// Launchers: raw entries of the CPU's OpTable (ops/contract.h), with one additional first argument: `table`, the
// kernels of an instruction set. Each enqueues work that splits the operation over the stream's pool and
// calls these kernels on the parts. ops.h defines the operations.
//
// The minimum work per worker is measured in elements: waking a second worker costs about as much as a few
// thousand additions.
#pragma once

#include "core/error.h"
#include "ops/kernels.h"
#include "ops/ops.h"

namespace trifold::cpu {

// A launcher with its first argument bound: the function that an entry points to.
template <const KernelTable& Table, auto Launcher>
struct Bound;
template <const KernelTable& Table, class... Args, void (*Launcher)(const KernelTable&, Stream&, Args...)>
struct Bound<Table, Launcher> {
  static void call(Stream& stream, Args... args) { Launcher(Table, stream, args...); }
};

// Sets an entry of `ops` to a launcher with the kernels of `table`, which must be one of those declared in
// kernels.h.
template <auto Entry, auto Launcher>
void bind(OpTable& ops, const KernelTable& table) {
#if defined(TRIFOLD_KERNELS_X86_64_V4)
  if (&table == &kKernelsV4) {
    ops.*Entry = Bound<kKernelsV4, Launcher>::call;
    return;
  }
#endif
#if defined(TRIFOLD_KERNELS_X86_64_V3)
  if (&table == &kKernelsV3) {
    ops.*Entry = Bound<kKernelsV3, Launcher>::call;
    return;
  }
#endif
#if defined(TRIFOLD_KERNELS_GENERIC)
  if (&table == &kKernelsGeneric) {
    ops.*Entry = Bound<kKernelsGeneric, Launcher>::call;
    return;
  }
#endif
  fail("the kernels {} are in no table", table.name);
}

// Each sets the entries of one family, at the end of launch_<family>.cpp.
void add_attention(OpTable& ops, const KernelTable& table);
void add_bags(OpTable& ops, const KernelTable& table);
void add_choices(OpTable& ops, const KernelTable& table);
void add_elementwise(OpTable& ops, const KernelTable& table);
void add_experts(OpTable& ops, const KernelTable& table);
void add_latent(OpTable& ops, const KernelTable& table);
void add_llama(OpTable& ops, const KernelTable& table);
void add_optimizer(OpTable& ops, const KernelTable& table);
void add_products(OpTable& ops, const KernelTable& table);
void add_recommender(OpTable& ops, const KernelTable& table);
void add_rows(OpTable& ops, const KernelTable& table);
void add_softmax(OpTable& ops, const KernelTable& table);
void add_strided(OpTable& ops, const KernelTable& table);
void add_sums(OpTable& ops, const KernelTable& table);

}  // namespace trifold::cpu
