#include "checkpoint/inspect.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "checkpoint/tensor_kind.h"
#include "core/bytes_text.h"
#include "core/read_json.h"

namespace trifold {

namespace {

using nlohmann::json;

constexpr int64_t kBlockElements = int64_t{1} << 22;  // compared at once

constexpr size_t kLineWidth = 110;

// Appends "path value" for each value below `value`, except null, which stands for an option that was not given. A list
// without objects or lists is one value.
void add_fields(std::vector<std::string>& fields, const std::string& path, const json& value) {
  const bool leaf = value.is_array() ? std::none_of(value.begin(), value.end(),
                                                    [](const json& item) { return item.is_structured(); })
                                     : !value.is_object();
  if (leaf) {
    if (!value.is_null()) fields.push_back(fmt::format("{} {}", path, json_text(value)));
    return;
  }
  for (const auto& [key, item] : value.items())
    add_fields(fields, path.empty() ? key : fmt::format("{}.{}", path, key), item);
}

// "model: hidden_size 128, num_layers 4, ...", on as many lines as it needs.
std::string fields_text(const std::string& title, const json& value) {
  std::vector<std::string> fields;
  if (value.is_object()) add_fields(fields, "", value);
  if (fields.empty()) fields.emplace_back("not recorded");
  std::string text = title + ":";
  size_t width = text.size();
  for (size_t index = 0; index < fields.size(); ++index) {
    const std::string field = fields[index] + (index + 1 < fields.size() ? "," : "");
    const bool fits = width + 1 + field.size() <= kLineWidth;
    text += fits ? " " : "\n  ";
    width = (fits ? width + 1 : 2) + field.size();
    text += field;
  }
  return text + "\n";
}

// The value without the fields that are the same in `defaults`.
json without_defaults(const json& value, const json& defaults) {
  if (!value.is_object() || !defaults.is_object()) return value;
  json rest = json::object();
  for (const auto& [key, item] : value.items())
    if (const auto usual = defaults.find(key); usual == defaults.end() || *usual != item) rest[key] = item;
  return rest;
}

std::string totals(const std::vector<TensorInfo>& tensors) {
  struct Total {
    int64_t tensors = 0;
    int64_t elements = 0;
    int64_t bytes = 0;
  };
  std::map<std::string, Total> kinds;
  for (const TensorInfo& tensor : tensors)
    for (const std::string& kind :
         {std::string(kind_of_tensor(tensor.name)), std::string("~total")}) {  // '~' sorts last
      Total& total = kinds[kind];
      total.tensors += 1;
      total.elements += tensor.global.elements();
      total.bytes += tensor.bytes();
    }
  std::string text;
  for (const auto& [kind, total] : kinds)
    text += fmt::format("{}: {} tensors, {} elements, {}\n", kind == "~total" ? "total" : kind, total.tensors,
                        total.elements, bytes_text(static_cast<size_t>(total.bytes)));
  return text;
}

// The boxes of a tensor, in memory order, of at most about kBlockElements each.
std::vector<Rect> blocks_of(const Shape& global) {
  std::vector<Rect> blocks;
  const int64_t count = global.elements();
  for (int64_t begin = 0; begin < count; begin += kBlockElements)
    for (const Rect& rect :
         rects_of_range(Rect::whole(global), begin, std::min(count, begin + kBlockElements)))
      blocks.push_back(rect);
  return blocks;
}

Buffer load_block(CheckpointReader& from, const TensorInfo& tensor, const Rect& block) {
  Buffer buffer(static_cast<size_t>(block.elements()) * size_of(tensor.dtype));
  NamedTensor wanted;
  wanted.spec.name = tensor.name;
  wanted.spec.global = tensor.global;
  wanted.spec.local = block;
  wanted.data = buffer.tensor(tensor.dtype, block.extent);
  from.load({&wanted, 1});
  return buffer;
}

double value_at(const Buffer& block, DType dtype, int64_t index) {
  const auto as = [&](auto zero) {
    std::memcpy(&zero, block.data() + static_cast<size_t>(index) * sizeof(zero), sizeof(zero));
    return static_cast<double>(zero);
  };
  switch (dtype) {
    case DType::F64:
      return as(double{});
    case DType::F32:
      return as(float{});
    case DType::I64:
      return as(int64_t{});
    case DType::I32:
      return as(int32_t{});
    case DType::U16:
      return as(uint16_t{});
    case DType::U8:
      return as(uint8_t{});
    case DType::BF16:
      return as(Bfloat16{});
    case DType::F16:
      return as(Float16{});
  }
  return 0;
}

void add_element(TensorDifference& out, double a, double b) {
  ++out.elements_differing;
  if (a == b || (std::isnan(a) && std::isnan(b))) return;  // different bits of the same value
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double distance = std::abs(a - b);
  const double size = std::max(std::abs(a), std::abs(b));
  const bool finite = std::isfinite(distance) && std::isfinite(size);
  out.max_abs = std::max(out.max_abs, finite ? distance : kInfinity);
  out.max_rel = std::max(out.max_rel, finite ? distance / size : kInfinity);
}

void add_block(TensorDifference& out, const Buffer& a, DType type_a, const Buffer& b, DType type_b,
               int64_t count) {
  if (type_a == type_b && std::memcmp(a.data(), b.data(), a.bytes()) == 0) return;
  const size_t size = size_of(type_a);
  for (int64_t i = 0; i < count; ++i) {
    const double x = value_at(a, type_a, i);
    const double y = value_at(b, type_b, i);
    const size_t at = static_cast<size_t>(i) * size;
    const bool equal = type_a == type_b ? std::memcmp(a.data() + at, b.data() + at, size) == 0
                                        : x == y || (std::isnan(x) && std::isnan(y));
    if (!equal) add_element(out, x, y);
  }
}

// Whether the tensors are equal to the last bit.
bool compare_tensor(TensorDifference& out, CheckpointReader& left, const TensorInfo& a,
                    CheckpointReader& right, const TensorInfo& b) {
  out.name = a.name;
  if (a.global != b.global || a.dtype != b.dtype)
    out.shape_or_dtype = fmt::format("{} {} and {} {}", name_of(a.dtype), to_string(a.global),
                                     name_of(b.dtype), to_string(b.global));
  if (a.global != b.global) return false;
  for (const Rect& block : blocks_of(a.global))
    add_block(out, load_block(left, a, block), a.dtype, load_block(right, b, block), b.dtype,
              block.elements());
  return out.elements_differing == 0 && out.shape_or_dtype.empty();
}

json comparable(const CheckpointMeta& meta) {
  return {{"step", meta.step},
          {"consumed_samples", meta.consumed_samples},
          {"model", meta.model},
          {"mesh", meta.mesh},
          {"state", meta.state}};
}

// The differences of the options of two runs. A converted checkpoint has none, which is one line.
std::vector<std::string> differing_options(const json& left, const json& right) {
  if (left.empty() != right.empty())
    return {fmt::format("config: only {}, because the other checkpoint was not written by a run",
                        left.empty() ? "right" : "left")};
  return differing_fields(json::object({{"config", left}}), json::object({{"config", right}}), "left",
                          "right");
}

}  // namespace

std::string model_text(const json& model, const json& default_model) {
  return fields_text("model", without_defaults(model, default_model));
}

std::string describe(const CheckpointReader& checkpoint, const json& default_model) {
  const Manifest& manifest = checkpoint.manifest();
  std::string text =
      fmt::format("checkpoint {}\nstep {}, {} samples consumed\n{}{}", checkpoint.directory().string(),
                  manifest.meta.step, manifest.meta.consumed_samples,
                  model_text(manifest.meta.model, default_model), fields_text("mesh", manifest.meta.mesh));
  int64_t bytes = 0;
  for (const FileInfo& file : manifest.files) bytes += file.bytes;
  text += fmt::format("files: {}, {}\n\n", manifest.files.size(), bytes_text(static_cast<size_t>(bytes)));

  size_t width = 6;
  for (const TensorInfo& tensor : manifest.tensors) width = std::max(width, tensor.name.size());
  text += fmt::format("{:<{}}  {:<5}  {:<20} {:>10}  {:>6}\n", "tensor", width, "dtype", "shape", "size",
                      "pieces");
  for (const TensorInfo& tensor : manifest.tensors)
    text += fmt::format("{:<{}}  {:<5}  {:<20} {:>10}  {:>6}\n", tensor.name, width, name_of(tensor.dtype),
                        to_string(tensor.global), bytes_text(static_cast<size_t>(tensor.bytes())),
                        tensor.pieces.size());
  return text + "\n" + totals(manifest.tensors);
}

std::string to_text(const VerifyReport& report) {
  std::string text;
  for (const std::string& problem : report.problems) text += problem + "\n";
  const std::string what = fmt::format("{} files, {} tensors, {}", report.files, report.tensors,
                                       bytes_text(static_cast<size_t>(report.bytes)));
  if (report.ok()) return text + fmt::format("every byte is as it was written ({})\n", what);
  return text + fmt::format("DAMAGED: {} problem{} ({})\n", report.problems.size(),
                            report.problems.size() == 1 ? "" : "s", what);
}

CheckpointDifference difference(CheckpointReader& left, CheckpointReader& right) {
  CheckpointDifference out;
  out.fields = differing_fields(comparable(left.meta()), comparable(right.meta()), "left", "right");
  for (const std::string& option : differing_options(left.meta().config, right.meta().config))
    out.fields.push_back(option);
  for (const TensorInfo& tensor : right.tensors())
    if (left.find(tensor.name) == nullptr) out.only_right.push_back(tensor.name);
  for (const TensorInfo& tensor : left.tensors()) {
    const TensorInfo* other = right.find(tensor.name);
    TensorDifference found;
    if (other == nullptr)
      out.only_left.push_back(tensor.name);
    else if (compare_tensor(found, left, tensor, right, *other))
      ++out.tensors_equal;
    else
      out.tensors.push_back(found);
  }
  return out;
}

std::string to_text(const CheckpointDifference& difference) {
  std::string text;
  for (const std::string& field : difference.fields) text += field + "\n";
  for (const std::string& name : difference.only_left) text += fmt::format("{}: only left\n", name);
  for (const std::string& name : difference.only_right) text += fmt::format("{}: only right\n", name);
  for (const TensorDifference& tensor : difference.tensors) {
    text += tensor.name + ":";
    if (!tensor.shape_or_dtype.empty()) text += " " + tensor.shape_or_dtype;
    if (tensor.elements_differing > 0)
      text += fmt::format(" {} elements differ, by at most {:.3g} (relative {:.3g})",
                          tensor.elements_differing, tensor.max_abs, tensor.max_rel);
    text += "\n";
  }
  if (difference.bitwise_equal())
    return text + fmt::format("all {} tensors are bitwise equal\n", difference.tensors_equal);
  text += fmt::format("{} tensors are bitwise equal, {} differ", difference.tensors_equal,
                      difference.tensors.size());
  if (!difference.only_left.empty()) text += fmt::format(", {} are only left", difference.only_left.size());
  if (!difference.only_right.empty())
    text += fmt::format(", {} are only right", difference.only_right.size());
  return text + "\n";
}

}  // namespace trifold
