#include "core/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <new>
#include <utility>

#include "core/error.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TRIFOLD_ASAN
#endif
#if __has_feature(thread_sanitizer)
#define TRIFOLD_TSAN
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define TRIFOLD_ASAN
#endif
#if defined(__SANITIZE_THREAD__)
#define TRIFOLD_TSAN
#endif
#ifdef TRIFOLD_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef TRIFOLD_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace trifold {

namespace {

size_t page() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

// The fiber that this thread is about to enter: makecontext can pass only integers to its function.
thread_local Fiber* entered = nullptr;

}  // namespace

Fiber::Fiber() {
  void* memory = mmap(nullptr, page() + kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  if (mprotect(memory, page(), PROT_NONE) != 0) {
    munmap(memory, page() + kStackBytes);
    throw std::bad_alloc();
  }
  stack_ = static_cast<std::byte*>(memory) + page();
}

Fiber::~Fiber() { munmap(stack_ - page(), page() + kStackBytes); }

void Fiber::enter() {
  Fiber& self = *entered;
#ifdef TRIFOLD_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &self.outside_stack_, &self.outside_bytes_);
#endif
  self.turns_->run();
  self.switch_out(true);
}

void Fiber::switch_in() {
  entered = this;
  // Without sanitizers nothing else uses them.
  static_cast<void>(tsan_inside_), static_cast<void>(tsan_outside_);
  static_cast<void>(outside_stack_), static_cast<void>(outside_bytes_);
#ifdef TRIFOLD_TSAN
  tsan_outside_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(tsan_inside_, 0);
#endif
#ifdef TRIFOLD_ASAN
  void* shadow = nullptr;
  __sanitizer_start_switch_fiber(&shadow, stack_, kStackBytes);
#endif
  swapcontext(&outside_, &inside_);
#ifdef TRIFOLD_ASAN
  __sanitizer_finish_switch_fiber(shadow, nullptr, nullptr);
#endif
}

void Fiber::switch_out([[maybe_unused]] bool for_good) {
#ifdef TRIFOLD_TSAN
  __tsan_switch_to_fiber(tsan_outside_, 0);
#endif
#ifdef TRIFOLD_ASAN
  void* shadow = nullptr;
  __sanitizer_start_switch_fiber(for_good ? nullptr : &shadow, outside_stack_, outside_bytes_);
#endif
  swapcontext(&inside_, &outside_);
#ifdef TRIFOLD_ASAN
  __sanitizer_finish_switch_fiber(shadow, &outside_stack_, &outside_bytes_);
#endif
}

Fiber::Turns::Turns(Fiber& fiber, FunctionRef<void()> body) : fiber_(fiber), body_(body) {
  check(fiber.turns_ == nullptr, "a fiber is given a second body");
  fiber.turns_ = this;
  getcontext(&fiber.inside_);
  fiber.inside_.uc_stack.ss_sp = fiber.stack_;
  fiber.inside_.uc_stack.ss_size = kStackBytes;
  fiber.inside_.uc_link = nullptr;  // it never returns: the last switch is out of it
  makecontext(&fiber.inside_, &Fiber::enter, 0);
#ifdef TRIFOLD_TSAN
  fiber.tsan_inside_ = __tsan_create_fiber(0);
#endif
}

Fiber::Turns::~Turns() {
  if (begun_ && !ended_) {
    abandoned_ = true;
    in_body_ = true;
    fiber_.switch_in();
  }
#ifdef TRIFOLD_TSAN
  __tsan_destroy_fiber(fiber_.tsan_inside_);
#endif
  fiber_.turns_ = nullptr;
}

void Fiber::Turns::run() {
  try {
    body_();
  } catch (const Abandoned&) {
  } catch (...) {
    error_ = std::current_exception();
  }
  ended_ = true;
  in_body_ = false;
}

void Fiber::Turns::switch_over() {
  if (in_body_) {
    in_body_ = false;
    fiber_.switch_out(false);
    if (abandoned_) throw Abandoned{};
    return;
  }
  if (ended_) return;
  begun_ = in_body_ = true;
  fiber_.switch_in();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace trifold
