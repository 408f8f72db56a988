// The functions that code compiled with -fsanitize=thread calls before each load and store. They replace
// ThreadSanitizer's run-time library, which is not linked, and pass the accesses of emulated kernels to the
// thread's race check, if there is one. A missing hook is a linker error.
#if defined(TRIFOLD_ACCESSES_ARE_SEEN)

#include <cstring>

#include "cuda_emulation/shadow_memory.h"

namespace {

using trifold::cuda::emulation::AccessKind;
using trifold::cuda::emulation::ShadowMemory;

inline void see(const void* address, size_t bytes, AccessKind kind, const void* code) {
  if (ShadowMemory* memory = ShadowMemory::active; memory != nullptr)
    memory->access(address, bytes, kind, code);
}

}  // namespace

// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): the names are ThreadSanitizer's
#define HOOKS(bytes)                                                                                     \
  void __tsan_read##bytes(void* at) { see(at, bytes, AccessKind::Read, __builtin_return_address(0)); }   \
  void __tsan_write##bytes(void* at) { see(at, bytes, AccessKind::Write, __builtin_return_address(0)); } \
  void __tsan_unaligned_read##bytes(void* at) {                                                          \
    see(at, bytes, AccessKind::Read, __builtin_return_address(0));                                       \
  }                                                                                                      \
  void __tsan_unaligned_write##bytes(void* at) {                                                         \
    see(at, bytes, AccessKind::Write, __builtin_return_address(0));                                      \
  }

extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void* /*caller*/) {}
void __tsan_func_exit() {}
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
void __tsan_read_range(void* at, size_t bytes) {
  see(at, bytes, AccessKind::Read, __builtin_return_address(0));
}
void __tsan_write_range(void* at, size_t bytes) {
  see(at, bytes, AccessKind::Write, __builtin_return_address(0));
}
void* __tsan_memcpy(void* to, const void* from, size_t bytes) {
  see(from, bytes, AccessKind::Read, __builtin_return_address(0));
  see(to, bytes, AccessKind::Write, __builtin_return_address(0));
  return std::memcpy(to, from, bytes);
}
void* __tsan_memmove(void* to, const void* from, size_t bytes) {
  see(from, bytes, AccessKind::Read, __builtin_return_address(0));
  see(to, bytes, AccessKind::Write, __builtin_return_address(0));
  return std::memmove(to, from, bytes);
}
void* __tsan_memset(void* to, int value, size_t bytes) {
  see(to, bytes, AccessKind::Write, __builtin_return_address(0));
  return std::memset(to, value, bytes);
}
int32_t __tsan_atomic32_fetch_add(volatile int32_t* at, int32_t amount, int /*order*/) {
  see(const_cast<int32_t*>(at), sizeof(*at), AccessKind::Atomic, __builtin_return_address(0));
  return __atomic_fetch_add(at, amount, __ATOMIC_RELAXED);
}
int64_t __tsan_atomic64_fetch_add(volatile int64_t* at, int64_t amount, int /*order*/) {
  see(const_cast<int64_t*>(at), sizeof(*at), AccessKind::Atomic, __builtin_return_address(0));
  return __atomic_fetch_add(at, amount, __ATOMIC_RELAXED);
}
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

#endif
