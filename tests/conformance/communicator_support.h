// Helpers for the suites of communicator.h.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "support/ranks.h"

namespace trifold::test {

inline constexpr std::chrono::milliseconds kLong{20'000};
inline constexpr std::chrono::milliseconds kShort{300};

// A vector that can be seen as a tensor.
template <class T>
struct Values {
  explicit Values(size_t count, T value = T{}) : data(count, value) {}
  Tensor tensor() { return tensor({static_cast<int64_t>(data.size())}); }
  Tensor tensor(const Shape& shape) { return {data.data(), TypeOf<T>::kValue, shape}; }
  T& operator[](size_t i) { return data[i]; }

  std::vector<T> data;
};

// Element i of rank `rank`, for tests that identify the origin of a number. Exact in every dtype.
template <class T>
T stamp(int rank, size_t i) {
  return static_cast<T>((static_cast<size_t>(rank) * 31 + i * 7 + 1) % 100);
}

// A number whose sums depend on their order, and fit into 16 bits for any number of ranks.
template <class T>
T awkward(int rank, size_t i) {
  return static_cast<T>(std::sin(1.0 + rank * 12.9898 + static_cast<double>(i) * 78.233) *
                        std::pow(10.0, rank % 4 * 2 - 3));
}

template <class T, class Make>
Values<T> filled(size_t count, Make make) {
  Values<T> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = make(i);
  return values;
}

// ((x0 + x1) + x2) + ... or the maximum, over ranks.
template <class T, class Make>
T in_rank_order(int size, size_t i, Reduce how, Make make) {
  T sum = make(0, i);
  for (int r = 1; r < size; ++r)
    sum = how == Reduce::Sum ? static_cast<T>(sum + make(r, i)) : std::max<T>(sum, make(r, i));
  return sum;
}

// Whether `result` is the sum over ranks: bit by bit in rank order (also in 16 bits, where an exact sum of two, rounded
// once, equals the result through f32), or within rounding if the back end promises no order.
template <class T, class Make>
bool is_sum(const Communicator& comm, T result, size_t i, Make make) {
  if (comm.sums_in_rank_order()) {
    T sum = make(0, i);
    for (int r = 1; r < comm.size(); ++r)  // rounded after each addition
      sum = static_cast<T>(static_cast<double>(sum) + static_cast<double>(make(r, i)));
    return static_cast<double>(result) == static_cast<double>(sum);
  }
  double sum = 0;
  double sizes = 0;
  for (int r = 0; r < comm.size(); ++r) {
    const auto each = static_cast<double>(make(r, i));
    sum += each;
    sizes += std::abs(each);
  }
  const double unit = sizeof(T) == 2   ? std::is_same_v<T, Float16> ? 0x1p-11 : 0x1p-8
                      : sizeof(T) == 4 ? 0x1p-24
                                       : 0x1p-53;
  return std::abs(static_cast<double>(result) - sum) <= comm.size() * unit * sizes;
}

// False for NCCL, which does not compare the ranks' calls and cannot name missing ranks (comm/cuda/nccl_comm.h). Tests
// of that skip on it.
inline bool compares_calls(const Communicator& comm) {
  if (comm.backend() != "nccl") return true;
  [] { GTEST_SKIP() << "NCCL does not compare the ranks' calls"; }();
  return false;
}

// Whether there are `wanted` ranks; skips the test otherwise, as may happen if every rank needs its own GPU.
inline bool has_ranks(const Communicator& comm, int wanted) {
  if (comm.size() >= wanted) return true;
  if (comm.backend() == "nccl")
    [wanted] { GTEST_SKIP() << "takes " << wanted << " GPUs, with a rank for each"; }();
  return false;
}

// The text of the Error that `body` throws; a test failure when it throws none.
template <class Body>
std::string error_of(Body body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return "";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

#define EXPECT_CONTAINS(text, part) EXPECT_PRED2(::trifold::test::contains, text, part)

inline Transfer send(int peer, Tensor tensor) { return {Transfer::Direction::Send, peer, tensor}; }
inline Transfer receive(int peer, Tensor tensor) { return {Transfer::Direction::Receive, peer, tensor}; }

// A test of every suite: runs its body on the ranks of a host (communicator.h).
template <class Host>
class CommunicatorTest : public ::testing::Test {
 protected:
  void run(const std::function<void(Communicator&)>& rank_main, std::chrono::milliseconds timeout = kLong) {
    host_.run(rank_main, timeout);
  }
  Host host_;
};

}  // namespace trifold::test
