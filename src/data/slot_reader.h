// SlotReader fills the next slots of a ring on a thread while earlier ones are in use. The owner defines the slots and
// fills them (data/read_ahead.h).
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace trifold {

class SlotReader {
 public:
  // Item i, of `count`, is filled by fill(i) into slot i % (held + ahead), on the thread, in order. The consumer may
  // use `held` items at a time: item i is valid until item i + held is requested. `describe(i)` names item i in
  // messages: "samples from 12 on".
  SlotReader(int64_t count, int held, int ahead, std::function<void(int64_t)> fill,
             std::function<std::string(int64_t)> describe);
  // Stops after the item that is being read, if any.
  ~SlotReader();
  SlotReader(const SlotReader&) = delete;
  SlotReader& operator=(const SlotReader&) = delete;

  int slots() const { return slots_; }

  // The index of the next item, once it is filled. Throws an error in filling it once all earlier items were returned,
  // and again in every later call. Throws Failure if it does not arrive within `timeout` (calling again continues the
  // wait) or after the last item.
  int64_t get(std::chrono::milliseconds timeout);

 private:
  void read_loop();

  int64_t count_;
  int held_;
  int slots_;
  std::function<void(int64_t)> fill_;
  std::function<std::string(int64_t)> describe_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t read_ = 0;   // items filled
  int64_t taken_ = 0;  // items returned
  bool stopping_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace trifold
