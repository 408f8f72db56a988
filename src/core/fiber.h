// Fiber: a function with a stack of its own. It can pause in the middle of nested calls and be continued from there,
// always on the thread that calls it. So two pieces of code can take turns without being cut into steps by hand and
// without a second thread: only one of them runs at a time.
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

  // A function that takes turns with the code that created this object.
  class Turns {
   public:
    // Does not begin `body`, which must outlive this object. A fiber has one body at a time.
    Turns(Fiber& fiber, FunctionRef<void()> body);
    // If the body has not ended, its next call of `switch_over` throws, so that its frames are unwound.
    ~Turns();
    Turns(const Turns&) = delete;
    Turns& operator=(const Turns&) = delete;

    // Hands over to the other side and returns when it hands back. Called outside the body after the body has ended, it
    // does nothing, except that the first such call rethrows an exception of the body.
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
