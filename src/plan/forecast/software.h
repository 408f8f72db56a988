// Software describes how a training program carries out a step, as far as it affects the step's time and memory. The
// default is Trifold. Other values describe other programs, so that forecasts can be compared with published runs;
// `trifold plan --assume KEY=VALUE` sets them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/forecast/hardware.h"

namespace trifold {

// How attention is computed: with fused kernels tuned for the device (cuDNN), with FlashAttention kernels not tuned for
// it, or as batched products with the scores in memory.
enum class AttentionKernel { Fused, Flash, Unfused };

// Activations kept from forward to backward (plan/forecast/kept_activations.h): Trifold's own, counted in a dry run, or
// what PyTorch's autograd keeps for a model written with fused kernels (Megatron-LM), with compiled layers, or as
// single operations.
enum class KeptActivations { Own, Fused, Compiled, Eager };

struct Software {
  // Whose figures of a built-in device apply. Not set: this engine's if nothing is assumed, otherwise the fitted ones.
  std::optional<DeviceFigures> figures;
  AttentionKernel attention = AttentionKernel::Fused;
  bool fused_elementwise = true;  // norms, residual sums, dropout and activations are fused kernels
  double backward_overlap = 0;    // fraction of tensor collectives that overlap with weight gradients
  double tensor_overlap = 0;      // share of all tensor collectives that overlap with the products they feed
  bool overlap_gradients = true;  // data-parallel sums overlap with the last backward
  bool overlap_messages = true;   // messages between stages overlap with computation
  double scatter_messages = 0;    // fraction of messages that tensor ranks send in parts (2104.04473, 4.1)
  bool accumulate_in_product = true;   // weight gradients are accumulated by the product
  double gradient_bytes = 0;           // bytes of a gradient on the network; 0: as the configuration says
  double adapters_per_collective = 0;  // adapters of a node that a collective uses; 0: one per rank
  double recompute_fraction = 1;       // fraction of the layers that are recomputed
  double context = 1;                  // context-parallel ranks of another program; 1: as the options say
  bool balanced_context = true;  // context ranks have rows from both ends of a sample: equally many scores
  // Memory. The fields above do not affect what Trifold itself keeps.
  KeptActivations activations = KeptActivations::Own;
  bool fused_norms = false;      // in eager programs: norms are kernels that keep their input
  double input_bytes = 0;        // bytes per element of a product's kept input; 0: as an activation
  bool gathered_inputs = false;  // inputs that tensor ranks gather for a product are kept whole
  bool recompute_products =
      false;              // recomputed layers keep attention's output and a part of the products' outputs
  double loss_bytes = 0;  // bytes per logit during the loss; 0: as `activations` counts it
  double weight_copy_bytes = 0;  // bytes per weight of a second copy for 8-bit products

  bool describes_memory() const { return activations != KeptActivations::Own; }
};

// The keys that `set_value` knows, with their meanings for --help and messages.
struct SoftwareKey {
  std::string_view key, values, help;
};
std::vector<SoftwareKey> software_keys();

// BadInput if a key that describes another program's memory is set while `activations` is Own.
void check_memory_keys(const Software& software);

// Applies "KEY=VALUE". Throws Error(BadInput) for an unknown key and for a value out of its range.
void set_value(Software& software, const std::string& assignment);

}  // namespace trifold
