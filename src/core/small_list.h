// SmallList: a list that stores up to N elements inline and longer lists on the heap, so that short lists, which are
// made in every step, do not allocate. Pointers and iterators are valid until the next push_back.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

namespace trifold {

template <class T, size_t N>
class SmallList {
 public:
  SmallList() = default;
  SmallList(std::initializer_list<T> values) : SmallList(std::span<const T>(values.begin(), values.size())) {}
  explicit SmallList(std::span<const T> values) {
    for (const T& value : values) push_back(value);
  }

  void push_back(T value) {
    if (size_ == N) more_.assign(std::make_move_iterator(few_.begin()), std::make_move_iterator(few_.end()));
    if (size_ < N)
      few_[size_] = std::move(value);
    else
      more_.push_back(std::move(value));
    ++size_;
  }
  void pop_back() {
    if (size_ > N) more_.pop_back();
    if (--size_ == N) std::move(more_.begin(), more_.end(), few_.begin());
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* begin() { return size_ > N ? more_.data() : few_.data(); }
  T* end() { return begin() + size_; }
  const T* begin() const { return size_ > N ? more_.data() : few_.data(); }
  const T* end() const { return begin() + size_; }
  T& operator[](size_t i) { return begin()[i]; }
  const T& operator[](size_t i) const { return begin()[i]; }
  T& back() { return begin()[size_ - 1]; }
  operator std::span<const T>() const { return {begin(), size_}; }

 private:
  std::array<T, N> few_{};
  std::vector<T> more_;  // all elements, if there are more than N
  size_t size_ = 0;
};

}  // namespace trifold
