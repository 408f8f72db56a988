// Fiber: a coroutine with its own stack. Its body can be suspended within nested calls and resumed there, always on the
// thread that calls it. Two pieces of code can thus alternate without a second thread and without being split into
// steps by hand; only one of them runs at a time.
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

  // One body that alternates with the code that created this object.
  class Turns {
   public:
    // Does not start `body`, which must outlive this object. A fiber has one body at a time.
    Turns(Fiber& fiber, FunctionRef<void()> body);
    // If the body has not ended, its next call of `switch_over` throws, so that its frames are unwound.
    ~Turns();
    Turns(const Turns&) = delete;
    Turns& operator=(const Turns&) = delete;

    // Suspends the caller, resumes the other side, and returns when the other side calls switch_over or the body ends.
    // After the body has ended it does nothing, except that the first call rethrows an exception of the body.
    void switch_over();
    bool ended() const { return ended_; }

   private:
    friend class Fiber;
    struct Abandoned {};
    void run();

    Fiber& fiber_;
    FunctionRef<void()> body_;
    bool begun_ = false, ended_ = false, abandoned_ = false;
    bool in_body_ = false;  // the body is running
    std::exception_ptr error_;
  };

 private:
  static void enter();
  void switch_in();
  void switch_out(bool for_good);

  static constexpr size_t kStackBytes = size_t{8} << 20;  // reserved; only touched pages use memory

  std::byte* stack_ = nullptr;  // follows a guard page
  Turns* turns_ = nullptr;
  ucontext_t inside_{}, outside_{};
  // For sanitizers, which must be informed of every switch of stacks.
  void* tsan_inside_ = nullptr;
  void* tsan_outside_ = nullptr;
  const void* outside_stack_ = nullptr;
  size_t outside_bytes_ = 0;
};

}  // namespace trifold
