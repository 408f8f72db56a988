#include "plan/forecast/software.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <variant>

#include "core/error.h"
#include "plan/forecast/assignment.h"

namespace trifold {

namespace {

struct Number {
  double Software::*value;
  double least, most;
};
struct Flag {
  bool Software::*value;
};
// A key whose value is one of several names, stored as its index.
struct Choice {
  std::vector<std::string_view> names;
  void (*set)(Software&, size_t);
};

struct SoftwareField {
  SoftwareKey key;
  std::variant<Choice, Flag, Number> kind;
};

constexpr double kAny = std::numeric_limits<double>::max();

const std::vector<SoftwareField>& fields() {
  static const std::vector<SoftwareField> kKnown = {
      {{"figures", "own or fitted",
        "figures of a built-in device: this engine's, or those fitted to published runs of other programs, as with "
        "any other assumption"},
       Choice{{"own", "fitted"},
              [](Software& software, size_t at) { software.figures = static_cast<DeviceFigures>(at); }}},
      {{"attention", "fused, flash or unfused", "kernels of attention"},
       Choice{{"fused", "flash", "unfused"},
              [](Software& software, size_t at) { software.attention = static_cast<AttentionKernel>(at); }}},
      {{"fused-elementwise", "0 or 1", "norms, residual sums and activations are fused"},
       Flag{&Software::fused_elementwise}},
      {{"backward-overlap", "0 to 1", "fraction of tensor collectives that overlap with weight gradients"},
       Number{&Software::backward_overlap, 0, 1}},
      {{"tensor-overlap", "0 to 1", "fraction of tensor collectives that overlap with their matrix products"},
       Number{&Software::tensor_overlap, 0, 1}},
      {{"overlap-gradients", "0 or 1", "whether gradient reductions overlap with the last backward"},
       Flag{&Software::overlap_gradients}},
      {{"overlap-messages", "0 or 1", "whether messages between stages overlap with computation"},
       Flag{&Software::overlap_messages}},
      {{"scatter-messages", "0 to 1", "fraction of the messages of which each tensor rank sends a part"},
       Number{&Software::scatter_messages, 0, 1}},
      {{"accumulate-in-product", "0 or 1", "weight gradients accumulated by the product"},
       Flag{&Software::accumulate_in_product}},
      {{"gradient-bytes", "0 to 8", "bytes of a gradient on the network, 0: as configured"},
       Number{&Software::gradient_bytes, 0, 8}},
      {{"adapters-per-collective", "0 or more", "adapters of a node a collective uses, 0: one a rank"},
       Number{&Software::adapters_per_collective, 0, kAny}},
      {{"recompute-fraction", "0 to 1", "fraction of the layers that are recomputed"},
       Number{&Software::recompute_fraction, 0, 1}},
      {{"context-parallel", "1 or more", "ranks that another program cuts the rows of a sample over"},
       Number{&Software::context, 1, kAny}},
      {{"balanced-context", "0 or 1", "context-parallel ranks have as many scores each"},
       Flag{&Software::balanced_context}},
      {{"activations", "own, fused, compiled or eager",
        "what is kept for backward: as Trifold, or as PyTorch with fused kernels, compiled layers, single operations"},
       Choice{
           {"own", "fused", "compiled", "eager"},
           [](Software& software, size_t at) { software.activations = static_cast<KeptActivations>(at); }}},
      {{"fused-norms", "0 or 1",
        "with activations=eager: whether norms are fused kernels, which keep their input"},
       Flag{&Software::fused_norms}},
      {{"input-bytes", "0 to 8",
        "bytes of an element that a product keeps of its input, 0: those of an activation"},
       Number{&Software::input_bytes, 0, 8}},
      {{"gathered-inputs", "0 or 1",
        "with sequence parallelism: whether inputs that tensor ranks gather for a product are kept whole"},
       Flag{&Software::gathered_inputs}},
      {{"recompute-products", "0 or 1",
        "with full recomputation: whether recompute-fraction is that of the products of each layer, whose other "
        "outputs are kept"},
       Flag{&Software::recompute_products}},
      {{"loss-bytes", "0 to 64",
        "bytes in memory for each logit while the loss is computed, 0: as activations says"},
       Number{&Software::loss_bytes, 0, 64}},
      {{"weight-copy-bytes", "0 to 8", "bytes of a second copy of each weight, for products in 8 bits"},
       Number{&Software::weight_copy_bytes, 0, 8}},
  };
  return kKnown;
}

struct Setter {
  Software& software;
  const SoftwareKey& key;
  const std::string& value;

  [[noreturn]] void refuse() const { bad_input("--assume {}: '{}' is not {}", key.key, value, key.values); }
  double number(double least, double most) const {
    const double found = parse_number(std::string(key.key), value);
    if (found < least || found > most) refuse();
    return found;
  }
  void operator()(const Choice& choice) const {
    const auto found = std::find(choice.names.begin(), choice.names.end(), value);
    if (found == choice.names.end()) refuse();
    choice.set(software, static_cast<size_t>(found - choice.names.begin()));
  }
  void operator()(Flag flag) const {
    if (value != "0" && value != "1") refuse();
    software.*(flag.value) = value == "1";
  }
  void operator()(Number field) const { software.*(field.value) = number(field.least, field.most); }
};

}  // namespace

std::vector<SoftwareKey> software_keys() {
  std::vector<SoftwareKey> keys;
  for (const SoftwareField& field : fields()) keys.push_back(field.key);
  return keys;
}

void check_memory_keys(const Software& software) {
  if (software.describes_memory()) return;
  const std::pair<const char*, bool> given[] = {
      {"fused-norms", software.fused_norms},         {"input-bytes", software.input_bytes > 0},
      {"gathered-inputs", software.gathered_inputs}, {"recompute-products", software.recompute_products},
      {"loss-bytes", software.loss_bytes > 0},       {"weight-copy-bytes", software.weight_copy_bytes > 0}};
  for (const auto& [key, is_given] : given)
    if (is_given)
      bad_input(
          "--assume {} describes the memory of another program: give activations=fused, compiled or eager too",
          key);
}

void set_value(Software& software, const std::string& assignment) {
  const auto [key, value] = split_assignment("--assume", assignment);
  for (const SoftwareField& field : fields())
    if (field.key.key == key) return std::visit(Setter{software, field.key, value}, field.kind);
  std::vector<std::string_view> names;
  for (const SoftwareField& field : fields()) names.push_back(field.key.key);
  bad_input("--assume: '{}' is not known: known keys are {}", key, fmt::join(names, ", "));
}

}  // namespace trifold
