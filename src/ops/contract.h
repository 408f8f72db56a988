// Checks of the operations' shapes and types, written once for all back ends.
//
// A back end makes a table of raw entries, which do not check their tensors. with_contract() puts the check
// of each operation in front of its entry. Checks run when the operation is called, also on a Dry stream, and
// do not read the tensors' elements. Entries check the limits of their back end, such as the largest head
// width of its kernels.
//
// To add an operation: declare it with its formula and list it (ops.h), write its check (contract_*.cpp), and for each
// back end a kernel and an entry (launch_*.cpp, cuda/entries_*.cpp). Making a table that lacks a check or an entry is
// an Error. Adding an activation takes less: activations.h.
#pragma once

#include "core/error.h"
#include "ops/ops.h"

namespace trifold {

namespace contract {

// A table whose entries check their arguments and compute nothing; the stream is not used. Each throws an
// Error that names the operation, the tensor and the requirement.
const OpTable& checks();

// Sets an entry of `checks` to a function of the entry's arguments without the stream.
template <auto Check, class... Args>
void bind(void (*&entry)(Stream&, Args...)) {
  entry = [](Stream&, Args... args) { Check(args...); };
}
template <auto Entry, auto Check>
void bind(OpTable& checks) {
  bind<Check>(checks.*Entry);
}

// Each sets the checks of one family, at the end of contract_<family>.cpp.
void add_elementwise(OpTable& checks);
void add_experts(OpTable& checks);
void add_latent(OpTable& checks);
void add_optimizer(OpTable& checks);
void add_products(OpTable& checks);
void add_recommender(OpTable& checks);
void add_rows(OpTable& checks);
void add_strided(OpTable& checks);

}  // namespace contract

// The entry of the table Raw(), preceded by its check.
template <const OpTable& (*Raw)(), auto Entry>
struct Checked;
template <const OpTable& (*Raw)(), class... Args, void (*OpTable::*Entry)(Stream&, Args...)>
struct Checked<Raw, Entry> {
  static void call(Stream& stream, Args... args) {
    (contract::checks().*Entry)(stream, args...);
    (Raw().*Entry)(stream, args...);
  }
};

// The table Raw() with every entry preceded by its check: the table for callers outside the back end. Throws
// if an entry or its check is missing.
template <const OpTable& (*Raw)()>
[[gnu::cold]] OpTable with_contract() {
  OpTable ops = Raw();
  size_t number = 0;
  Operations::for_each([&](auto operation) {
    constexpr auto kEntry = decltype(operation)::kEntry;
    ++number;
    for (const OpTable* table : {&contract::checks(), &Raw()})
      check(table->*kEntry != nullptr, "the table {} has no entry for operation {} of OpTable", table->name,
            number);
    ops.*kEntry = Checked<Raw, kEntry>::call;
  });
  return ops;
}

}  // namespace trifold
