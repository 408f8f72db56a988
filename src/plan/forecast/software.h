// Software describes how a training program carries out a step, as far as it affects the step's time and memory. The
// default is Trifold. Other values describe other programs, so that forecasts can be compared with published runs;
// `trifold plan --assume KEY=VALUE` sets them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trifold {

// How attention is computed: with fused kernels tuned for the device (cuDNN), with FlashAttention kernels not tuned for
// it, or as batched products with the scores in memory.
enum class AttentionKernel { Fused, Flash, Unfused };

// What is kept of a micro-batch from forward to backward (plan/forecast/kept_activations.h): what Trifold keeps, counted
// in a dry run, or what PyTorch's autograd keeps of a model written with fused kernels (Megatron-LM), of compiled layers,
// or of one operation after the other.
enum class KeptActivations { Own, Fused, Compiled, Eager };

struct Software {
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
  bool balanced_context = true;  // each has rows from both ends of a sample, so all have equally many scores
  // Memory. The others have no effect on what Trifold keeps itself.
  KeptActivations activations = KeptActivations::Own;
  bool fused_norms = false;      // of eager programs, norms are kernels that keep their input
  double input_bytes = 0;        // of an element that a product keeps of its input; 0: of an activation
  bool gathered_inputs = false;  // inputs that tensor ranks gather for a product are kept whole
  bool recompute_products =
      false;              // recomputed layers keep attention's output and a part of the products' outputs
  double loss_bytes = 0;  // of what is in memory for each logit; 0: as `activations` counts it
  double weight_copy_bytes = 0;  // of a second copy of each weight, for products in 8 bits

  bool describes_memory() const { return activations != KeptActivations::Own; }
};

// The keys that `set_value` knows, with their meanings for --help and messages.
struct SoftwareKey {
  std::string_view key, values, help;
};
std::vector<SoftwareKey> software_keys();

// BadInput if something is said of memory that only describes another program's, and `activations` does not.
void check_memory_keys(const Software& software);

// Applies "KEY=VALUE". Throws Error(BadInput) for an unknown key and for a value out of its range.
void set_value(Software& software, const std::string& assignment);

}  // namespace trifold
