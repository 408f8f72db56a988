// Memo: values that are computed once for each key, by whichever thread asks first; others that need the same value wait
// for it. Values stay where they are as long as the memo lives.
#pragma once

#include <map>
#include <mutex>

namespace trifold {

template <class Key, class Value>
class Memo {
 public:
  // The value of `key`, made by make() if it is not known. If make() throws, so does this call, and the next one tries
  // again. make() may use other memos, but not this one with the same key.
  template <class Make>
  const Value& of(const Key& key, Make&& make) {
    Entry& entry = entry_of(key);
    std::call_once(entry.made, [&] { entry.value = make(); });
    return entry.value;
  }

 private:
  struct Entry {
    std::once_flag made;
    Value value{};
  };

  Entry& entry_of(const Key& key) {
    const std::lock_guard guard(mutex_);
    return entries_[key];
  }

  std::mutex mutex_;
  std::map<Key, Entry> entries_;
};

}  // namespace trifold
