// Memo: values that are computed once for each key, by the first thread that asks; other threads that ask for the same
// value wait for it. References to values stay valid as long as the memo lives.
#pragma once

#include <map>
#include <mutex>
#include <optional>

namespace trifold {

template <class Key, class Value>
class Memo {
 public:
  // The value of `key`, computed by make() if it is not known. An exception of make() is passed on, and the next call
  // tries again. make() may use other memos, but not this one with the same key.
  template <class Make>
  const Value& of(const Key& key, Make&& make) {
    Entry& entry = entry_of(key);
    // Not std::call_once: ThreadSanitizer's never returns after an exception.
    const std::lock_guard guard(entry.mutex);
    if (!entry.value) entry.value.emplace(make());
    return *entry.value;
  }

 private:
  struct Entry {
    std::mutex mutex;
    std::optional<Value> value;
  };

  Entry& entry_of(const Key& key) {
    const std::lock_guard guard(mutex_);
    return entries_[key];
  }

  std::mutex mutex_;
  std::map<Key, Entry> entries_;
};

}  // namespace trifold
