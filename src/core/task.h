// Task: a callable without arguments and result, owned in place, and TaskQueue: tasks in first-in, first-out
// order. Streams use them, so that enqueueing allocates only when a queue grows past its previous peak.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace trifold {

class Task {
 public:
  static constexpr size_t kBytes = 416;  // maximum size of a callable: a launch of attention, a few messages

  Task() = default;
  template <class Work>
  requires(!std::is_same_v<std::remove_cvref_t<Work>, Task>) explicit Task(Work&& work)
      : type_(&kType<std::decay_t<Work>>) {
    using Callable = std::decay_t<Work>;
    static_assert(sizeof(Callable) <= kBytes && alignof(Callable) <= alignof(std::max_align_t),
                  "this callable captures too much for a Task");
    static_assert(std::is_nothrow_move_constructible_v<Callable>, "moving a Task cannot fail");
    ::new (static_cast<void*>(memory_)) Callable(std::forward<Work>(work));
  }
  ~Task() { reset(); }
  Task(Task&& other) noexcept : type_(std::exchange(other.type_, nullptr)) {
    if (type_ != nullptr) type_->move(memory_, other.memory_);
  }
  Task& operator=(Task&& other) noexcept {
    if (this == &other) return *this;
    reset();
    type_ = std::exchange(other.type_, nullptr);
    if (type_ != nullptr) type_->move(memory_, other.memory_);
    return *this;
  }

  // Requires that the task holds a callable.
  void operator()() { type_->call(memory_); }
  // Destroys the callable, with what it owns.
  void reset() {
    if (type_ != nullptr) std::exchange(type_, nullptr)->destroy(memory_);
  }

 private:
  struct Type {
    void (*call)(void*);
    void (*move)(void* to, void* from);  // moves, and destroys the source
    void (*destroy)(void*);
  };
  template <class Callable>
  static constexpr Type kType{[](void* callable) { (*static_cast<Callable*>(callable))(); },
                              [](void* to, void* from) {
                                ::new (to) Callable(std::move(*static_cast<Callable*>(from)));
                                std::destroy_at(static_cast<Callable*>(from));
                              },
                              [](void* callable) { std::destroy_at(static_cast<Callable*>(callable)); }};

  const Type* type_ = nullptr;
  alignas(std::max_align_t) std::byte memory_[kBytes];
};

class TaskQueue {
 public:
  explicit TaskQueue(size_t capacity) : ring_(capacity) {}

  bool empty() const { return count_ == 0; }
  void push(Task task) {
    if (count_ == ring_.size()) grow();
    ring_[(first_ + count_++) % ring_.size()] = std::move(task);
  }
  // Requires that the queue is not empty.
  Task pop() {
    Task task = std::move(ring_[first_]);
    first_ = (first_ + 1) % ring_.size();
    --count_;
    return task;
  }

 private:
  void grow() {
    std::vector<Task> larger(2 * ring_.size() + 1);
    const size_t count = count_;
    for (size_t i = 0; i < count; ++i) larger[i] = pop();
    ring_ = std::move(larger);
    first_ = 0;
    count_ = count;
  }

  std::vector<Task> ring_;  // a ring buffer: count_ tasks from first_ on
  size_t first_ = 0;
  size_t count_ = 0;
};

}  // namespace trifold
