#include "parity/allocation_count.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <map>
#include <new>
#include <string>
#include <string_view>

namespace {

constexpr int kFrames = 32;
struct Trace {
  std::array<void*, kFrames> frames;
  int count;
};

std::atomic<bool> g_counting{false};
std::atomic<size_t> g_traces{0};
std::array<Trace, 4096> g_trace;
thread_local bool t_inside = false;

// Records the callers of allocations.
void note() {
  if (!g_counting.load(std::memory_order_relaxed) || t_inside) return;
  t_inside = true;
  const size_t index = g_traces.fetch_add(1);
  if (index < g_trace.size()) g_trace[index].count = backtrace(g_trace[index].frames.data(), kFrames);
  t_inside = false;
}

void* allocate(size_t bytes, size_t alignment) {
  note();
  void* memory = nullptr;
  if (posix_memalign(&memory, std::max(alignment, sizeof(void*)), std::max<size_t>(bytes, 1)) != 0)
    throw std::bad_alloc();
  return memory;
}

}  // namespace

// Not inline: a compiler that sees free through delete takes them for a mismatch.
[[gnu::noinline]] void* operator new(size_t bytes) { return allocate(bytes, alignof(std::max_align_t)); }
[[gnu::noinline]] void* operator new(size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

// A sanitizer has an mmap of its own, which it needs before it is ready for ours.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#elif defined(__has_feature)
#if !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer)
#define TRIFOLD_COUNT_MAPPINGS
#endif
#else
#define TRIFOLD_COUNT_MAPPINGS
#endif
#ifdef TRIFOLD_COUNT_MAPPINGS
extern "C" void* mmap(void* where, size_t bytes, int protection, int flags, int file, off_t offset) noexcept {
  note();
  return reinterpret_cast<void*>(syscall(SYS_mmap, where, bytes, protection, flags, file, offset));
}
#endif

namespace trifold::test {
namespace {

bool is_of_library(const Trace& trace) {
  for (int i = 0; i < trace.count; ++i) {
    Dl_info info{};
    if (dladdr(trace.frames[static_cast<size_t>(i)], &info) != 0 && info.dli_fname != nullptr &&
        std::string_view(info.dli_fname).find("libdnnl") != std::string_view::npos)
      return true;
  }
  return false;
}

}  // namespace

void start_counting() {
  void* frame = nullptr;
  backtrace(&frame, 1);  // loads the unwinder, which allocates
  g_traces = 0;
  g_counting = true;
}

std::string stop_counting() {
  g_counting = false;
  std::map<std::string, int> stacks;
  for (size_t i = 0; i < std::min(g_traces.load(), g_trace.size()); ++i) {
    const Trace& trace = g_trace[i];
    if (is_of_library(trace)) continue;
    char** names = backtrace_symbols(trace.frames.data(), trace.count);
    std::string stack;
    for (int frame = 0; frame < trace.count; ++frame) stack += fmt::format("    {}\n", names[frame]);
    std::free(names);  // NOLINT(cppcoreguidelines-no-malloc): as backtrace_symbols wants it
    ++stacks[stack];
  }
  std::string text;
  for (const auto& [stack, count] : stacks) text += fmt::format("{} times\n{}", count, stack);
  return text;
}

}  // namespace trifold::test
