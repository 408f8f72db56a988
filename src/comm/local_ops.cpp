#include "comm/local_ops.h"

#include <algorithm>

namespace trifold {

namespace {

template <class T>
void reduce_as(Tensor y, Tensor x, Reduce how) {
  T* to = y.as<T>();
  const T* from = x.as<T>();
  const int64_t count = y.elements();
  if (how == Reduce::Sum)
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(to[i] + from[i]);
  else
    for (int64_t i = 0; i < count; ++i) to[i] = std::max(to[i], from[i]);
}

void reduce(Stream& stream, Tensor y, Tensor x, Reduce how) {
  stream.run([=] {
    switch (y.dtype) {
      case DType::F64:
        return reduce_as<double>(y, x, how);
      case DType::F32:
        return reduce_as<float>(y, x, how);
      case DType::I64:
        return reduce_as<int64_t>(y, x, how);
      case DType::I32:
        return reduce_as<int32_t>(y, x, how);
      default:
        fail("{} cannot be reduced", name_of(y.dtype));
    }
  });
}

OpTable make() {
  OpTable table{};
  table.name = "local";
  table.reduce = reduce;
  return table;
}

}  // namespace

const OpTable& local_ops() {
  static const OpTable table = make();
  return table;
}

}  // namespace trifold
