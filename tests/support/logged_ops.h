// The processor's operations, which also log what the calling thread enqueues.
#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include "ops/ops.h"

namespace trifold::test {

// The operations that a thread has called: their names, types and shapes, in order.
class OpsLog {
 public:
  // Logs the operations of logged_ops() that the calling thread enqueues until destruction. Without `shapes` only names.
  explicit OpsLog(bool shapes = true) : shapes_(shapes) { here() = this; }
  ~OpsLog() { here() = nullptr; }
  OpsLog(const OpsLog&) = delete;
  OpsLog& operator=(const OpsLog&) = delete;

  const std::vector<std::string>& list() const { return list_; }
  void restart() { list_.clear(); }

  template <class... Args>
  void add(std::string_view name, const Args&... args) {
    std::string line(name);
    if (shapes_) (add_shape(line, args), ...);
    list_.push_back(std::move(line));
  }

  static OpsLog*& here() {
    static thread_local OpsLog* log = nullptr;
    return log;
  }

 private:
  template <class T>
  static void add_shape(std::string& line, const T& value) {
    if constexpr (std::is_same_v<T, Tensor>)
      line += fmt::format(" {} {}", name_of(value.dtype), to_string(value.shape));
  }

  bool shapes_;
  std::vector<std::string> list_;
};

template <auto Entry>
struct LoggedEntry;
template <class... Args, void (*OpTable::*Entry)(Stream&, Args...)>
struct LoggedEntry<Entry> {
  static void call(Stream& stream, Args... args) {
    OpsLog* log = OpsLog::here();
    if (log != nullptr && stream.mode() != Stream::Mode::Dry) log->add(name(), args...);
    (cpu_ops().*Entry)(stream, args...);
  }
  // "fill", from "... Entry = &trifold::OpTable::fill ...", as gcc and clang write it.
  static std::string_view name() {
    const std::string_view text = __PRETTY_FUNCTION__;
    constexpr std::string_view kTable = "&trifold::OpTable::";
    const size_t at = text.find(kTable);
    if (at == std::string_view::npos) return text;
    return text.substr(at + kTable.size(), text.find_first_of(";],", at) - at - kTable.size());
  }
};

inline const OpTable& logged_ops() {
  static const OpTable kTable = [] {
    OpTable ops = cpu_ops();
    Operations::for_each([&](auto operation) {
      constexpr auto kEntry = decltype(operation)::kEntry;
      ops.*kEntry = LoggedEntry<kEntry>::call;
    });
    return ops;
  }();
  return kTable;
}

}  // namespace trifold::test
