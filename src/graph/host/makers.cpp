// Arrays made from numbers. The graph gives their types and shapes.
#include "core/error.h"
#include "graph/host/rows.h"

namespace trifold::graph {

namespace {

Array made_zeros(const Call& call) { return zero_array(call.type(), call.dims()); }

Array filled(const Call& call, const Array& number) {
  return broadcast_to(converted(number, call.type()), call.dims());
}

Array made_ones(const Call& call) { return filled(call, number_array(int64_t{1})); }
Array scalar_tensor(const Call& call) { return filled(call, call.number(0)); }
Array filled_second(const Call& call) { return filled(call, call.number(1)); }
Array filled_third(const Call& call) { return filled(call, call.number(2)); }

// start, start + step, ...; as many as the graph's output has.
Array range(const Call& call, const Array& start, const Array& step) {
  const Dims dims = call.dims();
  if (dims.size() != 1) bad_input("a range has shape {} in the graph; one dim is needed", dims_text(dims));
  const ElementType computed = is_float(call.type()) ? ElementType::F64 : ElementType::I64;
  Array to = make_array(computed, dims);
  const Array first = converted(start, computed), each = converted(step, computed);
  if (computed == ElementType::F64) {
    for (int64_t i = 0; i < dims[0]; ++i)
      to.as<double>()[i] = *first.as<double>() + static_cast<double>(i) * *each.as<double>();
  } else {
    auto next = *first.as<uint64_t>();
    for (int64_t i = 0; i < dims[0]; ++i, next += *each.as<uint64_t>()) to.as<uint64_t>()[i] = next;
  }
  return converted(std::move(to), call.type());
}

Array arange(const Call& call) { return range(call, number_array(int64_t{0}), number_array(int64_t{1})); }
Array arange_start(const Call& call) { return range(call, call.number(0), number_array(int64_t{1})); }
Array arange_step(const Call& call) { return range(call, call.number(0), call.number(2)); }

}  // namespace

void add_maker_rows(std::vector<HostRow>& rows) {
  const std::vector<HostRow> own{
      {"arange", arange},
      {"arange.start", arange_start},
      {"arange.start_step", arange_step},
      {"zeros", made_zeros},
      {"zeros_like", made_zeros},
      {"new_zeros", made_zeros},
      {"ones", made_ones},
      {"ones_like", made_ones},
      {"new_ones", made_ones},
      {"full", filled_second},
      {"full_like", filled_second},
      {"new_full", filled_third},
      {"scalar_tensor", scalar_tensor},
  };
  rows.insert(rows.end(), own.begin(), own.end());
}

}  // namespace trifold::graph
