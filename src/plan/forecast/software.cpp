#include "plan/forecast/software.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>
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
struct KernelChoice {};

struct SoftwareField {
  SoftwareKey key;
  std::variant<KernelChoice, Flag, Number> kind;
};

constexpr double kAny = std::numeric_limits<double>::max();

const std::vector<SoftwareField>& fields() {
  static const std::vector<SoftwareField> kKnown = {
      {{"attention", "fused, flash or unfused", "kernels of attention"}, KernelChoice{}},
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
      {{"scatter-messages", "0 or 1", "tensor ranks send a part of each message"},
       Flag{&Software::scatter_messages}},
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
  };
  return kKnown;
}

struct Setter {
  Software& software;
  const SoftwareKey& key;
  const std::string& value;

  [[noreturn]] void refuse() const { bad_input("--assume {}: '{}' is not {}", key.key, value, key.values); }
  double number(double least, double most) const {
    const double found = number_of(std::string(key.key), value);
    if (found < least || found > most) refuse();
    return found;
  }
  void operator()(KernelChoice) const {
    if (value == "fused")
      software.attention = AttentionKernel::Fused;
    else if (value == "flash")
      software.attention = AttentionKernel::Flash;
    else if (value == "unfused")
      software.attention = AttentionKernel::Unfused;
    else
      refuse();
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

void set_value(Software& software, const std::string& assignment) {
  const auto [key, value] = split_assignment("--assume", assignment);
  for (const SoftwareField& field : fields())
    if (field.key.key == key) return std::visit(Setter{software, field.key, value}, field.kind);
  std::vector<std::string_view> names;
  for (const SoftwareField& field : fields()) names.push_back(field.key.key);
  bad_input("--assume: '{}' is not known: known keys are {}", key, fmt::join(names, ", "));
}

}  // namespace trifold
