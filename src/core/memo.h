// Memo: values that are computed once for each key, by whichever thread asks first; others that need the same value wait
// for it. Values stay where they are as long as the memo lives.
#pragma once

#include <map>
#include <mutex>
#include <optional>

namespace trifold {

template <class Key, class Value>
class Memo {
 public:
  // The value of `key`, made by make() if it is not known. If make() throws, so does this call, and the next one tries
  // again. make() may use other memos, but not this one with the same key.
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
