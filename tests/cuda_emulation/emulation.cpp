#include "cuda_emulation/emulation.cuh"

#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "core/error.h"
#include "cuda_emulation/async_work.h"
#include "cuda_emulation/shadow_memory.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TRIFOLD_FIBERS_ARE_WATCHED 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define TRIFOLD_FIBERS_ARE_WATCHED 1
#endif
#if defined(TRIFOLD_FIBERS_ARE_WATCHED)
#include <sanitizer/common_interface_defs.h>
#endif

namespace trifold::cuda::emulation {

thread_local Place place;
thread_local int thread_order = 0;
alignas(1024) thread_local unsigned char dynamic_shared[kMostDynamicShared];

namespace {

constexpr size_t kStackBytes = 64 << 10;
constexpr unsigned kWarp = 32;

enum class State : uint8_t { New, Ready, AtBlock, AtThreads, AtWarp, AtExchange, AtPhase, Done };

// Where a stack was suspended, for the compilers' own setjmp and longjmp: those of the C library mean that frames are
// left for good, and AddressSanitizer would clear its marks of the whole stack, by a system call each time.
using Suspended = std::array<void*, 5>;

// A stack that runs CUDA threads, one after another until one has to wait. It is first entered through a
// context, and later left and re-entered by a jump, which needs no system call.
struct Fiber {
  ucontext_t context;
  Suspended place;
  bool entered = false;
  std::unique_ptr<char[]> stack{new char[kStackBytes]};
  void* shadow = nullptr;  // AddressSanitizer's state of a suspended stack
};

struct Thread {
  State state = State::New;
  Fiber* fiber = nullptr;  // on which it waits
  unsigned number = 0;     // AtThreads: of the barrier, and of its threads
  unsigned count = 0;
  unsigned barrier = 0;  // AtPhase: its index, and the parity of the phase
  unsigned parity = 0;
};

// A phase barrier of the running block.
struct PhaseBarrier {
  const uint64_t* address;
  unsigned arrivals;  // that end a phase
  unsigned missing;   // arrivals of the current phase
  int64_t bytes = 0;  // announced and not copied
  unsigned phase = 0;
};

// The exchange slots of a warp, two alternating sets: a fast lane may write its next value before a slow one
// has read.
struct Warp {
  uint64_t slots[2][kWarp];
  Fragments fragments[2][kWarp];
};

class Machine {
 public:
  void run(dim3 grid, dim3 block, FunctionRef<void()> body, const char* kernel) {
    body_ = &body;
    shadow_ = ShadowMemory::active;
    place.block_size = block;
    place.grid_size = grid;
    const unsigned count = block.x * block.y * block.z;
    check(count >= 1 && count <= 1024 && grid.x >= 1 && grid.y >= 1 && grid.y <= 65535 && grid.z == 1,
          "a grid of {}x{}x{} blocks of {} threads cannot be launched", grid.x, grid.y, grid.z, count);
    if (shadow_ != nullptr) shadow_->begin_launch(kernel);
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x) {
        place.block = {x, y, 0};
        run_block(count);
      }
    if (shadow_ != nullptr) shadow_->end_launch();
  }

  void wait(State what) {
    Thread& me = threads_[current_];
    me.state = what;
    me.fiber = running_;
    to_scheduler();
  }

  uint64_t* slots_of_current() { return warps_[current_ / kWarp].slots[turn_[current_]++ & 1]; }
  Fragments* fragments_of_current() { return warps_[current_ / kWarp].fragments[turn_[current_]++ & 1]; }
  AsyncWork& work_of_current() { return work_[current_]; }
  void see(const void* at, size_t bytes, AccessKind kind, const void* code) {
    if (shadow_ != nullptr) shadow_->access(at, bytes, kind, code);
  }
  unsigned current() const { return current_; }

  void wait_for_threads(unsigned number, unsigned count) {
    threads_[current_].number = number;
    threads_[current_].count = count;
    wait(State::AtThreads);
  }

  void init_phases(const uint64_t* address, unsigned arrivals) {
    check(arrivals > 0, "a phase barrier without arrivals");
    barriers_.push_back({address, arrivals, arrivals});
    if (shadow_ != nullptr) shadow_->add_barrier();
  }
  void arrive(const uint64_t* address, unsigned bytes) {
    const unsigned index = index_of(address);
    PhaseBarrier& barrier = barriers_[index];
    check(barrier.missing > 0, "an arrival at a phase that has had all of its {}", barrier.arrivals);
    if (shadow_ != nullptr) shadow_->arrive(index);
    barrier.bytes += bytes;
    --barrier.missing;
    end_phase(index);
  }
  void await_phase(const uint64_t* address, unsigned parity) {
    Thread& me = threads_[current_];
    me.barrier = index_of(address);
    me.parity = parity;
    if (!has_ended(me)) wait(State::AtPhase);
    if (shadow_ != nullptr) shadow_->acquire(threads_[current_].barrier);
  }
  void add_arriving(ArrivingBox box, const void* code) {
    const unsigned index = index_of(box.barrier);
    const uint32_t segment =
        shadow_ == nullptr ? 0
                           : shadow_->write_of_engine(box.to, static_cast<size_t>(box.bytes()), index, code);
    arriving_.push_back({box, index, segment});
  }

 private:
  struct Arriving {
    ArrivingBox box;
    unsigned barrier;
    uint32_t segment;  // in which the race check places its write
  };

  unsigned index_of(const uint64_t* address) const {
    for (unsigned i = 0; i < barriers_.size(); ++i)
      if (barriers_[i].address == address) return i;
    fail("a phase barrier that was not initialised");
  }
  bool has_ended(const Thread& thread) const {
    return (barriers_[thread.barrier].phase & 1) != thread.parity;
  }
  void end_phase(unsigned index) {
    PhaseBarrier& barrier = barriers_[index];
    if (barrier.missing > 0 || barrier.bytes != 0) return;
    ++barrier.phase;
    barrier.missing = barrier.arrivals;
    if (shadow_ != nullptr) shadow_->end_phase(index);
  }
  // Copies one of the boxes on their way, if there is one.
  bool copy_box() {
    if (arriving_.empty()) return false;
    const auto which = thread_order % 2 == 0 ? arriving_.begin() : arriving_.end() - 1;
    const Arriving next = *which;
    arriving_.erase(which);
    next.box.arrive();
    barriers_[next.barrier].bytes -= next.box.bytes();
    if (shadow_ != nullptr) shadow_->engine_arrives(next.barrier, next.segment);
    end_phase(next.barrier);
    return true;
  }
  // Releases the threads at barriers of some of the block's, and those whose phase has ended.
  bool release_some() {
    bool any = false;
    for (unsigned first = 0; first < threads_.size(); ++first) {
      if (threads_[first].state == State::AtPhase && has_ended(threads_[first])) {
        threads_[first].state = State::Ready;
        any = true;
      }
      if (threads_[first].state != State::AtThreads) continue;
      std::vector<unsigned> here;
      for (unsigned t = 0; t < threads_.size(); ++t)
        if (threads_[t].state == State::AtThreads && threads_[t].number == threads_[first].number)
          here.push_back(t);
      if (here.size() < threads_[first].count) continue;
      check(here.size() == threads_[first].count, "{} threads at a barrier of {}", here.size(),
            threads_[first].count);
      if (shadow_ != nullptr) shadow_->threads_barrier(here);
      for (const unsigned t : here) threads_[t].state = State::Ready;
      any = true;
    }
    return any;
  }
  void run_block(unsigned count) {
    threads_.assign(count, {});
    turn_.assign(count, 0);
    work_.assign(count, {});
    barriers_.clear();
    arriving_.clear();
    warps_.resize((count + kWarp - 1) / kWarp);
    started_ = 0;
    if (shadow_ != nullptr)
      shadow_->begin_block(place.block.y * place.grid_size.x + place.block.x,
                           static_cast<unsigned>(warps_.size()));
    while (started_ < count) resume(free_fiber());
    while (release())
      for (unsigned i = 0; i < count; ++i) {
        const unsigned t = ordered(i, count);
        if (threads_[t].state != State::Ready) continue;
        enter(t);
        resume(*threads_[t].fiber);
      }
    check(arriving_.empty(), "{} boxes are copied to the memory of a block that has ended", arriving_.size());
    for (const AsyncWork& work : work_)
      check(work.boxes.empty(), "a thread ended before {} boxes that it wrote", work.boxes.size());
  }

  // Releases waiting threads if all have arrived; false if every thread is done.
  bool release() {
    const auto count = static_cast<unsigned>(threads_.size());
    unsigned at_block = 0;
    unsigned done = 0;
    for (const Thread& t : threads_) {
      at_block += t.state == State::AtBlock ? 1 : 0;
      done += t.state == State::Done ? 1 : 0;
    }
    if (done == count) return false;
    if (at_block == count) {
      for (Thread& t : threads_) t.state = State::Ready;
      if (shadow_ != nullptr) shadow_->block_barrier();
      return true;
    }
    bool any = release_some();
    for (unsigned first = 0; first < count; first += kWarp) {
      const unsigned last = first + kWarp < count ? first + kWarp : count;
      const State what = threads_[first].state;
      bool all = what == State::AtWarp || what == State::AtExchange;
      for (unsigned t = first; t < last; ++t) all = all && threads_[t].state == what;
      if (!all) continue;
      any = true;
      if (shadow_ != nullptr && what == State::AtWarp) shadow_->warp_barrier(first / kWarp);
      for (unsigned t = first; t < last; ++t) threads_[t].state = State::Ready;
    }
    while (!any && copy_box()) any = release_some();
    check(any,
          "{} threads of a block of {} wait at a barrier that {} have passed by for good, others elsewhere",
          at_block, count, done);
    return true;
  }

  unsigned ordered(unsigned i, unsigned count) const {
    if (thread_order == 0) return i;
    if (thread_order == 1) return count - 1 - i;
    return (i * 37 + static_cast<unsigned>(thread_order)) % count;  // counts are powers of two times 3 or 5
  }

  void enter(unsigned t) {
    current_ = t;
    threads_[t].state = State::New;
    if (shadow_ != nullptr) shadow_->runs(t);
    const dim3& size = place.block_size;
    place.thread = {t % size.x, t / size.x % size.y, t / size.x / size.y};
  }

  static void fiber_main() { machine().fiber_loop(); }
  void fiber_loop() {
    arrive(running_->shadow);
    while (true) {
      while (started_ < threads_.size()) {
        enter(ordered(started_++, static_cast<unsigned>(threads_.size())));
        (*body_)();
        threads_[current_].state = State::Done;
      }
      idle_.push_back(running_);
      to_scheduler();
    }
  }

  Fiber& free_fiber() {
    if (!idle_.empty()) {
      Fiber* fiber = idle_.back();
      idle_.pop_back();
      return *fiber;
    }
    fibers_.push_back(std::make_unique<Fiber>());
    prepare(*fibers_.back());
    return *fibers_.back();
  }

  // A compiler must assume that getcontext returns twice, so nothing else is done here.
  static void prepare(Fiber& fiber) {
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, fiber_main, 0);
  }

  // A function that suspends must not jump itself.
  [[noreturn, gnu::noinline, gnu::no_sanitize_address]] static void jump(Suspended& place) {
    __builtin_longjmp(place.data(), 1);
  }

  [[gnu::noinline, gnu::no_sanitize_address]] void resume(Fiber& fiber) {
    running_ = &fiber;
    if (shadow_ != nullptr) shadow_->on_stack(fiber.stack.get(), kStackBytes);
#if defined(TRIFOLD_FIBERS_ARE_WATCHED)
    __sanitizer_start_switch_fiber(&scheduler_shadow_, fiber.stack.get(), kStackBytes);
#endif
    if (__builtin_setjmp(scheduler_.data()) == 0) {
      if (running_->entered) jump(running_->place);
      running_->entered = true;
      setcontext(&running_->context);
      // It only returns on an error. As the last call it would give up this frame, to which the scheduler's jump
      // returns.
      fail("setcontext: {}", std::strerror(errno));
    }
    arrive(scheduler_shadow_);
  }

  [[gnu::noinline, gnu::no_sanitize_address]] void to_scheduler() {
    Fiber* const mine = running_;
#if defined(TRIFOLD_FIBERS_ARE_WATCHED)
    __sanitizer_start_switch_fiber(&mine->shadow, scheduler_stack_, scheduler_stack_bytes_);
#endif
    if (__builtin_setjmp(mine->place.data()) == 0) jump(scheduler_);
    arrive(running_->shadow);  // the resuming code has set running_
  }

  // Reports the change of stack to the sanitizer. The first time, the previous stack is the scheduler's.
  void arrive([[maybe_unused]] void* shadow) {
#if defined(TRIFOLD_FIBERS_ARE_WATCHED)
    const void* stack = nullptr;
    size_t bytes = 0;
    __sanitizer_finish_switch_fiber(shadow, &stack, &bytes);
    if (scheduler_stack_ != nullptr) return;
    scheduler_stack_ = stack;
    scheduler_stack_bytes_ = bytes;
#endif
  }

 public:
  static Machine& machine() {
    static thread_local Machine the_machine;
    return the_machine;
  }

 private:
  FunctionRef<void()>* body_ = nullptr;
  ShadowMemory* shadow_ = nullptr;
  std::vector<Thread> threads_;
  std::vector<uint32_t> turn_;  // the number of exchanges of each thread so far
  std::vector<Warp> warps_;
  std::vector<AsyncWork> work_;
  std::vector<PhaseBarrier> barriers_;
  std::vector<Arriving> arriving_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
  Suspended scheduler_;
  [[maybe_unused]] void* scheduler_shadow_ = nullptr;
  [[maybe_unused]] const void* scheduler_stack_ = nullptr;
  [[maybe_unused]] size_t scheduler_stack_bytes_ = 0;
  Fiber* running_ = nullptr;
  unsigned current_ = 0;
  unsigned started_ = 0;
};

}  // namespace

void launch(dim3 grid, dim3 block, FunctionRef<void()> thread, const char* kernel) {
  Machine::machine().run(grid, block, thread, kernel);
}

void await_block() { Machine::machine().wait(State::AtBlock); }
void await_warp() { Machine::machine().wait(State::AtWarp); }

void expect_global(const void* to) {
  if (ShadowMemory::active != nullptr) ShadowMemory::active->expect_global(to);
}

unsigned lane() { return Machine::machine().current() % kWarp; }

uint64_t* leave_for_warp(uint64_t bits) {
  Machine& machine = Machine::machine();
  uint64_t* slots = machine.slots_of_current();
  slots[lane()] = bits;
  machine.wait(State::AtExchange);
  return slots;
}

// As the PTX ISA distributes the matrices: with g = lane / 4 and t = lane % 4, registers 0 to 3 of a hold columns 2t and
// 2t + 1 of row g; of row g + 8; then columns 2t + 8 and 2t + 9 of these rows. Register i of b has rows 2t + 8i and
// 2t + 8i + 1 of column g, and d the columns 2t and 2t + 1 of row g, then of row g + 8.
void multiply(float (&d)[4], const Fragments& mine) {
  Machine& machine = Machine::machine();
  Fragments* of = machine.fragments_of_current();
  const unsigned me = lane();
  of[me] = mine;
  machine.wait(State::AtExchange);
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned below = i / 2;  // row g or g + 8
    const Fragments* row = of + me / 4 * 4;
    const Fragments* column = of + (me % 4 * 2 + i % 2) * 4;
    for (unsigned k = 0; k < 16; ++k) {
      const unsigned t = k % 8 / 2;
      d[i] += row[t].a[k / 8 * 2 + below][k % 2] * column[t].b[k / 8][k % 2];
    }
  }
}

void await_threads(unsigned number, unsigned count) { Machine::machine().wait_for_threads(number, count); }
void init_phases(const uint64_t* barrier, unsigned arrivals) {
  Machine::machine().init_phases(barrier, arrivals);
}
void arrive(const uint64_t* barrier, unsigned expected_bytes) {
  Machine::machine().arrive(barrier, expected_bytes);
}
void await_phase(const uint64_t* barrier, unsigned parity) {
  Machine::machine().await_phase(barrier, parity);
}

void add_arriving(ArrivingBox box, const void* code) { Machine::machine().add_arriving(box, code); }
AsyncWork& work_of_current() { return Machine::machine().work_of_current(); }
unsigned current_thread() { return Machine::machine().current(); }
void see(const void* at, size_t bytes, AccessKind kind, const void* code) {
  Machine::machine().see(at, bytes, kind, code);
}

}  // namespace trifold::cuda::emulation
