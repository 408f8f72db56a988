#include "graph/host/call.h"

#include <utility>

#include "core/error.h"

namespace trifold::graph {

HostOperand HostOperand::as(ElementType type) const& {
  if (array().type == type && given_ != nullptr) return HostOperand(given_);
  return {converted(array(), type), number_};
}

HostOperand HostOperand::as(ElementType type) && {
  if (array().type == type) return std::move(*this);
  return {converted(array(), type), number_};
}

namespace {

int kind_of(ElementType type) { return is_float(type) ? 2 : type == ElementType::Bool ? 0 : 1; }

// 2: with dims, 1: without, 0: a number.
int weight_of(const HostOperand& operand) {
  return operand.number() ? 0 : operand.array().dims.empty() ? 1 : 2;
}

// A number is of PyTorch's default type of its kind.
ElementType own_type(const HostOperand& operand) {
  const ElementType type = operand.array().type;
  return operand.number() && type == ElementType::F64 ? ElementType::F32 : type;
}

// The smallest type that represents both, as PyTorch's table has it. Both are of one kind.
ElementType promoted(ElementType a, ElementType b) {
  if (a == b) return a;
  if (is_float(a)) {
    if (a == ElementType::F64 || b == ElementType::F64) return ElementType::F64;
    return ElementType::F32;  // also for bf16 with f16
  }
  if (size_of(a) != size_of(b)) {
    const ElementType larger = size_of(a) > size_of(b) ? a : b, smaller = size_of(a) > size_of(b) ? b : a;
    if (larger == ElementType::U16 && smaller == ElementType::I8) return ElementType::I32;
    return larger;
  }
  return size_of(a) == 1 ? ElementType::I16 : ElementType::I32;  // one with a sign and one without
}

}  // namespace

ElementType combined_type(const HostOperand& a, const HostOperand& b) {
  const ElementType x = own_type(a), y = own_type(b);
  if (kind_of(x) != kind_of(y)) return kind_of(x) > kind_of(y) ? x : y;
  if (weight_of(a) != weight_of(b)) return weight_of(a) > weight_of(b) ? x : y;
  return promoted(x, y);
}

const Argument& Call::argument(size_t i) const {
  if (i >= node_.arguments.size())
    bad_input("argument {} is missing: the node has {}", i, node_.arguments.size());
  return node_.arguments[i];
}

const Value& Call::value(size_t output) const {
  check(output < node_.outputs.size() && node_.outputs[output].index >= 0, "output {} is absent", output);
  return graph_.at(node_.outputs[output]);
}

int64_t Call::value_of(const Extent& extent) const {
  int64_t value = extent.value;
  if (extent.per_sample && __builtin_mul_overflow(value, batch_, &value))
    bad_input("the size {} is too large for {} samples", to_text(extent), batch_);
  return value;
}

bool Call::has(size_t i) const {
  const Argument& given = argument(i);
  const auto* id = std::get_if<ValueId>(&given);
  return !std::holds_alternative<std::monostate>(given) && (id == nullptr || id->index >= 0);
}

const Array& Call::tensor(size_t i) const {
  const auto* id = std::get_if<ValueId>(&argument(i));
  if (id == nullptr || id->index < 0) bad_input("argument {} is not a tensor", i);
  return lookup_(*id);
}

std::vector<const Array*> Call::tensors(size_t i) const {
  const auto* ids = std::get_if<std::vector<ValueId>>(&argument(i));
  if (ids == nullptr) bad_input("argument {} is not a list of tensors", i);
  std::vector<const Array*> arrays;
  for (const ValueId id : *ids) arrays.push_back(id.index < 0 ? nullptr : &lookup_(id));
  return arrays;
}

HostOperand Call::operand(size_t i) const {
  if (std::holds_alternative<ValueId>(argument(i))) return HostOperand(&tensor(i));
  return {number(i), true};
}

Array Call::number(size_t i) const {
  const Argument& given = argument(i);
  if (const auto* extent = std::get_if<Extent>(&given)) return number_array(value_of(*extent));
  if (const auto* real = std::get_if<double>(&given)) return number_array(*real);
  if (const auto* flag = std::get_if<bool>(&given)) return number_array(*flag);
  bad_input("argument {} is not a number", i);
}

double Call::real(size_t i) const { return *converted(number(i), ElementType::F64).as<double>(); }

int64_t Call::integer(size_t i) const {
  const auto* extent = std::get_if<Extent>(&argument(i));
  if (extent == nullptr) bad_input("argument {} is not an integer", i);
  return value_of(*extent);
}

Dims Call::integers(size_t i) const {
  const auto* extents = std::get_if<std::vector<Extent>>(&argument(i));
  if (extents == nullptr) bad_input("argument {} is not a list of integers", i);
  Dims values;
  for (const Extent& extent : *extents) values.push_back(value_of(extent));
  return values;
}

bool Call::flag(size_t i) const {
  const auto* flag = std::get_if<bool>(&argument(i));
  if (flag == nullptr) bad_input("argument {} is not a bool", i);
  return *flag;
}

const std::string& Call::text(size_t i) const {
  const auto* text = std::get_if<std::string>(&argument(i));
  if (text == nullptr) bad_input("argument {} is not a text", i);
  return *text;
}

Dims Call::dims(size_t output) const {
  Dims dims;
  for (const Extent& extent : value(output).dims) dims.push_back(value_of(extent));
  return dims;
}

}  // namespace trifold::graph
