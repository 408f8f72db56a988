// Fiber: a function with a stack of its own. It can pause in the middle of nested calls, and go on from there later, always
// on the thread that continues it. Two pieces of code can so take turns without being cut into steps by hand, and without
// a second thread: nothing runs at the same time.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <exception>

#include "core/function_ref.h"

namespace trifold {

class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // A function that the fiber executes in turns with the code that lives beside this object.
  class Turns {
   public:
    // Does not begin `body`, which must outlive this object. A fiber has one body at a time.
    Turns(Fiber& fiber, FunctionRef<void()> body);
    // If the body has not ended, its next call of `switch_over` throws, so that its frames are unwound.
    ~Turns();
    Turns(const Turns&) = delete;
    Turns& operator=(const Turns&) = delete;

    // Gives the turn to the other side, and returns when that gives it back. Outside of the body: once that has ended,
    // does nothing, and rethrows, once, an exception that it has thrown.
    void switch_over();
    bool ended() const { return ended_; }

   private:
    friend class Fiber;
    struct Abandoned {};
    void run();

    Fiber& fiber_;
    FunctionRef<void()> body_;
    bool begun_ = false, ended_ = false, abandoned_ = false;
    bool in_body_ = false;  // it is the body's turn
    std::exception_ptr error_;
  };

 private:
  static void enter();
  void switch_in();
  void switch_out(bool for_good);

  static constexpr size_t kStackBytes = size_t{8} << 20;  // reserved; only what is touched takes memory

  std::byte* stack_ = nullptr;  // after a page that must not be touched
  Turns* turns_ = nullptr;
  ucontext_t inside_{}, outside_{};
  // For sanitizers, which have to know about every switch of stacks.
  void* tsan_inside_ = nullptr;
  void* tsan_outside_ = nullptr;
  const void* outside_stack_ = nullptr;
  size_t outside_bytes_ = 0;
};

}  // namespace trifold
